"""The memory equation of a model, and which accelerators hold it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import WHOLE, Device
from rightslice.core.engine import DTYPE_BITS, EngineSettings
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.quantities import format_bytes
from rightslice.memory import cache
from rightslice.memory.gke import gke_terms
from rightslice.memory.ladder import COUNTS, Fit, Refusal, SizeRequest, fit, split_is_given, too_long
from rightslice.memory.legality import gains_from_replicas
from rightslice.memory.notes import exact_notes, not_modeled
from rightslice.memory.overheads import activation_bytes, engine_memory, graphs_bytes, rotary_bytes
from rightslice.memory.reservation import cache_plan
from rightslice.memory.weights import weights_bytes

__all__ = ["Fit", "Refusal", "SizeReport", "SizeRequest", "size"]

_STEP_TOKENS: Final = 2048
"""Prompt tokens of one step: the engine's default below 70 GiB of device memory."""


@dataclass(frozen=True, slots=True)
class SizeReport:
    """Bytes of the whole model. `kv_cache_bytes`: all sequences at the asked length, window and state included.

    `kv_bytes_per_sequence` is one of them, `kv_bytes_reserved_per_sequence` what the engine `reserved_by` (the newest
    vLLM, unless another is asked about) sets aside for it on one device with `kv_in_flight_tokens` tokens in flight; 0
    by the formula of the GKE guide. `too_long`: why requests of the asked length are refused, else empty.
    """

    model: str
    parameters: int
    active_parameters: int
    embedding_params: int
    weights_bytes: int
    kv_cache_bytes_per_token: int
    kv_window_tokens: int | None
    kv_bytes_per_token_windowed_layers: int
    indexer_bytes_per_token: int
    state_bytes_per_sequence: int
    kv_cache_bytes: int
    activation_bytes: int
    overhead_bytes: int
    total_bytes: int
    context_max: int | None
    fits: tuple[Fit, ...]
    refused: tuple[Refusal, ...]
    notes: tuple[str, ...]
    not_modeled: tuple[str, ...]
    method: str
    dtype: str
    kv_dtype: str
    source: str
    kv_bytes_per_sequence: int = 0
    kv_bytes_reserved_per_sequence: int = 0
    kv_in_flight_tokens: int = 0
    reserved_by: str = ""
    too_long: str = ""


def size(architecture: Architecture, request: SizeRequest, devices: Sequence[Device] = ()) -> SizeReport:
    """The memory of `architecture` for `request`, and what of `devices` holds it.

    Raises BadInputError RS0106 for numbers that are not positive and RS0109 for an unknown precision or method.
    """
    _checked(request)
    seen = devices[0] if len(devices) == 1 else None
    report = _gke(architecture, request, seen) if request.method == "gke" else _exact(architecture, request, seen)
    fits: list[Fit] = []
    refused: list[Refusal] = []
    for device in devices:
        answers = _answers(architecture, request, device)
        found = [answer for answer in answers if isinstance(answer, Fit)]
        fits += found
        refused += [answer for answer in answers[:1] if isinstance(answer, Refusal) and not found]
    return replace(report, fits=tuple(fits), refused=tuple(refused), too_long=too_long(architecture, request))


def _answers(architecture: Architecture, request: SizeRequest, device: Device) -> tuple[Fit | Refusal, ...]:
    """Tensor parallel first, then replicas of the attention where they gain anything."""
    if request.method == "gke":
        return (_gke_fit(architecture, request, device),)
    if split_is_given(request):
        return (fit(architecture, request, device, "given"),)
    plain = fit(architecture, request, device, "tensor")
    if device.partition != WHOLE or not gains_from_replicas(architecture):
        return (plain,)
    return plain, fit(architecture, request, device, "replicas")


def _checked(request: SizeRequest) -> None:
    wrong = [
        Diagnostic("RS0106", f"{name} must be at least {least}, not {value}")
        for name, value, least in (
            ("input_tokens", request.input_tokens, 1),
            ("output_tokens", request.output_tokens, 0),
            ("sequences", request.sequences, 1),
        )
        if value < least
    ]
    choices = (
        ("dtype", request.dtype, tuple(DTYPE_BITS)),
        ("kv_dtype", request.kv_dtype, tuple(cache.KV_BYTES)),
        ("method", request.method, ("exact", "gke")),
    )
    for name, chosen, known in choices:
        if chosen is not None and chosen not in known:
            hint = did_you_mean(chosen, known) or ", ".join(known)
            wrong.append(Diagnostic("RS0109", f'unknown {name} "{chosen[:40]}"', None, hint))
    if wrong:
        raise BadInputError(wrong)


def _exact(architecture: Architecture, request: SizeRequest, device: Device | None) -> SizeReport:
    """Weights + cache of all sequences + activations and overhead of one device."""
    kv_dtype, dtype = request.cache, request.weights
    weights = weights_bytes(architecture, dtype)
    kept = math.ceil(request.sequences * cache.sequence_bytes(architecture, request.tokens, kv_dtype))
    told = request.line.settings if request.line else EngineSettings(max_num_batched_tokens=_STEP_TOKENS)
    alone = replace(told, max_num_seqs=request.sequences, max_model_len=request.tokens, tensor_parallel_size=1,
                    pipeline_parallel_size=1, data_parallel_size=1)  # fmt: skip
    step = min(told.max_num_batched_tokens, request.sequences * request.input_tokens)
    activations = activation_bytes(architecture, replace(alone, max_num_batched_tokens=step))
    stored = engine(told.engine).own_kv.get(architecture.family, kv_dtype)
    plan = cache_plan(architecture, replace(alone, kv_dtype=stored), device)  # type: ignore[arg-type]
    constants = engine_memory(told.engine, told.version)
    overhead = constants.context_bytes + graphs_bytes(told) + rotary_bytes(architecture)
    report = SizeReport(
        model=architecture.name,
        parameters=architecture.parameters,
        active_parameters=architecture.active_parameters,
        embedding_params=architecture.embedding_parameters,
        weights_bytes=weights,
        kv_cache_bytes_per_token=round(cache.growing_bytes_per_token(architecture, kv_dtype)),
        kv_window_tokens=cache.window_tokens(architecture),
        kv_bytes_per_token_windowed_layers=round(cache.windowed_bytes_per_token(architecture, kv_dtype)),
        indexer_bytes_per_token=round(cache.indexer_bytes_per_token(architecture, kv_dtype)),
        state_bytes_per_sequence=cache.state_bytes(architecture),
        kv_cache_bytes=kept,
        activation_bytes=activations,
        overhead_bytes=overhead,
        total_bytes=weights + kept + activations + overhead,
        context_max=architecture.context_max,
        fits=(),
        refused=(),
        notes=(),
        not_modeled=not_modeled(architecture),
        method="exact",
        dtype=dtype or architecture.published_dtype,
        kv_dtype=kv_dtype,
        source=architecture.source,
        kv_bytes_per_sequence=math.ceil(kept / request.sequences),
        kv_bytes_reserved_per_sequence=plan.bytes_per_request(request.tokens),
        kv_in_flight_tokens=plan.in_flight_tokens or 0,
        reserved_by=engine(told.engine).title,
    )
    terms = gke_terms(
        architecture,
        tokens=request.tokens,
        sequences=request.sequences,
        dtype=dtype,
        kv_dtype=kv_dtype,
    )
    notes = exact_notes(
        architecture,
        terms,
        weights=weights,
        dtype=dtype or architecture.published_dtype,
        tokens=request.tokens,
        sequences=request.sequences,
        kv_dtype=kv_dtype,
    )
    return replace(report, notes=notes)


def _gke(architecture: Architecture, request: SizeRequest, device: Device | None) -> SizeReport:
    kv_dtype = request.cache
    terms = gke_terms(
        architecture,
        tokens=request.tokens,
        sequences=request.sequences,
        dtype=request.weights,
        kv_dtype=kv_dtype,
    )
    exact = _exact(architecture, replace(request, method="exact"), device)
    advertised = architecture.advertised_parameters_b
    claim = (
        f"{advertised:g} B as advertised"
        if advertised is not None
        else "the real parameter count (no size in the name)"
    )
    formula = (
        f"formula of the GKE guide: weights from {claim}, head width hidden / heads = {terms.head_dim}, "
        "every layer caches every token, 1 GB overhead"
    )
    terms_of_exact = (
        ("weights", exact.weights_bytes),
        ("KV cache", exact.kv_cache_bytes),
        ("activations", exact.activation_bytes),
        ("overhead", exact.overhead_bytes),
    )
    beside = ", ".join(f"{name} {format_bytes(amount)}" for name, amount in terms_of_exact)
    notes = (formula, f"the exact method gives {exact.total_bytes / 1e9:.2f} GB: {beside}", *exact.notes)
    return replace(
        exact,
        weights_bytes=terms.weights_bytes,
        kv_cache_bytes_per_token=terms.kv_bytes_per_token,
        kv_window_tokens=None,
        kv_bytes_per_token_windowed_layers=0,
        indexer_bytes_per_token=0,
        state_bytes_per_sequence=0,
        kv_cache_bytes=terms.kv_cache_bytes,
        activation_bytes=terms.activation_bytes,
        overhead_bytes=terms.overhead_bytes,
        total_bytes=terms.total_bytes,
        notes=notes,
        method="gke",
        kv_bytes_per_sequence=0,
        kv_bytes_reserved_per_sequence=0,
        kv_in_flight_tokens=0,
    )


def _gke_fit(architecture: Architecture, request: SizeRequest, device: Device) -> Fit | Refusal:
    """By the formula: total against the memory of all devices."""
    kv_dtype = request.cache
    one = gke_terms(architecture, tokens=request.tokens, sequences=1, dtype=request.weights, kv_dtype=kv_dtype)
    fixed, each = one.weights_bytes + one.overhead_bytes, one.activation_bytes + one.kv_cache_bytes
    counts = COUNTS if device.partition == WHOLE else COUNTS[:1]
    for count in counts:
        room = count * device.memory_bytes - fixed
        if room >= each * request.sequences:
            return Fit(device.name, count, room // max(1, each), margin_bytes=room - each * request.sequences)
    need, have = fixed + each * request.sequences, counts[-1] * device.memory_bytes
    return Refusal(device.name, counts[-1], f"needs {need / 1e9:.1f} GB, {counts[-1]} have {have / 1e9:.1f} GB")
