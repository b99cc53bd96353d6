"""The formats in which an engine computes and keeps its cache: what it is told, or what it chooses by itself."""

from __future__ import annotations

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engine_arguments import engine_arguments
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import Device
from rightslice.memory.precision import compute_capability
from rightslice.memory.problems import Problem

_SPELLED = {"bf16": "bfloat16", "fp16": "half", "fp32": "float32"}
_PLAIN = ("fp32", "bf16", "fp16")
_POOLING = ("encoder", "vision")
_FIRST_BFLOAT16 = 8.0
_ANY_WIDTH = ("compressed-tensors", "torchao")


def chosen(architecture: Architecture, device: Device, engine_name: str, version: str, asked: str) -> str:
    """The format of computation: `asked`, else that of the checkpoint.

    fp32 is lowered to bfloat16, models that pool to float16; a format that device or model cannot use gives way to the
    next (vLLM 0.32: _resolve_auto_dtype). SGLang takes float16 below compute capability 8.0 whatever was asked.
    """
    rules = engine_arguments(engine_name).compute
    lacking = lacks_bfloat16(device)
    if lacking and rules.half_always:
        return "fp16"
    if asked:
        return asked
    half = architecture.family not in rules.no_half
    fallback = ("fp16" if half else "fp32") if lacking else "bf16"
    published = architecture.published_dtype if architecture.published_dtype in _PLAIN else "bf16"
    if published == "fp32":
        return "fp16" if architecture.kind in _POOLING and half else fallback
    if published == "fp16":
        return "fp16" if half else fallback
    return fallback if rules.falls_back(version) else published


def cache_dtype(architecture: Architecture, engine_name: str, version: str, computed: str, asked: str = "") -> str:
    """The format of the KV cache: `asked`, else what the checkpoint declares where the engine follows that, else that
    of computation. Some models stay in that one whatever is asked (`EngineFacts.fixed_kv`), others have one of their
    own (`EngineFacts.own_kv`)."""
    facts = engine(engine_name)
    if architecture.family in facts.fixed_kv:
        return computed
    if own := facts.own_kv.get(architecture.family):
        return asked or own
    follows = _follows_checkpoint(architecture, engine_name, version)
    return asked or (architecture.kv_dtype_published if follows else computed)


def cache_note(architecture: Architecture, engine_name: str, version: str, asked: str) -> str:
    """What is to be known about that choice, or an empty string."""
    facts, declared = engine(engine_name), architecture.kv_dtype_published
    if architecture.family in facts.fixed_kv:
        told = f"{facts.title} gives the attention of {architecture.family} models no cache type"
        return f"{told}: --kv-cache-dtype has no effect" if asked else ""
    if (own := facts.own_kv.get(architecture.family)) and not asked:
        return f"{facts.title} keeps the cache of {architecture.family} models in {own} rows of its own by itself"
    if asked or not declared:
        return ""
    told, follows = f"{facts.title} {version}", _follows_checkpoint(architecture, engine_name, version)
    if follows:
        return f"the checkpoint declares a KV cache in {declared}, and {told} keeps it so unless told otherwise"
    unknown = f"whether {told} keeps it so by itself is not known" if follows is None else f"{told} does not follow it"
    return f"the checkpoint declares a KV cache in {declared}, {unknown}: counted in the format of computation"


def _follows_checkpoint(architecture: Architecture, engine_name: str, version: str) -> bool | None:
    """Whether the engine keeps the cache as the checkpoint declares; None when that is not known."""
    facts, declared = engine(engine_name), architecture.kv_dtype_published
    try:
        return bool(declared) and facts.follows_declared_cache(
            version or facts.latest_version, architecture.quantisation, declared
        )
    except KeyError:
        return None


def lacks_bfloat16(device: Device) -> bool:
    """Whether the device is NVIDIA's and older than bfloat16."""
    capability = compute_capability(device)
    return capability is not None and capability < _FIRST_BFLOAT16


def computation_problem(
    architecture: Architecture, device: Device, engine_name: str, version: str, asked: str, method: str
) -> Problem | None:
    """Why the engine refuses to compute in what was asked for or chosen, or None.

    Weights that are quantised, by the checkpoint or by `method`, are computed in 16 bit (vLLM 0.32:
    get_supported_act_dtypes).
    """
    facts, rules = engine(engine_name), engine_arguments(engine_name).compute
    capability, name = compute_capability(device), device.accelerator.name
    if capability is not None and capability < rules.least_capability:
        least = f"compute capability {rules.least_capability:.1f} is needed, it has {capability:.1f}"
        return Problem("device", f"{facts.title} does not start on {name}: {least}", otherwise="another device")
    dtype = chosen(architecture, device, engine_name, version, asked)
    half = architecture.family not in rules.no_half
    if dtype == "fp16" and not half:
        other = "fp32" if lacks_bfloat16(device) else "bf16"
        reason = f"{facts.title} refuses float16 for models of type {architecture.family}: numerically unstable"
        return Problem("dtype", reason, ((("--dtype", _SPELLED[other]),),))
    if dtype == "bf16" and lacks_bfloat16(device) and (asked or not architecture.quantisation):
        reason = f"{name} cannot run bf16 weights: compute capability {_FIRST_BFLOAT16} is needed, it has {capability}"
        return Problem("dtype", reason, ((("--dtype", _SPELLED["fp16" if half else "fp32"]),),), "a float16 checkpoint")
    method = architecture.quantisation or method
    if dtype == "fp32" and method and method not in _ANY_WIDTH:
        reason = f"{facts.title} computes {method} weights in 16 bit, not in float32"
        return Problem("dtype", reason, ((("--dtype", "auto"),),))
    return None
