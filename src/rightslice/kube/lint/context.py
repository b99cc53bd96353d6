"""All that is linted together, read once: what the rules look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.hardware import Hardware, hardware_of
from rightslice.kube.lint.models import Model, model_of
from rightslice.kube.lint.schema import Problem, problems
from rightslice.kube.lint.servers import Server, server_of
from rightslice.kube.lint.sharing import MigEntry, SharedResource, Sharing, mig_entries, sharing_of, strategies
from rightslice.kube.lint.startup import Verdict, verdicts
from rightslice.kube.lint.values import dig, entries, fields, quantity, shown, text, walk, whole
from rightslice.kube.lint.workloads import GPU, MIG, Container, Pod, pods_of


@dataclass(frozen=True, eq=False)
class Context:
    """`default_accelerator`: where the manifests do not say on what they run."""

    documents: Sequence[Document]
    default_accelerator: str = ""
    _hardware: dict[int, Hardware] = field(default_factory=dict, repr=False)
    _models: dict[int, Model | None] = field(default_factory=dict, repr=False)
    _schemas: dict[int, list[Problem]] = field(default_factory=dict, repr=False)
    _verdicts: dict[int, tuple[Verdict, ...]] = field(default_factory=dict, repr=False)

    def schema_problems(self, document: Document) -> list[Problem]:
        """What the API server would refuse about it."""
        if id(document) not in self._schemas:
            self._schemas[id(document)] = problems(document)
        return self._schemas[id(document)]

    def of(self, *kinds: str) -> Iterator[Document]:
        """The objects of some kinds."""
        return (document for kind in kinds for document in self._by_kind.get(kind, ()))

    @cached_property
    def _by_kind(self) -> Mapping[str, list[Document]]:
        found: dict[str, list[Document]] = {}
        for document in self.objects:
            found.setdefault(document.kind, []).append(document)
        return found

    @cached_property
    def objects(self) -> tuple[Document, ...]:
        """Kubernetes objects."""
        return tuple(document for document in self.documents if document.is_object)

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """Every pod template."""
        return tuple(pods_of(self.objects))

    @cached_property
    def servers(self) -> tuple[Server, ...]:
        """Every engine that some container starts."""
        found = (server_of(pod, container) for pod in self.pods for container in pod.containers)
        return tuple(server for server in found if server is not None)

    def server(self, pod: Pod) -> Server | None:
        """The first engine of a pod."""
        return self._first_servers.get(id(pod))

    @cached_property
    def _first_servers(self) -> Mapping[int, Server]:
        return {id(server.pod): server for server in reversed(self.servers)}

    def server_in(self, container: Container) -> Server | None:
        """The engine of a container."""
        return self._by_container.get(id(container))

    @cached_property
    def _by_container(self) -> Mapping[int, Server]:
        return {id(server.container): server for server in self.servers}

    def model(self, server: Server) -> Model | None:
        """What it loads."""
        if id(server) not in self._models:
            self._models[id(server)] = model_of(server)
        return self._models[id(server)]

    def verdicts(self, server: Server) -> tuple[Verdict, ...]:
        """Whether it starts, on each GPU of NVIDIA where it may land; none where its memory is not known."""
        model = self.model(server)
        if id(server) not in self._verdicts:
            devices = tuple(seen for seen in self.hardware(server.pod).devices if seen.accelerator.vendor == "nvidia")
            self._verdicts[id(server)] = verdicts(server, model, devices) if model else ()
        return self._verdicts[id(server)]

    def hardware(self, pod: Pod) -> Hardware:
        """Where it may land."""
        if id(pod) not in self._hardware:
            self._hardware[id(pod)] = hardware_of(pod, self.node_pools, self.default_accelerator)
        return self._hardware[id(pod)]

    @cached_property
    def node_pools(self) -> tuple[Document, ...]:
        """Karpenter pools and GKE compute classes."""
        return tuple(self.of("NodePool", "ComputeClass"))

    @cached_property
    def sharing(self) -> tuple[Sharing, ...]:
        """Configurations that share GPUs."""
        return tuple(sharing_of(self.documents))

    @cached_property
    def mig(self) -> tuple[MigEntry, ...]:
        """MIG layouts."""
        return tuple(mig_entries(self.documents))

    @cached_property
    def mig_strategy(self) -> str:
        """`mixed`, `single`, `none`, or empty where nothing or several things are said."""
        found = {strategy for _, _, strategy in strategies(self.documents)}
        return next(iter(found)) if len(found) == 1 else ""

    def shared(self, container: Container) -> tuple[Sharing, SharedResource] | None:
        """How the GPU that a container asks for is shared."""
        for name in container.nvidia:
            for sharing in self.sharing:
                resource = sharing.of(name)
                if resource is not None:
                    return sharing, resource
        return None

    def limit_range_gpu(self, namespace: str) -> Document | None:
        """The LimitRange that gives a GPU to containers that name none."""
        for document in self.of("LimitRange"):
            for limit in map(fields, entries(document.get("spec", "limits"))):
                given = whole(dig(limit, "default", GPU)) or whole(dig(limit, "defaultRequest", GPU))
                if limit.get("type") == "Container" and given and document.namespace == namespace:
                    return document
        return None

    def gpus_granted(self, container: Container, pod: Pod) -> int:
        """NVIDIA GPUs or slices that it gets, by default ones of its namespace too."""
        granted = sum(container.nvidia.values())
        return granted or (1 if self.limit_range_gpu(pod.namespace) else 0)

    @cached_property
    def services(self) -> tuple[Document, ...]:
        """Core services."""
        return tuple(document for document in self.of("Service") if document.api_version == "v1")

    def selects(self, service: Document, pod: Pod) -> bool:
        """Whether a service sends traffic to a pod."""
        selector = fields(service.get("spec", "selector"))
        same = service.namespace == pod.namespace
        return bool(selector) and same and all(pod.labels.get(key) == value for key, value in selector.items())

    @cached_property
    def scalers(self) -> tuple[Scaler, ...]:
        """Every autoscaler of replicas."""
        return tuple(_scalers(self))

    def target(self, scaler: Scaler) -> Pod | None:
        """The pod template that it multiplies."""
        kind, name, namespace = scaler.target
        named = self._named_pods.get((kind, name), [])
        here = [pod for pod in named if pod.namespace == namespace]
        if not here and len(named) == 1 and "" in (namespace, named[0].namespace):
            return named[0]
        return here[0] if here else None

    @cached_property
    def _named_pods(self) -> Mapping[tuple[str, str], list[Pod]]:
        found: dict[tuple[str, str], list[Pod]] = {}
        for pod in self.pods:
            found.setdefault((pod.document.kind, pod.document.name), []).append(pod)
        return found

    def scaler(self, pod: Pod) -> Scaler | None:
        """What scales it."""
        return self._scaler_of.get(id(pod))

    @cached_property
    def _scaler_of(self) -> Mapping[int, Scaler]:
        targets = ((self.target(scaler), scaler) for scaler in reversed(self.scalers))
        return {id(pod): scaler for pod, scaler in targets if pod is not None}

    def most_replicas(self, pod: Pod) -> int:
        """As many as its autoscaler or itself may have."""
        scaler = self.scaler(pod)
        return max(pod.replicas, pod.most or 0, (scaler.most or 0) if scaler else 0)

    @cached_property
    def made_metrics(self) -> frozenset[str]:
        """Names that recording rules and adapter rules in the set give."""
        found: set[str] = set()
        for document in self.documents:
            for _, value in walk(document.value):
                if isinstance(value, dict) and ("record" in value or "as" in value):
                    found |= {text(value.get("record")), text(value.get("as"))}
        return frozenset(found - {""})


def platforms_of(pod: Pod) -> frozenset[str]:
    """Platforms whose labels a pod's selector or tolerations bear."""
    keys = [*pod.node_labels, *(text(found.get("key")) for found in pod.tolerations)]
    marks = {"gke": "cloud.google.com/", "eks": "eks.amazonaws.com/", "aks": "kubernetes.azure.com/"}
    return frozenset(name for name, mark in marks.items() if any(key.startswith(mark) for key in keys))


@dataclass(frozen=True, slots=True)
class Scaler:
    """An HPA or ScaledObject. `target`: (kind, name, namespace)."""

    document: Document
    target: tuple[str, str, str]
    least: int | None
    most: int | None

    @property
    def keda(self) -> bool:
        """Whether it is a ScaledObject."""
        return self.document.kind == "ScaledObject"

    @property
    def behavior(self) -> Mapping[str, object]:
        """The block that says how fast it may change."""
        if self.keda:
            return fields(self.document.get("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior"))
        return fields(self.document.get("spec", "behavior"))


def _scalers(context: Context) -> Iterator[Scaler]:
    for document in context.of("HorizontalPodAutoscaler", "ScaledObject"):
        reference = fields(document.get("spec", "scaleTargetRef"))
        kind = shown(reference.get("kind")) or "Deployment"
        names = (
            ("minReplicaCount", "maxReplicaCount")
            if document.kind == "ScaledObject"
            else ("minReplicas", "maxReplicas")
        )
        least, most = (whole(document.get("spec", name)) for name in names)
        yield Scaler(document, (kind, shown(reference.get("name")), document.namespace), least, most)


def memory_bytes(container: Container, kind: str = "limits") -> float | None:
    """Host memory that it may take or asks for."""
    return quantity(container.resource(kind, "memory"))


def is_slice(container: Container) -> bool:
    """Whether it asks for MIG slices by name."""
    return any(name.startswith(MIG) for name in container.nvidia)
