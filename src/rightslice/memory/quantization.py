"""What an engine makes of `--quantization`: methods it knows, checkpoints they read, formats it lowers weights to."""

from __future__ import annotations

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engine_arguments import QuantizationFlag, engine_arguments
from rightslice.catalogue.engines import EngineFacts
from rightslice.catalogue.versions import version_key
from rightslice.core.errors import did_you_mean
from rightslice.memory.problems import Problem, Remedy

_FLAG = "--quantization"
_LEAVE_OUT = f"leave {_FLAG} out"


def quantization_problem(
    architecture: Architecture, facts: EngineFacts, version: str, method: str
) -> Problem | str | None:
    """Why the engine refuses the method, or a note when that was not read; None when it is taken.

    A checkpoint's own method decides for a quantised one; others are taken where the engine converts between them
    (vLLM 0.32: _verify_quantization, override_quantization_method). For an unquantised one a method must lower weights
    while it loads; the others look for a file that is not there (get_quant_config).
    """
    spelling = engine_arguments(facts.name)
    rules = spelling.quantization
    if rules is None:
        return None
    told, own = f"{facts.title} {version}", architecture.quantisation
    newer = version_key(version) >= version_key(spelling.version)
    if not method:
        return _published(rules, told, own) if newer else None
    known = _known(rules, method, newer=newer)
    read = rules.read_by(own, method) if own else None
    if read:
        return None
    remedies = _remedies(rules, own)
    if read is False:
        reason = f"the checkpoint is quantised with {own}: {told} does not read it with {_FLAG} {method}"
        return Problem("quantization", reason, remedies, _LEAVE_OUT)
    if not known:
        hint = did_you_mean(method, rules.methods)
        reason = f'{told} has no quantisation method "{method}"{f" ({hint})" if hint else ""}'
        return Problem("quantization", reason, remedies, _LEAVE_OUT)
    if own:
        return f"whether {told} reads {own} checkpoints with {_FLAG} {method} is not known here"
    return _unquantised(rules, told, method, remedies)


def _published(rules: QuantizationFlag, told: str, own: str) -> Problem | None:
    """Without a method the checkpoint's own is taken, where there is one of its name."""
    if own not in (*rules.earlier, *rules.lacks):
        return None
    return Problem("quantization", f"{told} reads no checkpoints quantised with {own}", otherwise="another checkpoint")


def _known(rules: QuantizationFlag, method: str, *, newer: bool) -> bool:
    if method in rules.deprecated:
        return not newer
    return method in rules.methods or (method in rules.earlier and not newer)


def _remedies(rules: QuantizationFlag, own: str) -> tuple[Remedy, ...]:
    if own in rules.reads:
        return (((_FLAG, own),),)
    return (((_FLAG, rules.unset),),) if rules.unset and not own else ()


def _unquantised(rules: QuantizationFlag, told: str, method: str, remedies: tuple[Remedy, ...]) -> Problem | str | None:
    if method in rules.while_loading:
        lowered = rules.while_loading[method]
        return None if lowered else f"what {_FLAG} {method} converts is not known here: weights count as published"
    if not rules.reads:
        return f"whether {told} takes {_FLAG} {method} for a checkpoint that is not quantised is not known here"
    reason = f"{_FLAG} {method} reads checkpoints quantised with it, and this one is not quantised"
    return Problem("quantization", reason, remedies, _LEAVE_OUT)
