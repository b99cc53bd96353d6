"""What the GPU Operator must be told: the MIG layout of every node, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rightslice.kube.names import safe_name
from rightslice.kube.objects import Json, Metadata, Object, config_map, resource_quota
from rightslice.kube.writer import dump
from rightslice.manifests.clouds import cloud
from rightslice.manifests.layout import Cut, NodeLayout, node_layouts
from rightslice.manifests.view import PoolView, View, plan_labels

CONFIG_KEY: Final = "config.yaml"
DISABLED: Final = "all-disabled"


@dataclass(frozen=True, slots=True)
class NamedLayout:
    """One node layout of one pool under the name that is also the value of the node label `nvidia.com/mig.config`."""

    pool: PoolView
    name: str
    layout: NodeLayout


def named_layouts(view: View) -> tuple[NamedLayout, ...]:
    """The layouts of every pool that the MIG Manager cuts; pools that stay whole have none."""
    found: list[NamedLayout] = []
    for pool in view.pools:
        layouts = node_layouts(view.plan, pool.pool)
        if pool.platform.mig != "any-layout" or not any(layout.sliced for layout in layouts):
            continue
        found += [
            NamedLayout(pool, safe_name(f"{pool.name}-layout-{number}"), layout)
            for number, layout in enumerate(layouts, start=1)
        ]
    return tuple(found)


def operator_namespace(view: View) -> str:
    """Where the GPU Operator of this cluster lives."""
    made = cloud(view.pools[0].pool.platform)
    return made.operator_namespace if made else "gpu-operator"


def config_map_name(view: View) -> str:
    """The ConfigMap of this plan; the GPU Operator reads one at a time."""
    return safe_name(f"mig-config-{view.namespace}")


def mig_config_map(view: View) -> Object | None:
    """The ConfigMap for the MIG Manager; None where nothing is cut by it.

    The key `config.yaml` and the configuration `all-disabled` are the operator's conventions (GPU Operator MIG page).
    """
    layouts = named_layouts(view)
    if not layouts:
        return None
    whole: Json = [{"devices": "all", "mig-enabled": False}]
    configurations: dict[str, Json] = {DISABLED: whole}
    configurations |= {named.name: _devices(named.layout.gpus) for named in layouts}
    text = dump({"version": "v1", "mig-configs": configurations})
    metadata = Metadata(config_map_name(view), operator_namespace(view), plan_labels(view.plan.name))
    return config_map(metadata, {CONFIG_KEY: text})


def critical_pods_quota(view: View) -> Object:
    """Leave for the operator's pods to use system priority classes, which Google Cloud otherwise keeps to itself.

    GPU Operator documentation, Google GKE page.
    """
    classes: Json = ["system-node-critical", "system-cluster-critical"]
    scope: Object = {"scopeName": "PriorityClass", "operator": "In", "values": classes}
    metadata = Metadata("gpu-operator-quota", operator_namespace(view), plan_labels(view.plan.name))
    return resource_quota(metadata, {"hard": {"pods": 100}, "scopeSelector": {"matchExpressions": [scope]}})


def _devices(gpus: Sequence[Cut]) -> list[Json]:
    """mig-parted entries; neighbours that are cut alike together. A GPU without an entry would keep its old cut."""
    entries: list[Json] = []
    for cut, group in groupby(range(len(gpus)), key=lambda gpu: dict(gpus[gpu])):
        entry: dict[str, Json] = {"devices": list(group), "mig-enabled": bool(cut)}
        if cut:
            entry["mig-devices"] = cut
        entries.append(entry)
    return entries
