"""NVIDIA NIM by the operator's custom resources."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rightslice.catalogue.versions import version_key
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.values import Path, Value, dig, entries, fields, shown, text, whole
from rightslice.kube.lint.workloads import MIG

_FIRST_ON_MIG = "1.13.0"
_LLM_PUBLISHERS = (
    "meta/", "mistralai/", "deepseek-ai/", "qwen/", "google/", "microsoft/", "nvidia/llama", "nvidia/nemotron",
)  # fmt: skip
_PROFILE = re.compile(r"[0-9a-f]{64}")


def _services(context: Context) -> Iterator[tuple[Document, Path, Value]]:
    """NIMService specs, those of pipelines as well."""
    for document in context.of("NIMService"):
        yield document, ("spec",), document.get("spec")
    for document in context.of("NIMPipeline"):
        for index, service in enumerate(entries(document.get("spec", "services"))):
            yield document, ("spec", "services", index, "spec"), dig(service, "spec")


@rule(
    "RS6701", "error",
    title="No authSecret",
    why="A NIM fetches its manifest and profiles from NGC when it starts; without the operator's authSecret it "
    "has no key for it.",
    fix="authSecret: the name of a secret with NGC_API_KEY",
    evidence=("NVIDIA/k8s-nim-operator: CRD", "a public manifest"),
)  # fmt: skip
def auth_missing(context: Context) -> Iterator[Hit]:
    """Unless a cache or a volume holds the profile and the variable is given as well."""
    for document, path, spec in _services(context):
        if not text(dig(spec, "authSecret")):
            yield Hit(document, path, "no authSecret: the image cannot fetch its manifest from NGC")


@rule(
    "RS6702", "error",
    title="Fixed replicas and an autoscaler in one NIMService",
    why="The operator's admission rule refuses replicas beside scale.enabled.",
    fix="leave replicas out",
    evidence=("NVIDIA/k8s-nim-operator: CEL rule",),
)  # fmt: skip
def replicas_and_scale(context: Context) -> Iterator[Hit]:
    """Also autoscaling beside several nodes."""
    for document, path, spec in _services(context):
        scaled = dig(spec, "scale", "enabled") is True
        if scaled and whole(dig(spec, "replicas")) is not None:
            yield Hit(document, (*path, "replicas"), "replicas are set and scale.enabled is true: refused")
        if scaled and fields(dig(spec, "multiNode")):
            yield Hit(document, (*path, "scale"), "autoscaling is refused together with multiNode", "leave scale out")


@rule(
    "RS6703", "error",
    title="A profile that is no profile id",
    why="The operator takes ids of the image's manifest: 64 hexadecimal digits, or `all` in a cache.",
    fix="list the image's profiles (list-model-profiles) and name one by its id",
    evidence=("NVIDIA/k8s-nim-operator#407",),
)  # fmt: skip
def profile_id(context: Context) -> Iterator[Hit]:
    """Profiles of a NIMCache."""
    for document in context.of("NIMCache"):
        for index, profile in enumerate(entries(document.get("spec", "source", "ngc", "model", "profiles"))):
            if not _PROFILE.fullmatch(text(profile)) and profile != "all":
                where: Path = ("spec", "source", "ngc", "model", "profiles", index)
                yield Hit(document, where, f'"{shown(profile)}" is no profile id')


@rule(
    "RS6704", "warn",
    title="A model cache for one node, and several replicas",
    why="A ReadWriteOnce cache is mounted by one node at a time: replicas on others wait for it.",
    fix="volumeAccessMode: ReadWriteMany",
    evidence=("NVIDIA/nim-deploy: multi-node sample",),
)  # fmt: skip
def cache_access(context: Context) -> Iterator[Hit]:
    """Access mode of the service's own claim, or of the cache that it names."""
    caches = {document.name: document for document in context.of("NIMCache")}
    for document, path, spec in _services(context):
        most = max(whole(dig(spec, "replicas")) or 1, whole(dig(spec, "scale", "hpa", "maxReplicas")) or 1)
        named = caches.get(text(dig(spec, "storage", "nimCache", "name")))
        mode = text(dig(spec, "storage", "pvc", "volumeAccessMode"))
        if named is not None:
            mode = text(named.get("spec", "storage", "pvc", "volumeAccessMode"))
        if most > 1 and mode == "ReadWriteOnce":
            yield Hit(document, (*path, "storage"), f"{most} replicas share a ReadWriteOnce cache")


@rule(
    "RS6705", "error",
    title="An LLM NIM on a MIG slice that its version does not support",
    why="NIM for LLMs does not support MIG before 1.13.0.",
    fix="NIM 1.13.0 or later, or a whole GPU",
    evidence=("NVIDIA NIM for LLMs: supported models 1.7.0 and 1.13.0",),
)  # fmt: skip
def mig_unsupported(context: Context) -> Iterator[Hit]:
    """LLM images by their publisher or name."""
    for server in context.servers:
        name = server.container.image.partition("nvcr.io/nim/")[2].partition(":")[0]
        llm = name.startswith(_LLM_PUBLISHERS) or "instruct" in name
        sliced = any(resource.startswith(MIG) for resource in server.container.nvidia)
        old = bool(server.version) and version_key(server.version) < version_key(_FIRST_ON_MIG)
        if server.engine == "nim" and llm and sliced and old:
            path = (*server.container.path, "resources")
            yield Hit(server.container.document, path, f"{name} {server.version} on a MIG slice: not supported")
