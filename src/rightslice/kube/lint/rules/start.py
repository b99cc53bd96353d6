"""Can it start: memory, formats by compute capability and version, legal parallel sizes."""

from __future__ import annotations

from collections.abc import Iterator

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.hardware import Device
from rightslice.core.quantities import format_bytes
from rightslice.kube.lint.context import Context, memory_bytes
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.models import GIB, Model
from rightslice.kube.lint.servers import Server, published
from rightslice.kube.lint.startup import JUDGED, Verdict, engine_title, share_of_device, verdicts
from rightslice.kube.lint.values import quantity

_CARD_CLASSES_GB = (16, 24, 40, 48, 80, 96, 141, 180, 288)
"""Memory of accelerators that are sold, in the steps that people think in."""
_DEAR_SHARE = 0.25
"""Of the weights: a cache of one request that large surprises."""
_UNPINNED_GB = 48
"""A model that needs more on each GPU must say so: most clusters have cards of this size or less."""
_WHOLE_MACHINE = 8
"""GPUs of a machine for large models, whose cards have 80 GB as a rule."""
_UNIFIED = ("Jetson-AGX-Thor", "GB10", "DGX-Spark")
_FIRST_BFLOAT16 = 8.0
_CLASS_8B_KV_BYTES = 131_072
"""Of one token of Llama-3.1-8B in 16 bit: the reference where a server's model is not named."""


def judged(context: Context) -> Iterator[tuple[Server, Model, tuple[Verdict, ...]]]:
    """Servers whose model is known, with the verdict on each device where they may land."""
    for server in context.servers:
        model = context.model(server)
        if model is not None:
            yield server, model, context.verdicts(server)


def hit(server: Server, message: str, fix: str = "") -> Hit:
    """At a server's arguments."""
    return Hit(server.container.document, server.container.args_path, message, fix)


def _per_rank(server: Server, model: Model) -> float:
    """Bytes of weights on each GPU: data-parallel ranks hold all of them, unless the experts are spread over them."""
    granted = max(1, sum(server.container.nvidia.values()))
    spread = server.weight_ranks if server.engine in JUDGED else granted
    return (model.weights_bytes or 0.0) / spread


def _usable(server: Server, device: Device) -> float:
    return (share_of_device(server) or 0.95) * device.memory_bytes


@rule(
    "RS6101", "error",
    title="The weights do not fit",
    why="An engine loads all weights of its rank before it serves; where they do not fit it crashes, again and again.",
    fix="a GPU with more memory, more tensor parallelism, or weights of fewer bits",
    evidence=("vllm-project/vllm#10517", "public manifest: TobiasEdman/des-chatbot, 2026-03"),
)  # fmt: skip
def weights_do_not_fit(context: Context) -> Iterator[Hit]:
    """Weights of one rank against the usable memory of the largest device where the pod may land."""
    for server in context.servers:
        model = context.model(server)
        quantised = server.engine == "tgi" and (
            "--quantize" in server.flags or "QUANTIZE" in server.container.variables
        )
        tpu = any("tpu" in name for name in server.container.accelerators)
        elsewhere = quantised or tpu or {"--cpu-offload-gb", "--cpu-offload"} & set(server.flags)
        if model is None or not model.weights_bytes or server.engine not in (*JUDGED, "llamacpp", "tgi") or elsewhere:
            continue
        each, hardware = _per_rank(server, model), context.hardware(server.pod)
        shared = context.shared(server.container)
        split = (
            f" at tensor parallel size {server.tensor_parallel}: {each / GIB:.1f} GiB each" if server.ranks > 1 else ""
        )
        if hardware.largest is not None:
            device, room = hardware.largest, _usable(server, hardware.largest)
            if shared and shared[0].mode == "mps" and shared[1].replicas:
                room = device.memory_bytes / shared[1].replicas
            if each > room:
                message = (
                    f"{model.about}{split}; {device.name} gives {room / GIB:.1f} of its "
                    f"{device.memory_bytes / GIB:.1f} GiB"
                )
                yield hit(server, f"{message}: cannot start", _smaller(server, model, device))
        elif not hardware.pinned or each > _CARD_CLASSES_GB[-1] * 1e9:
            yield from _unpinned(server, model, each, split)


def _unpinned(server: Server, model: Model, each: float, split: str) -> Iterator[Hit]:
    """Nothing says on what it runs, and only large cards hold it."""
    share = share_of_device(server) or 0.95
    enough = next((gb for gb in _CARD_CLASSES_GB if gb * GIB * 0.99 * share > each), None)
    if enough is None:
        message = f"{model.about}{split}: no accelerator holds that, not with {_CARD_CLASSES_GB[-1]} GB"
        yield hit(server, message, "more tensor parallelism, over several nodes if need be")
    elif enough > (_UNPINNED_GB if sum(server.container.nvidia.values()) < _WHOLE_MACHINE else _CARD_CLASSES_GB[4]):
        message = (
            f"{model.about}{split}: only accelerators of {enough} GB and more hold that, those of "
            f"{_UNPINNED_GB} GB and less cannot start it, and nothing here selects the GPU"
        )
        yield hit(server, message, "select nodes by their GPU, or name what there is: --accelerator H100-SXM-80GB")


def _smaller(server: Server, model: Model, device: Device) -> str:
    """The first way out that fits: fewer bits, then more GPUs."""
    room = _usable(server, device)
    for precision, title in (("fp8", "8-bit"), ("int4", "4-bit")):
        amount = model.in_precision(precision) / server.weight_ranks
        if amount and precision != model.precision and amount < room * 0.9:
            if precision == "fp8" and device.accelerator.compute_capability.startswith(("6", "7")):
                continue
            return f"a {title} checkpoint of it: about {amount / GIB:.1f} GiB"
    needed = next((n for n in (2, 4, 8, 16) if n > server.ranks and (model.weights_bytes or 0) / n < room * 0.9), None)
    return f"tensor parallel size {needed}" if needed else "a smaller model, or a larger accelerator"


@rule(
    "RS6102", "error",
    title="No room for the KV cache of one full request",
    why="vLLM and others refuse to start when the longest allowed context does not fit into the cache beside "
    "the weights.",
    fix="a smaller --max-model-len, a higher memory fraction, an FP8 cache, or more GPUs",
    evidence=("vllm-project/vllm#10517", "public manifest: dapperdivers/dapper-cluster, 2026-05"),
)  # fmt: skip
def context_too_long(context: Context) -> Iterator[Hit]:
    """The start-up verdict, where the weights alone would fit."""
    for server, model, found in judged(context):
        reports = [verdict.report for verdict in found if verdict.report]
        if not reports or len(reports) < len(found) or any(verdict.starts for verdict in found):
            continue
        if all(_per_rank(server, model) > _usable(server, verdict.device) for verdict in found):
            continue
        if all(report.verdict == "does_not_start" for report in reports):
            best = max(reports, key=lambda report: report.kv_cache_bytes)
            length = best.max_model_len_that_fits
            most = f"; {length:,} tokens would fit" if length else ""
            yield hit(server, f"does not start on {found[0].device.name}: {best.reason}{most}", best.fix)
    yield from _unnamed_models(context)


def _unnamed_models(context: Context) -> Iterator[Hit]:
    """Servers that load models on demand: the cache alone, of a model of the 8B class."""
    for server in context.servers:
        if server.engine != "ollama":
            continue
        environment = server.container.environment
        tokens, parallel = (quantity(environment.get(f"OLLAMA_{name}")) for name in ("NUM_CTX", "NUM_PARALLEL"))
        tokens = tokens or quantity(environment.get("OLLAMA_CONTEXT_LENGTH"))
        device = context.hardware(server.pod).largest
        if not tokens or device is None:
            continue
        halved = {"q8_0": 2, "q4_0": 4}.get(environment.get("OLLAMA_KV_CACHE_TYPE", ""), 1)
        needed = tokens * max(1.0, parallel or 1.0) * _CLASS_8B_KV_BYTES / halved
        if needed > device.memory_bytes:
            message = (
                f"{tokens:,.0f} tokens of context for {parallel or 1:.0f} requests take {needed / GIB:.0f} GiB "
                f"of KV cache with a model of the 8B class (128 KiB a token in 16 bit); {device.name} has "
                f"{device.memory_bytes / GIB:.1f}: layers fall back to the CPU"
            )
            path = (*server.container.path, "env")
            yield Hit(server.container.document, path, message, "a context of 8,192 to 32,768 tokens")


@rule(
    "RS6103", "error",
    title="The card does not compute in this format",
    why="bfloat16 needs compute capability 8.0; on older cards old engines refuse, newer ones fall back to float16 and "
    "their compiled kernels may still crash.",
    fix="--dtype half",
    evidence=(
        "vllm-project/vllm#1157",
        "vllm-project/vllm#1153",
        "public manifest: TobiasEdman/des-chatbot, 2026-03",
        "public manifest: adityonugrohoid/gpu-autoscale-inference, 2026-03",
    ),
)  # fmt: skip
def dtype_unsupported(context: Context) -> Iterator[Hit]:
    """Error where the engine refuses or compiles for the format; a warning where it only falls back."""
    for server, model, found in judged(context):
        capability = context.hardware(server.pod).capability
        problems = [verdict.dtype_problem for verdict in found]
        if problems and all(problems):
            yield hit(server, f"{problems[0]} (compute capability {capability})")
        elif (
            server.engine == "vllm" and capability is not None and capability < _FIRST_BFLOAT16
            and "--dtype" not in server.flags and model.architecture is not None
            and model.architecture.published_dtype == "bf16"
        ):  # fmt: skip
            message = (
                f"{model.name} is published in bfloat16, the card has compute capability {capability} and needs "
                "float16: old engines refuse, newer ones fall back"
            )
            eager = "--enforce-eager" in server.flags
            compiled = "" if eager else ", and what torch.compile makes for it may crash"
            path = server.container.args_path
            fix = (
                "--dtype half" if eager else "--dtype half --enforce-eager, with a pinned image that supports the card"
            )
            yield Hit(server.container.document, path, message + compiled, fix, "warn" if eager else "error")


@rule(
    "RS6104", "error",
    title="The parallel size is illegal for this model",
    why="Attention heads, KV heads and quantisation groups must divide by the tensor parallel size; the engine refuses "
    "before it loads anything.",
    fix="a tensor parallel size that divides the heads",
    evidence=("vllm-project/vllm#2652", "vllm-project/vllm#4232", "vllm-project/vllm#17569"),
)  # fmt: skip
def illegal_parallelism(context: Context) -> Iterator[Hit]:
    """By the model's own dimensions."""
    for server, model, found in judged(context):
        asked = found or (verdicts(server, model, _any_device()) if server.ranks > 1 else ())
        problems = [verdict.parallel_problem for verdict in asked]
        if problems and all(problems):
            report = next((verdict.report for verdict in asked if verdict.report), None)
            yield hit(server, f"{model.name}: {problems[0]}", report.fix if report else "")


def _any_device() -> tuple[Device, ...]:
    """Large enough that only the sizes count."""
    return (device("B300-SXM-270GB"),)


@rule(
    "RS6105", "error",
    title="Parallel sizes and GPUs differ",
    why="A rank needs a GPU of its own: with fewer the engine waits or crashes, with more they stand idle and "
    "are paid.",
    fix="limits of nvidia.com/gpu equal to tensor x pipeline x data parallel size",
    evidence=("seen in public manifests",),
)  # fmt: skip
def gpu_count(context: Context) -> Iterator[Hit]:
    """Ranks against GPUs of the container; groups of pods and external launchers left out."""
    for server in context.servers:
        grouped = server.pod.document.kind in ("LeaderWorkerSet", "RayService", "RayCluster", "StatefulSet")
        several = {"--nnodes", "--node-rank", "--data-parallel-size-local", "--dist-init-addr", "--headless", "--omni"}
        if server.engine not in JUDGED or server.opaque or grouped or several & set(server.flags):
            continue
        granted = sum(n for name, n in server.container.nvidia.items())
        if server.flags.get("--distributed-executor-backend") == "ray" or not granted or granted == server.ranks:
            continue
        if "$" in " ".join(server.words):
            continue
        if granted < server.ranks:
            message = (
                f"{server.ranks} ranks (tensor x pipeline x data parallel) on {granted} GPUs: the engine cannot start"
            )
            yield hit(server, message)
        elif server.engine in ("vllm", "sglang"):
            idle = granted - server.ranks
            message = f"{granted} GPUs are requested, the engine uses {server.ranks}: {idle} stand idle"
            fix = f"--tensor-parallel-size {granted}, or {server.ranks} GPUs"
            yield Hit(server.container.document, server.container.args_path, message, fix, "warn")


@rule(
    "RS6106", "error",
    title="The engine refuses its arguments",
    why="Engines read their command line strictly: an argument that another engine has, or a value out of range, ends "
    "the process before the model is looked at.",
    fix="the engine's own spelling",
    evidence=("engine argument tables of the catalogue",),
)  # fmt: skip
def engine_refuses(context: Context) -> Iterator[Hit]:
    """What the reader of `size --engine-args` refuses, and formats that the version has no code for."""
    for server, _, found in judged(context):
        refusals = [verdict.refusal for verdict in found if verdict.refusal]
        known = bool(server.version) or published(server.container.image)
        if refusals and len(refusals) == len(found):
            if not known:
                continue  # an image of somebody's own may hold any version
            yield hit(server, f"{engine_title(server.engine)}: {refusals[0].message}", refusals[0].hint)
            continue
        refused = [verdict for verdict in found if verdict.report and verdict.report.verdict == "refused"]
        plain = [v for v in refused if not v.dtype_problem and not v.parallel_problem]
        if plain and len(plain) == len(found) and "slice" not in str(plain[0].report and plain[0].report.reason):
            report = plain[0].report
            yield hit(server, f"refuses to start: {report.reason if report else ''}", report.fix if report else "")


@rule(
    "RS6109", "warn",
    title="It may just fit, or just not",
    why="The margin is smaller than what drivers, graphs and versions move.",
    fix="a little less context, or a little more memory",
    evidence=("start-up logs behind `size --engine`",),
)  # fmt: skip
def just_fits(context: Context) -> Iterator[Hit]:
    """The start-up verdict `uncertain` on every device."""
    for server, _, found in judged(context):
        reports = [verdict.report for verdict in found if verdict.report]
        if reports and len(reports) == len(found) and all(report.verdict == "uncertain" for report in reports):
            yield hit(server, f"{found[0].device.name}: {reports[0].reason}", reports[0].fix)


@rule(
    "RS6110", "warn",
    title="GPU and host share one memory",
    why="On unified memory the engine's fraction, the page cache and the pod's limit all come out of the same DRAM.",
    fix="a memory limit above fraction x memory plus the process itself, and a fraction that leaves room for others",
    evidence=("public manifest: Angel-FulFilment-Services/Angel-Intelligence, 2026-02",),
)  # fmt: skip
def unified_memory(context: Context) -> Iterator[Hit]:
    """The engine's share against the pod's limit."""
    for server in context.servers:
        device, share = context.hardware(server.pod).largest, share_of_device(server)
        if device is None or share is None or device.accelerator.name not in _UNIFIED:
            continue
        taken = share * device.accelerator.advertised_memory_bytes / GIB * 1e9
        limit = memory_bytes(server.container)
        if limit is not None and limit < taken * 1.2:
            message = (
                f"{share:g} of the unified memory of {device.name} are {taken / 1e9:.0f} GB, the pod may take "
                f"{format_bytes(limit, binary=True)} in all: GPU share, page cache and process compete"
            )
            yield hit(server, message)


@rule(
    "RS6111", "warn",
    title="The longest context is left to the model",
    why="Without --max-model-len the engine reserves for the model's own maximum, which may be most of the card.",
    fix="--max-model-len with the longest request that is served",
    evidence=("public manifest: HarshithaJ28/llm-infrastructure",),
)  # fmt: skip
def default_context(context: Context) -> Iterator[Hit]:
    """Where one request of the model's own length takes gigabytes and nobody said which card it meets."""
    for server in context.servers:
        model = context.model(server)
        if server.engine not in ("vllm", "sglang") or model is None or model.architecture is None or server.opaque:
            continue
        if {"--max-model-len", "--context-length"} & set(server.flags):
            continue
        length = model.architecture.context_max or 0
        each = model.architecture.cache_elements_per_token() * 2
        hardware = context.hardware(server.pod)
        dear = length * each > _DEAR_SHARE * (model.weights_bytes or 0.0) and length * each / server.ranks > 3 * GIB
        if dear and not hardware.devices:
            message = (
                f"no --max-model-len: {length:,} tokens x {each / 1024:.0f} KiB = {length * each / GIB:.1f} GiB "
                "of cache for one request"
            )
            yield hit(server, message)
