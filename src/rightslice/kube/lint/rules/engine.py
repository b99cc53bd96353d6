"""What an engine needs around it: versions and flags, shared memory, host memory, sensible parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from rightslice.catalogue.versions import version_key
from rightslice.core.errors import Severity
from rightslice.kube.lint.context import Context, memory_bytes
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.models import GIB, Model, named_model
from rightslice.kube.lint.rules.slices import slice_device
from rightslice.kube.lint.rules.start import hit
from rightslice.kube.lint.servers import Server
from rightslice.kube.lint.startup import JUDGED, downloads, engine_title, memory_volume, too_old_for
from rightslice.kube.lint.values import dig, fields, quantity, text


@rule(
    "RS6107", "info",
    title="A flag that other versions of the engine lack",
    why="Flags come and go with versions; an image that moves takes the server down with it.",
    fix="pin the image, and try the arguments against the next one before moving",
    evidence=(
        "public manifest: jlengelbrecht/prox-ops, 2026-01",
        "public manifest: ArchanaChetan07/ai-inference-observability-platform",
    ),
)  # fmt: skip
def flag_removed(context: Context) -> Iterator[Hit]:
    """Flags with a known end."""
    for server in context.servers:
        for flag, note in _ENDED.get(server.engine, {}).items():
            if flag in server.flags:
                yield hit(server, f"{flag} {note}")


_ENDED = {
    "vllm": {
        "--disable-log-requests": "was renamed: newer versions have --no-enable-log-requests and refuse the old name",
        "--swap-space": "is gone from 0.20 on",
        "--use-v2-block-manager": "is gone with the V0 engine (0.12)",
        "--num-scheduler-steps": "is gone with the V0 engine (0.12)",
        "--speculative-model": "became --speculative-config in 0.8",
    }
}


@rule(
    "RS6108", "error",
    title="The engine is older than the model",
    why="An engine knows only the architectures that existed when it was released.",
    fix="a release made after the model",
    evidence=("a public manifest",),
)  # fmt: skip
def engine_too_old(context: Context) -> Iterator[Hit]:
    """By the family in the model's name."""
    for server in context.servers:
        if family := too_old_for(server):
            message = f"{engine_title(server.engine)} {server.version} predates {family}: it cannot know {server.model}"
            yield Hit(server.container.document, (*server.container.path, "image"), message)


@rule(
    "RS6112", "warn",
    title="Tensor parallelism without shared memory",
    why="NCCL makes segments of several MB in /dev/shm; containers have 64 MB unless a memory volume is mounted there.",
    fix="an emptyDir of medium Memory with a sizeLimit of 2 GiB for each GPU, mounted at /dev/shm",
    evidence=(
        "vllm-project/production-stack#276",
        "sgl-project/sglang#4259",
        "public manifest: mejavsh/vllm-inference-lke",
        "public manifest: sozercan/k8s-distributed-inference",
    ),
)  # fmt: skip
def no_shm(context: Context) -> Iterator[Hit]:
    """Error from models on that cannot do with one GPU."""
    for server in context.servers:
        if server.engine not in JUDGED or server.tensor_parallel < 2 or memory_volume(server) is not None:
            continue
        model = context.model(server)
        needed = model is not None and (model.weights_bytes or 0.0) > 40 * GIB
        message = f"tensor parallel size {server.tensor_parallel} without a /dev/shm volume: NCCL has the default 64 MB"
        severity: Severity = "error" if needed else "warn"
        yield Hit(server.container.document, (*server.container.path, "volumeMounts"), message, "", severity)


@rule(
    "RS6113", "warn",
    title="A variable that the engine does not read",
    why="A misspelt variable is ignored silently.",
    fix="the engine's own name",
    evidence=("public manifest: andrewaddo/gke-vllm-hdml",),
)  # fmt: skip
def unknown_variable(context: Context) -> Iterator[Hit]:
    """Names with the same words as a known one in another order."""
    for server in context.servers:
        names = (*server.container.variables, *server.assigned)
        for name in names:
            words = sorted(name.split("_"))
            meant = next((known for known in _VARIABLES if sorted(known.split("_")) == words), name)
            if server.engine == "vllm" and meant != name:
                yield hit(
                    server, f"{name} is no variable of vLLM and is ignored: {meant} is", f"{meant}, or leave it out"
                )


_VARIABLES = (
    "VLLM_USE_V1", "VLLM_API_KEY", "VLLM_ATTENTION_BACKEND", "VLLM_LOGGING_LEVEL", "VLLM_HOST_IP", "VLLM_CACHE_ROOT",
    "VLLM_WORKER_MULTIPROC_METHOD", "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_ENGINE_READY_TIMEOUT_S",
    "VLLM_NO_USAGE_STATS",
    "VLLM_USE_MODELSCOPE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_RPC_TIMEOUT", "VLLM_SKIP_P2P_CHECK",
)  # fmt: skip


@rule(
    "RS6114", "warn",
    title="Tensor parallelism that is not needed",
    why="A model that fits one device is served cheaper by one: a second one adds traffic and, as a replica of "
    "its own, would double the rate.",
    fix="tensor parallel size 1, and replicas",
    evidence=("public manifest: sozercan/k8s-distributed-inference",),
)  # fmt: skip
def unnecessary_parallelism(context: Context) -> Iterator[Hit]:
    """Small weights beside a large device."""
    for server in context.servers:
        model = context.model(server)
        if server.tensor_parallel < 2 or model is None or not model.weights_bytes:
            continue
        device = context.hardware(server.pod).largest or slice_device(context, server.pod)
        room = device.memory_bytes * 0.9 if device else 16 * GIB
        if model.weights_bytes < 0.65 * room and model.weights_bytes < 10 * GIB:
            on = f"one {device.name}" if device else "one GPU"
            yield hit(server, f"{model.name}: {model.about} fit {on}; tensor parallel size {server.tensor_parallel}")


@rule(
    "RS6115", "error",
    title="The model repository is empty",
    why="Triton serves what lies in its repository; an emptyDir that nothing fills holds no model.",
    fix="a volume with the models, an object store, or an init container that fetches them",
    evidence=("public manifest: notandruu/gpu-inference-platform",),
)  # fmt: skip
def empty_repository(context: Context) -> Iterator[Hit]:
    """An emptyDir, no init container, nothing else that mounts it."""
    for server in context.servers:
        place = server.flags.get("--model-repository", "") or server.flags.get("--model-store", "")
        if server.engine == "triton" and place.startswith("/"):
            folder = place
        elif server.engine == "vllm" and server.model.startswith("/"):
            folder = server.model
        else:
            continue
        pod, container = server.pod, server.container
        volume = pod.mounted(container, folder)
        if volume is None or "emptyDir" not in volume:
            continue
        name = text(volume.get("name"))
        others = [
            c for c in (*pod.containers, *pod.init_containers) if c is not container and name in c.mounts.values()
        ]
        if not others:
            message = f"{folder} is the emptyDir {name}, and nothing fills it: there is no model to serve"
            yield hit(server, message)


@rule(
    "RS6116", "warn",
    title="A very old engine",
    why="Old releases lack years of fixes, scheduling and metric names; their arguments differ from what is "
    "documented.",
    fix="a current release, tried with the same arguments",
    evidence=("public manifest: ArchanaChetan07/ai-inference-observability-platform",),
)  # fmt: skip
def old_engine(context: Context) -> Iterator[Hit]:
    """vLLM before the V1 engine became the default of new installations."""
    for server in context.servers:
        if server.engine == "vllm" and server.version and version_key(server.version) < version_key("0.6.0"):
            message = f"vLLM {server.version} is of the first generation (V0 engine); many of its flags are gone since"
            yield Hit(server.container.document, (*server.container.path, "image"), message)


@rule(
    "RS6117", "warn",
    title="Little host memory to load the weights through",
    why="The page cache of the weights counts against the container's limit; below their size loading slows or "
    "is killed.",
    fix="a memory limit of the weights plus 8 GiB, or a loader that streams",
    evidence=("public manifest: HarshithaJ28/llm-infrastructure",),
)  # fmt: skip
def memory_limit_low(context: Context) -> Iterator[Hit]:
    """Limit below 1.25 x the weights, without a volume that another process filled."""
    for server in context.servers:
        model, limit = context.model(server), memory_bytes(server.container)
        if server.engine not in JUDGED or model is None or not model.weights_bytes or limit is None:
            continue
        if limit < 1.25 * model.weights_bytes and downloads(server) and server.ranks == 1:
            message = (
                f"memory limit {limit / GIB:.0f} GiB against {model.about}: fetching and loading them fills the page "
                "cache, which counts"
            )
            yield Hit(server.container.document, (*server.container.path, "resources", "limits", "memory"), message)


@rule(
    "RS6118", "info",
    title="Less host memory requested than the weights take",
    why="Weights pass through host memory on their way to the GPU; the scheduler promises only what is requested.",
    fix="request what loading takes",
    evidence=("a public manifest",),
)  # fmt: skip
def memory_request_low(context: Context) -> Iterator[Hit]:
    """NIM, whose containers keep the weights on a volume of their own."""
    for server in context.servers:
        asked = memory_bytes(server.container, "requests")
        if server.engine != "nim" or asked is None:
            continue
        model = context.model(server) or _by_image(server)
        if model is not None and model.weights_bytes and asked <= model.weights_bytes:
            message = f"{asked / GIB:.0f} GiB requested, {model.about}"
            yield Hit(server.container.document, (*server.container.path, "resources", "requests", "memory"), message)


def _by_image(server: Server) -> Model | None:
    return named_model(server.container.image.rpartition(":")[0].rpartition("/")[2])


@rule(
    "RS6119", "warn",
    title="Shared memory larger than the memory limit",
    why="What is written to a memory volume counts against the container's limit.",
    fix="a memory limit above the sizeLimit plus the process",
    evidence=("seen in public manifests",),
)  # fmt: skip
def shm_over_limit(context: Context) -> Iterator[Hit]:
    """sizeLimit against limits.memory."""
    for server in context.servers:
        volume, limit = memory_volume(server), memory_bytes(server.container)
        size = quantity(dig(fields(volume), "emptyDir", "sizeLimit"))
        if size is not None and limit is not None and size >= limit:
            message = f"shared memory may grow to {size / GIB:.0f} GiB, the container to {limit / GIB:.0f} GiB in all"
            yield Hit(server.container.document, (*server.container.path, "resources", "limits", "memory"), message)


@rule(
    "RS6120", "info",
    title="A memory fraction near one",
    why="CUDA graphs, NCCL buffers and other processes live in what the fraction leaves.",
    fix="0.90 to 0.92 unless measured",
    evidence=("public manifest: felipemoz/vllm-on-azure",),
)  # fmt: skip
def utilization_high(context: Context) -> Iterator[Hit]:
    """From 0.95 on."""
    for server in context.servers:
        share = server.number("--gpu-memory-utilization")
        if share is not None and 0.95 <= share <= 1.0:
            device = context.hardware(server.pod).largest
            left = (1 - share) * (device.memory_bytes if device else 80 * GIB) / GIB
            of = device.name if device else "80 GB"
            yield hit(server, f"{share:g} leaves {left:.0f} GiB of {of} for CUDA graphs and NCCL")


@rule(
    "RS6121", "info",
    title="More ranks than KV heads",
    why="Beyond the number of KV heads each further rank holds copies: the cache does not grow with the GPUs.",
    fix="as many ranks as KV heads, and replicas beyond",
    evidence=("public manifest: felipemoz/vllm-on-azure",),
)  # fmt: skip
def kv_heads_replicated(context: Context) -> Iterator[Hit]:
    """Grouped-query models; latent caches repeat anyway."""
    for server in context.servers:
        model = context.model(server)
        if model is None or model.architecture is None or server.engine not in JUDGED:
            continue
        heads = max(
            (g.kv_heads for g in model.architecture.attention if g.kind not in ("mla", "linear", "mamba")), default=0
        )
        if 1 < heads < server.tensor_parallel:
            message = (
                f"{heads} KV heads over {server.tensor_parallel} ranks: each head is kept "
                f"{server.tensor_parallel // heads} times"
            )
            yield hit(server, message)
