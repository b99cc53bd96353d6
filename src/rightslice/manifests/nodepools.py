"""Commands that make, prepare and remove node pools; templates in `data/clouds.yaml`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from rightslice.catalogue.platforms import platforms
from rightslice.core.text import visible
from rightslice.kube.names import alphanumeric_name, safe_name
from rightslice.manifests.layout import node_layouts
from rightslice.manifests.pods import cache_gib
from rightslice.manifests.view import POOL_LABEL, PoolView, View

DISK_BASE_GB: Final = 100
"""Operating system and images: a vLLM image takes 28.6 GB unpacked (vLLM pull request 22377), speech images 19 GB and
more; 100 GB is also the default of GKE."""

DISK_STEP_GB: Final = 50
REBOOT: Final = " \\\n  --set 'migManager.env[0].name=WITH_REBOOT' --set-string 'migManager.env[0].value=true'"


@dataclass(frozen=True, slots=True)
class Variable:
    """What the reader exports: the value where the plan knows it, and what it is."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Purchase:
    """What one way to buy adds to the command."""

    options: str = ""
    disk: bool = True
    note: str = ""
    variables: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cloud:
    """One platform's templates."""

    variables: Mapping[str, tuple[str, str]]
    connect: str
    name_limit: int
    alphanumeric: bool
    create: tuple[str, ...]
    partition: str
    disk: str
    ami_type: Mapping[str, str]
    accelerator_names: str
    capacity: Mapping[str, Purchase]
    remove: str
    plain: tuple[str, ...]
    operator: tuple[str, ...]
    quota: bool


@cache
def _data() -> dict[str, Any]:
    text = (files("rightslice.manifests") / "data" / "clouds.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    return loaded


def versions() -> Mapping[str, str]:
    """Versions of what the commands install."""
    found: dict[str, str] = _data()["versions"]
    return found


def cloud(platform: str) -> Cloud | None:
    """The templates of a platform; None where no commands are known."""
    row = _data()["platforms"].get(platform)
    if row is None:
        return None
    return Cloud(
        variables=_variables(row.get("variables", {})),
        connect=row["connect"],
        name_limit=row["pool_name"]["limit"],
        alphanumeric=row["pool_name"]["alphanumeric"],
        create=tuple(row["create"]),
        partition=row.get("partition", ""),
        disk=row.get("disk", ""),
        ami_type=row.get("ami_type", {}),
        accelerator_names=row.get("accelerator_names", ""),
        capacity={
            name: Purchase(
                found["options"], "disk" not in found, found.get("note", ""), _variables(found.get("variables", {}))
            )
            for name, found in row["capacity"].items()
        },
        remove=row["remove"],
        plain=tuple(row["software"]["plain"]),
        operator=tuple(row["software"]["operator"]),
        quota=row.get("quota", False),
    )


def _variables(rows: Mapping[str, list[str]]) -> dict[str, tuple[str, str]]:
    return {name: (value, meaning) for name, (value, meaning) in rows.items()}


def pool_name(pool: PoolView, made: Cloud) -> str:
    """The node pool's name as that cloud allows it."""
    return alphanumeric_name(pool.name, made.name_limit) if made.alphanumeric else safe_name(pool.name, made.name_limit)


def disk_gb(view: View, pool: PoolView) -> int:
    """Node disk: 100 GB, and the model caches of the pods on the fullest node, in steps of 50 GB."""
    caches = {unit.deployment.id: cache_gib(unit) for unit in view.of_pool(pool)}
    tenants: dict[int, set[tuple[str, int]]] = {}
    for placement in view.plan.placements:
        if placement.pool == pool.pool.name:
            tenants.setdefault(placement.node, set()).update((s.deployment, s.replica) for s in placement.slots)
    fullest = max((sum(caches.get(name, 0) for name, _ in here) for here in tenants.values()), default=0)
    return math.ceil((DISK_BASE_GB + fullest) / DISK_STEP_GB) * DISK_STEP_GB


def uniform_profile(view: View, pool: PoolView) -> str:
    """The one MIG profile of a pool that is cut at its creation; empty where GPUs stay whole."""
    if pool.platform.mig != "uniform-per-pool":
        return ""
    return next((p for layout in node_layouts(view.plan, pool.pool) for gpu in layout.gpus for p in gpu), "")


def _values(view: View, pool: PoolView, made: Cloud) -> dict[str, str]:
    planned = pool.pool
    profile = uniform_profile(view, pool)
    names = platforms().get(made.accelerator_names)
    known: dict[str, str | int] = {
        "pool": pool_name(pool, made),
        "region": planned.region,
        "machine_type": planned.machine_type,
        "nodes": planned.nodes,
        "nodes_max": max(planned.nodes, planned.nodes_max),
        "gpus_per_node": planned.gpus_per_node,
        "disk_gb": disk_gb(view, pool),
        "label": f"{POOL_LABEL}={pool.name}",
        "label_key": POOL_LABEL,
        "accelerator": names.label_value(planned.accelerator, planned.machine_type) if names else "",
        "ami_type": made.ami_type.get(planned.host_architecture, ""),
    }
    quoted = {name: shlex.quote(visible(str(value))) for name, value in known.items()}
    slices = profile.partition("g.")[0]
    partition = made.partition.format(profile=shlex.quote(profile), slices=shlex.quote(slices)) if profile else ""
    return {**quoted, "partition": partition}


def _purchase(pool: PoolView, made: Cloud) -> Purchase:
    return made.capacity.get(pool.pool.purchase.capacity, Purchase())


def create_command(view: View, pool: PoolView, made: Cloud) -> str:
    """The command that makes one pool, one option a line."""
    values = _values(view, pool, made)
    bought = _purchase(pool, made)
    disk = made.disk.format(**values) if bought.disk else ""
    values |= {"disk": disk, "capacity": bought.options.format(**values)}
    return " \\\n  ".join(text for line in made.create if (text := line.format(**values).strip()))


def purchase_note(view: View, pool: PoolView, made: Cloud) -> str:
    """What else that way to buy needs; may be empty."""
    return _purchase(pool, made).note.format(**_values(view, pool, made))


def remove_command(view: View, pool: PoolView, made: Cloud) -> str:
    """The command that removes one pool."""
    return made.remove.format(**_values(view, pool, made))


def variables(view: View, pools: Iterable[PoolView], made: Cloud) -> tuple[Variable, ...]:
    """What the reader exports before the commands, each once."""
    found: dict[str, Variable] = {}
    for pool in pools:
        values = _values(view, pool, made)
        for name, (value, meaning) in {**made.variables, **_purchase(pool, made).variables}.items():
            found.setdefault(name, Variable(name, value.format(**values), meaning.format(**values)))
    return tuple(found.values())


def software_commands(
    pools: Iterable[PoolView], made: Cloud, *, cut_by_operator: bool, cut_at_creation: bool
) -> tuple[str, ...]:
    """What must run on the nodes before a pod can ask for a GPU; empty where the platform brings it."""
    platform = next(iter(pools)).platform
    values = {
        **versions(),
        "mig_strategy": platform.mig_strategy,
        "reboot": REBOOT if cut_by_operator and platform.mig_needs_reboot else "",
        "plugin_strategy": f" \\\n  --set migStrategy={platform.mig_strategy} --set gfd.enabled=true"
        if cut_at_creation
        else "",
    }
    templates = made.operator if cut_by_operator else made.plain
    return tuple(template.format(**values) for template in templates)
