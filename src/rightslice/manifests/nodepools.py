"""Commands that make, prepare and remove node pools."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rightslice.catalogue.platforms import platforms
from rightslice.core.text import visible
from rightslice.kube.names import alphanumeric_name, safe_name
from rightslice.manifests.clouds import Cloud, Purchase, cloud, versions
from rightslice.manifests.pods import cache_gib
from rightslice.manifests.view import POOL_LABEL, PoolView, View

DISK_BASE_GB: Final = 100
"""Operating system and images: a vLLM image takes 28.6 GB unpacked (vLLM pull request 22377), speech images 19 GB and
more; 100 GB is also the default of GKE."""

DISK_STEP_GB: Final = 50
OWNED_PLATFORM: Final = "on-prem"
REBOOT: Final = " \\\n  --set 'migManager.env[0].name=WITH_REBOOT' --set-string 'migManager.env[0].value=true'"


@dataclass(frozen=True, slots=True)
class Variable:
    """What the reader exports: the value where the plan knows it, and what it is."""

    name: str
    value: str
    meaning: str


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


def _values(view: View, pool: PoolView, made: Cloud) -> dict[str, str]:
    """What the templates may name, safe in a shell. `n1-standard-8+1xT4` is an `n1-standard-8` with an accelerator."""
    planned = pool.pool
    profile = pool.profile
    names = platforms().get(made.accelerator_names)
    known: dict[str, str | int] = {
        "pool": pool_name(pool, made),
        "region": planned.region,
        "machine_type": planned.machine_type.partition("+")[0],
        "nodes": pool.nodes,
        "nodes_min": 0 if _scaled(view, pool) else pool.nodes,
        "nodes_max": pool.nodes + max(0, planned.nodes_max - planned.nodes),
        "gpus_per_node": planned.gpus_per_node,
        "disk_gb": disk_gb(view, pool),
        "label": f"{POOL_LABEL}={pool.name}",
        "label_key": POOL_LABEL,
        "accelerator": names.label_value(planned.accelerator, planned.machine_type) if names else "",
        "suffix": f"_{view.pools.index(pool) + 1}" if len(view.pools) > 1 else "",
        "ami_type": made.ami_type.get(planned.host_architecture, ""),
    }
    quoted = {name: shlex.quote(text) if (text := visible(str(value))) else "" for name, value in known.items()}
    slices = profile.partition("g.")[0]
    partition = made.partition.format(profile=shlex.quote(profile), slices=shlex.quote(slices)) if profile else ""
    return {**quoted, "partition": partition}


def _scaled(view: View, pool: PoolView) -> bool:
    """Whether an autoscaler changes what runs on it, so that its nodes have to follow."""
    return any(unit.scaling for unit in view.of_pool(pool))


def _templates(pool: PoolView, made: Cloud) -> tuple[Cloud, Purchase]:
    """Templates and purchase of one pool. Owned machines are there already; nothing is bought a second time."""
    capacity = pool.pool.purchase.capacity
    used = cloud(OWNED_PLATFORM) or made if capacity == "owned" else made
    return used, used.capacity.get(capacity, used.capacity.get("on_demand", Purchase()))


def create_command(view: View, pool: PoolView, made: Cloud) -> str:
    """The command that makes one pool, one option a line."""
    used, bought = _templates(pool, made)
    values = _values(view, pool, used)
    disk = used.disk.format(**values) if bought.disk else ""
    values |= {"disk": disk, "capacity": bought.options.format(**values)}
    lines = [
        *used.create,
        *([used.scaling] if _scaled(view, pool) and pool.pool.purchase.capacity != "flex_start" else []),
    ]
    return " \\\n  ".join(text for line in lines if (text := line.format(**values).strip()))


def purchase_note(view: View, pool: PoolView, made: Cloud) -> str:
    """What else that way to buy needs; may be empty."""
    return _templates(pool, made)[1].note.format(**_values(view, pool, made))


def remove_command(view: View, pool: PoolView, made: Cloud) -> str:
    """The command that removes one pool."""
    used, _ = _templates(pool, made)
    return used.remove.format(**_values(view, pool, used))


def variables(view: View, made: Cloud) -> tuple[Variable, ...]:
    """What the reader exports before the commands, each once."""
    found: dict[str, Variable] = {}
    for pool in view.pools:
        used, bought = _templates(pool, made)
        values = _values(view, pool, used)
        for template, (value, meaning) in {**made.variables, **used.variables, **bought.variables}.items():
            name = template.format(**values)
            found.setdefault(name, Variable(name, value.format(**values), meaning.format(**values)))
    return tuple(found.values())


def software_commands(
    pools: Iterable[PoolView], made: Cloud, *, cut_by_operator: bool, shared: bool, cut_at_creation: bool
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
    templates = made.operator if cut_by_operator or shared else made.plain
    return tuple(template.format(**values) for template in templates)
