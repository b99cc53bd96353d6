"""Pods in whatever object they are described: workloads, KServe, LeaderWorkerSet, NIM, operators' own kinds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.values import Path, Value, dig, entries, fields, shown, text, walk, whole

GPU: Final = "nvidia.com/gpu"
MIG: Final = "nvidia.com/mig-"
_ACCELERATORS: Final = re.compile(
    r"nvidia\.com/.+|amd\.com/gpu|gpu\.intel\.com/.+|google\.com/tpu|aws\.amazon\.com/neuron.*|habana\.ai/.+|"
    r"cloud-tpus\.google\.com/.+|.*/(?:gpu|vgpu|npu)(?:[-.].*)?|aliyun\.com/gpu.*|huawei\.com/.+"
)
_FRACTIONS: Final = ("gpu-fraction", "gpu-memory", "runai/", "nvidia.com/gpumem", "hami.io/", "volcano.sh/gpu")
_NOT_PODS: Final = ("CustomResourceDefinition", "ConfigMap", "Secret")


@dataclass(frozen=True, eq=False)
class Container:
    """One container. `image` is composed where a custom resource splits it."""

    document: Document
    path: Path
    value: Mapping[str, Value]
    init: bool = False

    @property
    def name(self) -> str:
        """As written; the object's where the container has none."""
        return shown(self.value.get("name")) or self.document.name

    @cached_property
    def image(self) -> str:
        """Image reference; empty where none is given."""
        image = self.value.get("image")
        if isinstance(image, Mapping):
            repository, tag = shown_long(image.get("repository")), shown_long(image.get("tag"))
            return f"{repository}:{tag}" if tag else repository
        return shown_long(image)

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """Variables with a literal value."""
        listed = (fields(entry) for entry in entries(self.value.get("env")))
        return {text(entry.get("name")): shown_long(entry["value"]) for entry in listed if "value" in entry}

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of all variables, those from secrets included."""
        return tuple(text(fields(entry).get("name")) for entry in entries(self.value.get("env")))

    def resource(self, kind: str, name: str) -> Value:
        """`limits` or `requests` of a resource."""
        return dig(self.value, "resources", kind, name)

    @cached_property
    def accelerators(self) -> Mapping[str, int]:
        """Extended resources of accelerators with their counts, limits before requests; none of count 0."""
        found: dict[str, int] = {}
        for kind in ("limits", "requests"):
            for name, amount in fields(dig(self.value, "resources", kind)).items():
                count = whole(amount)
                if _ACCELERATORS.fullmatch(name) and count:
                    found.setdefault(name, count)
        return found

    @property
    def nvidia(self) -> Mapping[str, int]:
        """Of these, NVIDIA's GPUs and MIG slices."""
        return {name: n for name, n in self.accelerators.items() if name.startswith((GPU, MIG))}

    @property
    def claims(self) -> bool:
        """Whether it takes devices by dynamic resource allocation."""
        return bool(entries(dig(self.value, "resources", "claims")))

    @property
    def mounts(self) -> Mapping[str, str]:
        """Mount path -> volume."""
        listed = (fields(entry) for entry in entries(self.value.get("volumeMounts")))
        return {text(entry.get("mountPath")): text(entry.get("name")) for entry in listed}

    @property
    def command_words(self) -> tuple[str, ...]:
        """`command` and `args`, numbers as text."""
        return tuple(
            shown_long(word) for word in (*entries(self.value.get("command")), *entries(self.value.get("args")))
        )

    @property
    def args_path(self) -> Path:
        """Where its arguments are written."""
        return (*self.path, "args" if self.value.get("args") else "command" if self.value.get("command") else "image")


@dataclass(frozen=True, eq=False)
class Pod:
    """One pod template. `replicas`: as written or the kind's default; `most`: what its own object may scale it to."""

    document: Document
    path: Path
    spec: Mapping[str, Value]
    labels: Mapping[str, Value]
    annotations: Mapping[str, Value]
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    replicas: int
    least: int | None = None
    most: int | None = None

    @property
    def namespace(self) -> str:
        """Of its object."""
        return self.document.namespace

    @property
    def gpus(self) -> int:
        """NVIDIA GPUs or slices of all its containers."""
        return sum(sum(container.nvidia.values()) for container in self.containers)

    @property
    def accelerated(self) -> bool:
        """Whether some container is granted an accelerator of any kind, in whatever way."""
        if any(c.accelerators or c.claims for c in self.containers) or entries(self.spec.get("resourceClaims")):
            return True
        marks = (*self.annotations, *self.labels)
        return any(mark.startswith(_FRACTIONS) for mark in marks)

    @property
    def volumes(self) -> Mapping[str, Mapping[str, Value]]:
        """Name -> volume."""
        return {text(fields(entry).get("name")): fields(entry) for entry in entries(self.spec.get("volumes"))}

    def mounted(self, container: Container, path: str) -> Mapping[str, Value] | None:
        """The volume that holds `path` in a container: the longest mount above it; None where it is in the image."""
        above = [at for at in container.mounts if at and (path == at or path.startswith(at.rstrip("/") + "/"))]
        return self.volumes.get(container.mounts[max(above, key=len)], {}) if above else None

    @cached_property
    def node_labels(self) -> Mapping[str, tuple[str, ...]]:
        """Labels that its nodes must have: key -> values that will do, from the selector and required affinity."""
        found: dict[str, tuple[str, ...]] = {}
        for key, value in fields(self.spec.get("nodeSelector")).items():
            found[key] = (shown(value),)
        required = dig(self.spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        for term in entries(fields(required).get("nodeSelectorTerms")):
            for match in map(fields, entries(fields(term).get("matchExpressions"))):
                if match.get("operator") == "In":
                    values = tuple(shown(value) for value in entries(match.get("values")))
                    found[text(match.get("key"))] = (*found.get(text(match.get("key")), ()), *values)
        return found

    @property
    def tolerations(self) -> tuple[Mapping[str, Value], ...]:
        """As written."""
        return tuple(fields(entry) for entry in entries(self.spec.get("tolerations")))

    def tolerates(self, key: str, value: str = "", effect: str = "NoSchedule") -> bool:
        """Whether a taint keeps it off no node."""
        for found in self.tolerations:
            if found.get("effect") not in (None, "", effect):
                continue
            if found.get("operator") == "Exists" and found.get("key") in (None, "", key):
                return True
            if found.get("key") == key and found.get("operator") != "Exists" and shown(found.get("value")) == value:
                return True
        return False

    @property
    def grace_s(self) -> int | None:
        """Termination grace as written; None: the default of 30 s."""
        return whole(self.spec.get("terminationGracePeriodSeconds"))


def shown_long(value: Value) -> str:
    """A scalar as text, however long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def pods_of(documents: Iterable[Document]) -> Iterator[Pod]:
    """Every pod template of every object."""
    for document in documents:
        if not document.is_object or document.kind in _NOT_PODS:
            continue
        if document.kind in ("NIMService", "NIMPipeline"):
            yield from _nim(document)
            continue
        for path, value in walk(document.value):
            if isinstance(value, Mapping) and _holds_containers(document, path, value):
                yield _pod(document, path, value)


def _holds_containers(document: Document, path: Path, value: Mapping[str, Value]) -> bool:
    listed = entries(value.get("containers"))
    if any(isinstance(entry, Mapping) and ("image" in entry or "name" in entry) for entry in listed):
        return path[-1:] in (("spec",), ("predictor",), ("template",), ("worker",), ("prefill",), ("podSpec",))
    return document.kind == "InferenceService" and path[-1:] == ("predictor",) and bool(fields(value.get("model")))


def _pod(document: Document, path: Path, spec: Mapping[str, Value]) -> Pod:
    marks = fields(dig(document.value, *path[:-1], "metadata")) if path[-1:] == ("spec",) else {}
    if document.kind != "Pod" and path == ("spec",):
        marks = fields(document.get("metadata"))
    containers = tuple(_containers(document, (*path, "containers"), spec.get("containers"), init=False))
    model = fields(spec.get("model"))
    if model and not containers:
        containers = (Container(document, (*path, "model"), model),)
    least, most = whole(spec.get("minReplicas")), whole(spec.get("maxReplicas"))
    default = 1 if least is None else least
    replicas = whole(document.get("spec", "replicas"))
    return Pod(
        document=document,
        path=path,
        spec=spec,
        labels=fields(marks.get("labels")),
        annotations=fields(marks.get("annotations")),
        containers=containers,
        init_containers=tuple(_containers(document, (*path, "initContainers"), spec.get("initContainers"), init=True)),
        replicas=default if replicas is None else replicas,
        least=least,
        most=most,
    )


def _containers(document: Document, path: Path, value: Value, *, init: bool) -> Iterator[Container]:
    for index, entry in enumerate(entries(value)):
        if isinstance(entry, Mapping):
            yield Container(document, (*path, index), entry, init)


def _nim(document: Document) -> Iterator[Pod]:
    """A NIMService is one container; a pipeline has several services."""
    services = [("spec",)] if document.kind == "NIMService" else [
        ("spec", "services", index, "spec") for index in range(len(entries(document.get("spec", "services"))))
    ]  # fmt: skip
    for path in services:
        spec = fields(document.get(*path))
        scale = fields(dig(spec, "scale", "hpa"))
        yield Pod(
            document=document,
            path=path,
            spec=spec,
            labels=fields(spec.get("labels")),
            annotations=fields(spec.get("annotations")),
            containers=(Container(document, path, spec),),
            init_containers=(),
            replicas=whole(spec.get("replicas")) or 1,
            least=whole(scale.get("minReplicas")),
            most=whole(scale.get("maxReplicas")),
        )
