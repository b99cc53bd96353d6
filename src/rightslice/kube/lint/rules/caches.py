"""Where the weights lie between restarts, and who else mounts the place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rightslice.kube.lint.context import Context
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.rules.lifetime import LONG_DELAY_S, probe
from rightslice.kube.lint.startup import JUDGED, downloads, is_path
from rightslice.kube.lint.values import dig, shown


@rule(
    "RS6416", "warn",
    title="No volume for the weights",
    why="What is downloaded into the container's own file system is gone with the container: each restart "
    "fetches it again.",
    fix="a volume at the cache path (HF_HOME), or weights on a claim",
    evidence=(
        "public manifest: TobiasEdman/des-chatbot, 2026-03",
        "public manifest: HarshithaJ28/llm-infrastructure",
    ),
)  # fmt: skip
def no_cache(context: Context) -> Iterator[Hit]:
    """Engines that fetch from a hub, with nothing mounted where a cache could be."""
    for server in context.servers:
        model = context.model(server)
        if (
            server.engine not in JUDGED
            or server.opaque
            or not server.model
            or is_path(server.model)
            or "$" in server.model
        ):
            continue
        mounts = set(server.container.mounts) - {"/dev/shm", "/tmp"}  # noqa: S108 - mount points
        fetched = server.pod.document.kind in ("InferenceService", "LLMInferenceService")  # by KServe, into its volume
        if not mounts and not fetched and (server.container.accelerators or model is not None):
            amount = f" {(model.weights_bytes or 0) / 1e9:.1f} GB" if model and model.weights_bytes else ""
            message = f"no volume for the weights of {server.model}:{amount} fetched at every restart"
            yield Hit(server.container.document, (*server.container.path, "volumeMounts"), message)


@rule(
    "RS6417", "warn",
    title="The weights lie in an emptyDir and the start has a fixed time",
    why="An emptyDir goes with the pod: each new one downloads again, and a fixed delay must be long enough for that.",
    fix="a claim or hostPath for the cache, and a startupProbe instead of the delay",
    evidence=("public manifest: sozercan/k8s-distributed-inference",),
)  # fmt: skip
def emptydir_cache(context: Context) -> Iterator[Hit]:
    """Together with a probe that waits for the download by a delay."""
    for server in context.servers:
        alive = probe(server.container, "liveness") or probe(server.container, "readiness")
        if (
            server.engine not in JUDGED
            or not server.model
            or is_path(server.model)
            or probe(server.container, "startup")
        ):
            continue
        held = [
            name for path, name in server.container.mounts.items()
            if "emptyDir" in server.pod.volumes.get(name, {}) and path not in ("/dev/shm", "/tmp")  # noqa: S108
            and dig(server.pod.volumes[name], "emptyDir", "medium") != "Memory"
        ]  # fmt: skip
        if held and alive is not None and alive.delay_s >= LONG_DELAY_S and downloads(server):
            message = (
                f"the cache {held[0]} is an emptyDir: each new pod downloads again within the delay of "
                f"{alive.delay_s} s"
            )
            yield Hit(server.container.document, (*server.container.path, "volumeMounts"), message)


@rule(
    "RS6418", "warn",
    title="One claim for several pods",
    why="A ReadWriteOnce claim is mounted by one node at a time: further pods wait, or all land on one node.",
    fix="ReadWriteMany or ReadOnlyMany storage, or a claim for each",
    evidence=("public manifest: mejavsh/vllm-inference-lke", "seen in public manifests"),
)  # fmt: skip
def shared_claim(context: Context) -> Iterator[Hit]:
    """The claim is known to be ReadWriteOnce, or its name says nothing and several workloads here mount it."""
    users: dict[tuple[str, str], list[tuple[object, int]]] = {}
    for pod in context.pods:
        for name, volume in pod.volumes.items():
            claim = shown(dig(volume, "persistentVolumeClaim", "claimName"))
            if (
                claim
                and dig(volume, "persistentVolumeClaim", "readOnly") is not True
                and pod.document.kind != "StatefulSet"
            ):
                key = (pod.namespace, claim)
                modes = _modes(context, *key)
                pods = users.setdefault(key, [])
                pods.append((pod.document, context.most_replicas(pod)))
                path = (*pod.path, "volumes")
                many = len({id(document) for document, _ in pods}) > 1 or pods[-1][1] > 1
                if many and (modes in (["ReadWriteOnce"], ["ReadWriteOncePod"])):
                    message = f"claim {claim} is {modes[0]}, and {name} mounts it in several pods"
                    yield Hit(pod.document, path, message)
                elif _generic(claim) and modes is None and len(pods) == 1 and context.server(pod) and pod.gpus:
                    message = (
                        f"claim {claim}, whose name is no model's own, is mounted for writing: where several "
                        "workloads share it, it must be ReadWriteMany or they land on one node"
                    )
                    yield Hit(pod.document, path, message)


def _generic(claim: str) -> bool:
    """A cache for everybody by its name."""
    return re.fullmatch(r"(?:hf|huggingface|shared|common)-?(?:cache|models|hub|weights)?(?:-pvc)?", claim) is not None


def _modes(context: Context, namespace: str, name: str) -> list[str] | None:
    for document in context.of("PersistentVolumeClaim"):
        if (document.namespace, document.name) == (namespace, name):
            modes = document.get("spec", "accessModes")
            return [shown(mode) for mode in modes] if isinstance(modes, list) else []
    return None
