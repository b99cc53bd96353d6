"""The format in which an engine computes: what `--dtype` says, or what it chooses by itself."""

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
