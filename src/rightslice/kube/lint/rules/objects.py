"""Objects as such: schemas, references inside a set, names and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from rightslice.kube.lint.context import Context
from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.finding import Check, Hit, rule
from rightslice.kube.lint.schema import Fault
from rightslice.kube.lint.values import dig, entries, fields, placeholder, shown, text, walk, whole

_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_PATCH = re.compile(r"(?:^|[-_.])patch(?:es)?(?:$|[-_.])")
_MOST_CONFIG_BYTES = 1_048_576
_WORKLOADS = frozenset({
    "Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "LeaderWorkerSet",
})  # fmt: skip
"""Kinds to whose pods no operator adds volumes."""
_PARTIAL = frozenset({"ClusterPolicy"})
"""Kinds that people write as patches: what is missing is taken from the object in the cluster."""


def _against_schema(fault: Fault) -> Check:
    def check(context: Context) -> Iterator[Hit]:
        for document in context.objects:
            if _is_patch(document) or (document.kind in _PARTIAL and fault == "missing"):
                continue
            for problem in context.schema_problems(document):
                if problem.fault == fault:
                    yield Hit(document, problem.path, problem.message, problem.hint)

    return check


def _is_patch(document: Document) -> bool:
    """A part of an object, by its directive or the name of its file or folder."""
    return document.get("$patch") is not None or any(map(_PATCH.search, PurePath(document.file).parts))


_EVIDENCE = ("schemas of Kubernetes 1.37 and of the custom resources' projects",)
rule(
    "RS6001", "error",
    title="A field that the kind does not have",
    why="The API server refuses it, or drops it silently: what it should have done does not happen.",
    fix="the field's right name, or leave it out",
    evidence=(*_EVIDENCE, "public manifest: nbethala/triton-mlops-gpu-platform"),
)(_against_schema("unknown"))  # fmt: skip
rule(
    "RS6002", "error",
    title="A value of the wrong type",
    why="The API server refuses the object.",
    fix="a value of the type that the field takes",
    evidence=(*_EVIDENCE, "a public manifest"),
)(_against_schema("type"))  # fmt: skip
rule(
    "RS6003", "error",
    title="A field that is required is missing",
    why="The API server refuses the object.",
    fix="add it",
    evidence=_EVIDENCE,
)(_against_schema("missing"))  # fmt: skip
rule(
    "RS6004", "error",
    title="A value that the field does not take",
    why="The API server refuses the object.",
    fix="one of the values that are allowed",
    evidence=_EVIDENCE,
)(_against_schema("value"))  # fmt: skip


@rule(
    "RS6011", "error",
    title="The selector does not match the pods",
    why="The API server refuses a workload whose selector differs from the labels of its own template.",
    fix="the same labels in spec.selector.matchLabels and in the template",
    evidence=("schema validators let it pass",),
)  # fmt: skip
def selector_mismatch(context: Context) -> Iterator[Hit]:
    """matchLabels against the template."""
    for pod in context.pods:
        document = pod.document
        if document.kind not in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"):
            continue
        wanted = fields(document.get("spec", "selector", "matchLabels"))
        missing = {key: value for key, value in wanted.items() if pod.labels.get(key) != value}
        if missing:
            key, value = next(iter(missing.items()))
            message = (
                f"selector wants {key}: {shown(value)}, the template has "
                f"{shown(pod.labels.get(key)) or 'no such label'}"
            )
            yield Hit(document, ("spec", "selector"), message)


@rule(
    "RS6012", "error",
    title="A mount without a volume",
    why="The API server refuses a pod that mounts what it does not declare.",
    fix="a volume of that name",
    evidence=("schema validators let it pass",),
)  # fmt: skip
def volume_missing(context: Context) -> Iterator[Hit]:
    """volumeMounts against volumes and claim templates."""
    for pod in context.pods:
        claims = (value for path, value in walk(pod.document.value) if path[-1:] == ("volumeClaimTemplates",))
        templates = [template for value in claims for template in entries(value)]
        known = {*pod.volumes, *(text(dig(template, "metadata", "name")) for template in templates)}
        if pod.document.kind not in _WORKLOADS:
            continue
        for container in (*pod.containers, *pod.init_containers):
            for index, mount in enumerate(map(fields, entries(container.value.get("volumeMounts")))):
                name = text(mount.get("name"))
                if name and name not in known:
                    message = f"{container.name} mounts {name}, the pod has no such volume"
                    yield Hit(pod.document, (*container.path, "volumeMounts", index), message)


@rule(
    "RS6013", "error",
    title="The service points at a port that its pods do not have",
    why="A target port by name that no container declares leaves the service without endpoints.",
    fix="the name of a container's port, or its number",
    evidence=("seen in public manifests",),
)  # fmt: skip
def service_port(context: Context) -> Iterator[Hit]:
    """Named target ports of services whose pods are here."""
    for service in context.services:
        pods = [pod for pod in context.pods if context.selects(service, pod)]
        declared = {
            text(fields(entry).get("name"))
            for pod in pods for container in pod.containers for entry in entries(container.value.get("ports"))
        }  # fmt: skip
        for index, port in enumerate(map(fields, entries(service.get("spec", "ports")))):
            target = port.get("targetPort")
            named = isinstance(target, str) and whole(target) is None and not placeholder(target)
            if pods and named and target not in declared:
                message = (
                    f"targetPort {shown(target)}: no container of {pods[0].document.name} declares a port of that name"
                )
                yield Hit(service, ("spec", "ports", index, "targetPort"), message)


@rule(
    "RS6014", "error",
    title="A probe asks a port by a name that does not exist",
    why="The kubelet cannot resolve it: the probe fails for ever.",
    fix="the name of one of the container's ports",
    evidence=("seen in public manifests",),
)  # fmt: skip
def probe_port(context: Context) -> Iterator[Hit]:
    """Against the container's own ports."""
    for pod in context.pods:
        for container in pod.containers:
            declared = {text(fields(entry).get("name")) for entry in entries(container.value.get("ports"))}
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                for handler in ("httpGet", "tcpSocket"):
                    port = dig(container.value, kind, handler, "port")
                    if isinstance(port, str) and whole(port) is None and port not in declared:
                        message = f"{kind} asks port {port[:40]}, which {container.name} does not declare"
                        yield Hit(pod.document, (*container.path, kind, handler, "port"), message)


@rule(
    "RS6015", "error",
    title="A label value that is not allowed",
    why="Label values have at most 63 letters, digits, `-`, `_` and `.`, and begin and end with a letter or digit.",
    fix="shorten it, or make it an annotation",
    evidence=("Kubernetes: labels and selectors",),
)  # fmt: skip
def label_value(context: Context) -> Iterator[Hit]:
    """Labels of objects and of pod templates."""
    for document in context.objects:
        places = [
            ("metadata", "labels"),
            ("spec", "template", "metadata", "labels"),
            ("spec", "selector", "matchLabels"),
        ]
        for path in places:
            for key, value in fields(document.get(*path)).items():
                if isinstance(value, str) and not _LABEL.fullmatch(value) and not placeholder(value):
                    yield Hit(
                        document, (*path, key), f'label {key}: "{value[:40]}" ({len(value)} characters) is refused'
                    )


@rule(
    "RS6016", "error",
    title="A ConfigMap larger than 1 MiB",
    why="The API server refuses it.",
    fix="a volume, an image, or several ConfigMaps",
    evidence=("Kubernetes: ConfigMaps",),
)  # fmt: skip
def config_map_size(context: Context) -> Iterator[Hit]:
    """data and binaryData together."""
    for document in context.of("ConfigMap"):
        parts = (*fields(document.get("data")).values(), *fields(document.get("binaryData")).values())
        size = sum(len(part.encode("utf-8", "replace")) for part in parts if isinstance(part, str))
        if size > _MOST_CONFIG_BYTES:
            yield Hit(document, ("data",), f"{size / 2**20:.1f} MiB of data; the limit is 1 MiB")
