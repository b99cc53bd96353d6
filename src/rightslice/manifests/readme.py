"""README.md of the tree: what is here, what to do in which order, and why the objects look as they do."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Final

from rightslice.core.quantities import format_bytes, format_usd
from rightslice.core.text import plural
from rightslice.manifests.autoscalers import ADAPTER_VALUES, scaled_units
from rightslice.manifests.components.choose import (
    COMPONENTS_FOLDER,
    OVERLAYS_FOLDER,
    about,
    components,
    overlays,
    taken,
)
from rightslice.manifests.evaluate import EVALUATION_FOLDER, evaluations
from rightslice.manifests.partitions import named_layouts
from rightslice.manifests.pods import cache_gib, shm_gib, stop
from rightslice.manifests.prose import plain
from rightslice.manifests.sharing import shared_pools
from rightslice.manifests.steps import steps, undo
from rightslice.manifests.timing import startup_budget_s
from rightslice.manifests.view import Unit, View, is_slice
from rightslice.manifests.workloads import predicted_rate

MIN_KUBERNETES: Final = "1.30"
"""First version with the `sleep` action of preStop switched on."""


def readme(view: View) -> str:
    """The page, Markdown."""
    parts = [
        f"# {plain(view.plan.name)} on Kubernetes",
        _summary(view),
        "## What runs",
        _runs(view),
        "## Files",
        _files(view),
        *_before(view),
        *_steps(view),
        "## What is downloaded",
        _downloads(view),
        "## Why the objects look like this",
        _reasons(view),
        "## Components and overlays",
        _components(view),
        "## Not emitted yet",
        _missing(view),
        *_warnings(view),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(view: View) -> str:
    cost = view.plan.monthly_usd
    price = f" It costs {format_usd(cost.value)} a month at prices of {plain(cost.price_date)}." if cost else ""
    nodes = sum(pool.nodes for pool in view.pools)
    return (
        f"Namespace `{view.namespace}`: {plural(len(view.units), 'workload')} on {plural(nodes, 'GPU node')}.{price}"
        " Every number here"
        " comes from the plan. To change one, change the workload and plan again, or patch it with your own overlay."
    )


def _runs(view: View) -> str:
    rows = ["| model | workload | replicas | each asks for | node pool | predicted |", "|---|---|---|---|---|---|"]
    for unit in view.units:
        kind = "LeaderWorkerSet" if unit.grouped else "Deployment"
        pods = f"{unit.pods_per_replica} pods with " if unit.grouped else ""
        asks = f"{pods}{unit.gpus_per_pod} × {unit.resource}"
        rate = predicted_rate(unit.deployment) or "no load planned"
        rows.append(
            f"| {plain(unit.model.name)} | {kind} `{unit.name}` | {_size(unit)} | {asks} "
            f"| `{unit.pool.name}` | {plain(rate)} |"
        )
    return "\n".join(rows)


def _size(unit: Unit) -> str:
    if unit.scaling is None:
        return str(unit.deployment.replicas.steady)
    return f"{unit.scaling.min_replicas} to {unit.scaling.max_replicas}"


def _files(view: View) -> str:
    lines = [
        "- `kustomization.yaml`: everything; `all.yaml`: the same objects in one stream",
        "- `base/`: the namespace, and a folder per model with workload, Service, ServiceAccount and disruption budget",
    ]
    if named_layouts(view):
        lines.append("- `gpu-operator/`: how the GPU Operator cuts the GPUs of each node")
    if shared_pools(view):
        lines.append("- `gpu-operator/`: how the GPU Operator's device plugin shares the GPUs of each node")
    if lowered := evaluations(view):
        names = ", ".join(f"`{plain(name)}`" for name in lowered)
        lines.append(
            f"- `{EVALUATION_FOLDER}/`: a Job for {names}, whose weights are lowered while loading. It compares the "
            "answers with the original's, is not applied with the rest, and needs the GPUs that its note names"
        )
    if any(scaling.kind == "hpa" for _, scaling in scaled_units(view)):
        lines.append(
            f"- `{ADAPTER_VALUES}`: where the metrics of the autoscalers come from, for Helm; not applied by itself"
        )
    if len(view.clusters) > 1:
        folders = ", ".join(f"`{view.folder(cluster)}`" for cluster in view.clusters)
        lines.append(f"- the plan spans several clusters, each with these files in a folder of its own: {folders}")
    return "\n".join(lines)


def _before(view: View) -> list[str]:
    asked = [
        f"- [ ] {request.kind}: {plain(request.subject)}, {plain(request.amount)} ({plain(request.reason)})"
        for request in view.plan.requests_to_make
    ]
    needs = (
        f"- [ ] a cluster of Kubernetes {MIN_KUBERNETES} or later, `kubectl`, `helm` and the command line of the cloud"
    )
    return ["## Before you start", "\n".join([*asked, needs])]


def _steps(view: View) -> list[str]:
    parts: list[str] = []
    for cluster in view.clusters:
        part, folder = view.restricted(cluster), view.folder(cluster)
        where = f" ({cluster.provider}, {cluster.region})" if folder else ""
        parts += [f"## Steps{plain(where)}", "Run them in this folder.", *steps(part, folder)]
        parts += [f"## Roll back and remove{plain(where)}", undo(part, folder)]
    return parts


def _downloads(view: View) -> str:
    """Images and weights, for sites without internet."""
    rows = ["| what | from | size |", "|---|---|---|"]
    for image in dict.fromkeys(unit.pulled_image for unit in view.units):
        published = next(unit.image for unit in view.units if unit.pulled_image == image)
        rows.append(f"| image | `{image}`{'' if image == published else f' (published as `{published}`)'} | |")
    for source, size in dict.fromkeys((unit.model.source, unit.weights_bytes) for unit in view.units):
        if source:
            rows.append(f"| weights | `{plain(source)}` | {format_bytes(size) if size else 'not known'} |")
    how = (
        "Where nodes reach no registry or no hub: copy these, then `rightslice emit PLAN -o DIR --registry-prefix "
        "registry.example/ai --hub-endpoint https://hub.example`."
    )
    return "\n".join([*rows, "", how])


def _reasons(view: View) -> str:
    text = (files("rightslice.manifests") / "data" / "reasons.md").read_text(encoding="utf-8")
    return text.rstrip().format(
        budgets=_each(view, lambda unit: f"{startup_budget_s(unit.weights_bytes)} s"),
        stops=_each(view, lambda unit: f"{stop(unit).pre_stop_s} s + {stop(unit).drain_s} s + {stop(unit).exit_s} s"),
        spares=_each(view, lambda unit: "room for one more" if unit.spare else "no room"),
        caches=_each(view, lambda unit: f"{cache_gib(unit)} GiB"),
        shared=_each(view, lambda unit: f"{shm_gib(unit)} GiB" if shm_gib(unit) else "default"),
    )


def _each(view: View, say: Callable[[Unit], str]) -> str:
    """`600 s` where all workloads agree, else `llm 900 s, asr 600 s`."""
    found = {unit.name: say(unit) for unit in view.units}
    values = list(dict.fromkeys(found.values()))
    return "".join(values) if len(values) < 2 else ", ".join(f"{name} {value}" for name, value in found.items())


def _missing(view: View) -> str:
    lines = [f"- `{name}`: {plain(reason)}" for name, reason in view.skipped.items()]
    if any(unit.grouped for unit in view.units):
        lines.append("- RDMA devices: the nodes of one replica talk over TCP until you add your network's resource")
    if not all(unit.scaling for unit in view.units):
        kept = [f"`{unit.name}`" for unit in view.units if not unit.scaling]
        whose = f" of {', '.join(kept)}" if len(kept) < len(view.units) else ""
        lines.append(f"- autoscaling: replicas{whose} stay at the planned count")
    lines.append("- authentication of clients, certificates, and whatever fills `components/` of your cluster needs")
    return "\n".join(lines)


def _components(view: View) -> str:
    """What is not part of `kustomization.yaml`, because clusters have it or need other software for it."""
    made = components(view)
    rows = [f"- `{COMPONENTS_FOLDER}/{c.name}/`: {c.about}. Needs {c.needs}." for c in made]
    for name in overlays():
        names = ", ".join(f"`{component.name}`" for component in taken(name, made))
        rows.append(f"- `{OVERLAYS_FOLDER}/{name}/`: all of the plan with {names}: {about(name)}")
    first = (
        "`kustomization.yaml` and `all.yaml` hold what was planned. Components add what many clusters have already:"
        " take an overlay instead (`kubectl apply -k overlays/gke`), or name components in your own. The sizes are"
        " those of the plan; on another platform than the plan's, machines and their prices are not what was planned."
    )
    return "\n".join([first, "", *rows])


def _warnings(view: View) -> list[str]:
    lines = [f"- {warning.code} {plain(warning.subject)}: {plain(warning.message)}" for warning in view.plan.warnings]
    for pool in view.pools:
        sizes = sorted({unit.gpus_per_pod for unit in view.of_pool(pool) if not is_slice(unit.deployment)})
        if len(sizes) > 1:
            lines.append(
                f"- Pool `{pool.name}` carries pods of {' and '.join(map(str, sizes))} GPUs. The scheduler may scatter"
                " the small ones so that no node keeps room for a large one: apply the large ones first."
            )
    return ["## Watch out", "\n".join(lines)] if lines else []
