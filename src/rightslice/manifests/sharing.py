"""What the GPU Operator must be told of GPUs that several pods share: the device plugin's configuration, node by node.

The configuration holds for every GPU of a node; entries for single devices are ignored (k8s-device-plugin#353). It
counts places only: no memory or compute time goes with them, so a request for more than one is refused
(k8s-device-plugin#929). Under MPS each client gets its part of the memory and of the threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rightslice.catalogue.hardware import ON_ONE_GPU
from rightslice.kube.names import safe_name
from rightslice.kube.objects import Json, Metadata, Object, config_map
from rightslice.kube.writer import dump
from rightslice.manifests.partitions import operator_namespace
from rightslice.manifests.view import PoolView, View, plan_labels

NODE_LABEL: Final = "nvidia.com/device-plugin.config"
DEFAULT: Final = "whole"
"""The configuration of nodes without the label: nobody shares."""
FEWEST, MOST = 2, 48
"""Replicas of one GPU that the device plugin accepts; more than 48 only with later CUDA."""
_SECTION: Final = {"time-slicing": "timeSlicing", "mps": "mps"}


@dataclass(frozen=True, slots=True)
class SharedPool:
    """A node pool whose GPUs are all shared alike. `configuration` is also the value of its nodes' label."""

    pool: PoolView
    mode: str
    replicas: int

    @property
    def configuration(self) -> str:
        """`time-slicing-2`."""
        return f"{self.mode}-{self.replicas}"

    @property
    def places(self) -> int:
        """What each node offers."""
        return self.replicas * self.pool.pool.gpus_per_node


def shared_pools(view: View) -> tuple[SharedPool, ...]:
    """The pools whose GPUs are shared."""
    return tuple(
        SharedPool(pool, pool.pool.sharing, next(iter(pool.pool.layouts)).profiles[pool.pool.sharing])
        for pool in view.pools
        if pool.pool.sharing in ON_ONE_GPU
    )


def sharing_map_name(view: View) -> str:
    """The ConfigMap of this plan; the device plugin reads one."""
    return safe_name(f"device-plugin-config-{view.namespace}")


def sharing_config_map(view: View) -> Object | None:
    """One configuration for each way to share, and one for nodes that share nothing; None where nobody shares."""
    pools = shared_pools(view)
    if not pools:
        return None
    configurations: dict[str, Json] = {DEFAULT: {"version": "v1"}}
    for found in pools:
        whole = found.pool.platform.gpu_resource(DEFAULT)
        resources: list[Json] = [{"name": whole, "replicas": found.replicas}]
        section: Json = {"renameByDefault": True, "failRequestsGreaterThanOne": True, "resources": resources}
        configurations[found.configuration] = {"version": "v1", "sharing": {_SECTION[found.mode]: section}}
    metadata = Metadata(sharing_map_name(view), operator_namespace(view), plan_labels(view.plan.name))
    return config_map(metadata, {name: dump(found) for name, found in sorted(configurations.items())})
