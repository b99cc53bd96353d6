"""The plan as the emitters read it: every name, label and resource decided once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rightslice.catalogue.accelerators import accelerator
from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
from rightslice.catalogue.platforms import Platform, platforms
from rightslice.core.plan import Autoscaling, Deployment, Plan, PlannedModel, Pool
from rightslice.kube.names import label_value, namespace_name, safe_name, service_name, slug, unique_names
from rightslice.manifests.launch import ImageRule, Launch, image_rule, launch
from rightslice.manifests.layout import node_layouts
from rightslice.manifests.mirrors import AS_PUBLISHED, Mirrors

POOL_LABEL: Final = "rightslice/pool"
ROLE_LABEL: Final = "rightslice/role"
WORKER_ROLE: Final = "worker"
PLACEHOLDER_REGISTRY: Final = "example.invalid"
PLACEHOLDER_TAG: Final = "set-me"

_GROUP_NAME_LIMIT: Final = 45
"""A LeaderWorkerSet's name and a 10-character revision hash and two indices must fit a 63-character label value."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where pools live together: one Kubernetes cluster per provider, region and platform."""

    provider: str
    region: str
    platform: str


@dataclass(frozen=True, slots=True)
class PoolView:
    """One node pool with its platform. `name` is what it is called and the value of its label.

    A pool of the plan is one node pool, except where the platform cuts all GPUs of a node pool alike: there it is one
    for each `profile` (empty: whole GPUs).
    """

    pool: Pool
    platform: Platform
    name: str
    cluster: Cluster
    nodes: int
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """One deployment of one model: a Deployment, or a LeaderWorkerSet where a replica spans several nodes.

    `scaling`: the autoscaler that changes its size. `image`: as published.
    """

    plan: str
    namespace: str
    model: PlannedModel
    deployment: Deployment
    pool: PoolView
    name: str
    image: str
    pods_per_replica: int
    spare: bool
    scaling: Autoscaling | None = None
    mirrors: Mirrors = AS_PUBLISHED

    @property
    def pulled_image(self) -> str:
        """The image as nodes pull it."""
        return self.image if self.needs_image else self.mirrors.image(self.image)

    @property
    def launch(self) -> Launch:
        """What its engine needs beside the arguments."""
        return launch(self.deployment.engine.name)

    @property
    def rule(self) -> ImageRule | None:
        """What its image needs."""
        return image_rule(self.image)

    @property
    def gpus_per_pod(self) -> int:
        """GPUs or slices that one pod asks for."""
        return self.deployment.gpus_per_replica // self.pods_per_replica

    @property
    def grouped(self) -> bool:
        """Whether one replica is a group of pods."""
        return self.pods_per_replica > 1

    @property
    def needs_image(self) -> bool:
        """Whether the reader has to say which image serves the model."""
        return self.image.startswith(f"{PLACEHOLDER_REGISTRY}/")

    @property
    def weights_bytes(self) -> int:
        """Weights of one whole replica; 0 where the plan does not know them."""
        memory = self.deployment.memory
        return memory.weights_bytes * self.deployment.gpus_per_replica if memory else 0

    @property
    def resource(self) -> str:
        """The extended resource that its pods ask for."""
        vendor = accelerator(self.pool.pool.accelerator).vendor
        return self.pool.platform.gpu_resource(self.deployment.partition, vendor)

    @property
    def service(self) -> str:
        """The Service in front of it. Deployments of one model and role share one."""
        role = self.deployment.role
        return service_name(self.model.name if role == "unified" else f"{self.model.name}-{role}")

    def selector(self) -> dict[str, str]:
        """Labels that tell its pods from all others; immutable once applied, hence few."""
        return {"app.kubernetes.io/name": label_value(self.model.name), "app.kubernetes.io/instance": self.name}

    def labels(self) -> dict[str, str]:
        """Labels of its objects."""
        return {**model_labels(self.plan, self.model), **self.selector()}

    def pod_labels(self, *, worker: bool = False) -> dict[str, str]:
        """Labels of its pods. Workers of a group carry another role, so that no Service sends requests to them."""
        return {**self.labels(), ROLE_LABEL: WORKER_ROLE if worker else self.deployment.role}


@dataclass(frozen=True, slots=True)
class View:
    """The whole plan, resolved. `skipped` says which deployments are not emitted, and why."""

    plan: Plan
    namespace: str
    pools: tuple[PoolView, ...]
    units: tuple[Unit, ...]
    skipped: Mapping[str, str]

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters in the order of their first pool."""
        return tuple(dict.fromkeys(pool.cluster for pool in self.pools))

    def restricted(self, cluster: Cluster) -> View:
        """The part of the plan that runs in one cluster."""
        pools = tuple(pool for pool in self.pools if pool.cluster == cluster)
        units = tuple(unit for unit in self.units if unit.pool.cluster == cluster)
        return View(self.plan, self.namespace, pools, units, self.skipped)

    def folder(self, cluster: Cluster) -> str:
        """Where its files lie: at the top, or in a folder of its own where the plan spans several clusters."""
        return "" if len(self.clusters) == 1 else f"{slug(f'{cluster.provider}-{cluster.region}-{cluster.platform}')}/"

    def of_model(self, model: PlannedModel) -> tuple[Unit, ...]:
        """The deployments of one model."""
        return tuple(unit for unit in self.units if unit.model is model)

    def of_pool(self, pool: PoolView) -> tuple[Unit, ...]:
        """The deployments on one pool."""
        return tuple(unit for unit in self.units if unit.pool is pool)


def plan_labels(plan: str) -> dict[str, str]:
    """Labels of everything that belongs to the plan."""
    return {"app.kubernetes.io/part-of": label_value(plan), "app.kubernetes.io/managed-by": "rightslice"}


def model_labels(plan: str, model: PlannedModel) -> dict[str, str]:
    """Labels of everything that belongs to one model."""
    own = {"app.kubernetes.io/name": label_value(model.name), "app.kubernetes.io/component": label_value(model.task)}
    return {**own, **plan_labels(plan)}


def pool_views(plan: Plan) -> tuple[PoolView, ...]:
    """Every node pool under a name of plan, machine and profile, short and different from the others'."""
    parts = [(pool, profile, nodes) for pool in plan.pools for profile, nodes in _parts(plan, pool)]
    wanted: list[str] = []
    for pool, profile, _ in parts:
        cut = f"-{profile or WHOLE}" if len(_parts(plan, pool)) > 1 else ""
        wanted.append(f"{plan.name}-{pool.machine_type}{cut}")
    numbered = [
        f"{text}-{wanted[: index + 1].count(text)}" if wanted.count(text) > 1 else text
        for index, text in enumerate(wanted)
    ]
    names = unique_names(numbered)
    return tuple(
        PoolView(
            pool=pool,
            platform=platforms()[pool.platform],
            name=names[text],
            cluster=Cluster(pool.provider, pool.region, pool.platform),
            nodes=nodes,
            profile=profile,
        )
        for (pool, profile, nodes), text in zip(parts, numbered, strict=True)
    )


def _parts(plan: Plan, pool: Pool) -> list[tuple[str, int]]:
    """(profile, nodes) of the node pools that one pool becomes."""
    layouts = node_layouts(plan, pool)
    if platforms()[pool.platform].mig != "uniform-per-pool" or not any(layout.sliced for layout in layouts):
        return [("", pool.nodes)]
    parts: dict[str, int] = {}
    for layout in layouts:
        profile = next(iter(layout.gpus[0]), "")
        parts[profile] = parts.get(profile, 0) + layout.nodes
    return list(parts.items())


def pool_of(deployment: Deployment, pools: Sequence[PoolView]) -> PoolView:
    """The node pool that a deployment runs on: the part of its pool with its partition."""
    parts = [view for view in pools if view.pool.name == deployment.pool]
    profile = deployment.partition if is_slice(deployment) else ""
    return next((view for view in parts if view.profile == profile), parts[0])


def image_of(model: PlannedModel, deployment: Deployment) -> str:
    """The plan's image, or a name that cannot be pulled until the reader sets the real one."""
    return deployment.engine.image or f"{PLACEHOLDER_REGISTRY}/{safe_name(model.name)}:{PLACEHOLDER_TAG}"


def unit_name(deployment: Deployment, *, grouped: bool) -> str:
    """The workload's name. A LeaderWorkerSet makes a headless Service of its own name: it must not be the model's."""
    return safe_name(f"{deployment.id}-group", _GROUP_NAME_LIMIT) if grouped else safe_name(deployment.id)


def is_local(source: str) -> bool:
    """Whether the model is named by a path of the planner's machine, which no pod can see."""
    return source.startswith(("/", "./", "../", "~")) or source.endswith(".json")


def weights_path(model: PlannedModel) -> str:
    """Where a pod finds weights that the reader provides."""
    return f"/models/{safe_name(model.name)}"


def is_slice(deployment: Deployment) -> bool:
    """Whether it runs on MIG slices."""
    return deployment.partition != WHOLE and not is_shared(deployment)


def is_shared(deployment: Deployment) -> bool:
    """Whether other pods run on its GPUs."""
    return deployment.partition in ON_ONE_GPU


def namespace_of(plan: Plan) -> str:
    """The namespace that the plan gets for itself."""
    return namespace_name(plan.name)
