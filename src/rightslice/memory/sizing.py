"""The memory equation of a model, and which accelerators hold it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import WHOLE, Device
from rightslice.core.engine import DTYPE_BITS, EngineSettings
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.quantities import format_bytes
from rightslice.memory import cache
from rightslice.memory.footprint import Footprint, footprint
from rightslice.memory.gke import gke_terms
from rightslice.memory.legality import gains_from_replicas, legal_parallelism
from rightslice.memory.notes import exact_notes, not_modeled
from rightslice.memory.overheads import UNSURE_BYTES, activation_bytes, engine_memory, rank_step_tokens, rotary_bytes
from rightslice.memory.precision import kv_support, weight_support
from rightslice.memory.reservation import cache_plan
from rightslice.memory.weights import weights_bytes

COUNTS: Final = (1, 2, 4, 8, 16)
_ENGINE: Final = "vllm"
_STEP_TOKENS: Final = 2048
"""Prompt tokens of one step: the engine's default below 70 GiB of device memory."""


@dataclass(frozen=True, slots=True)
class SizeRequest:
    """What is asked. `dtype` None: as published; `kv_dtype` None: 16 bit."""

    input_tokens: int = 1024
    output_tokens: int = 256
    sequences: int = 1
    dtype: str | None = None
    kv_dtype: str | None = None
    accelerator: str | None = None
    method: Literal["exact", "gke"] = "exact"

    @property
    def tokens(self) -> int:
        """Tokens of one sequence at its end."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Fit:
    """The fewest devices that hold the model with all sequences, and how many sequences they hold at most.

    `margin_bytes`: left on each device beyond what is asked. `verdict`: just fits when that is within the error of the
    engine's constants, so that it may not start.
    `split`: tensor parallel, or one attention replica per device with the experts spread over all (`replicas`), which
    is worth knowing where a latent cache would repeat on every tensor-parallel rank.
    """

    accelerator: str
    count: int
    max_sequences: int
    verdict: Literal["fits", "just fits"] = "fits"
    margin_bytes: int = 0
    split: Literal["tensor", "replicas"] = "tensor"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the largest count tried does not hold it."""

    accelerator: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class SizeReport:
    """Bytes of the whole model. `kv_cache_bytes`: all sequences at the asked length, window and state included.

    `kv_bytes_per_sequence` is one of them, `kv_bytes_reserved_per_sequence` what the newest vLLM sets aside for it on
    one device with `kv_in_flight_tokens` tokens in flight; 0 by the formula of the GKE guide.
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


def size(architecture: Architecture, request: SizeRequest, devices: Sequence[Device] = ()) -> SizeReport:
    """The memory of `architecture` for `request`, and what of `devices` holds it.

    Raises BadInputError RS0106 for numbers that are not positive and RS0109 for an unknown precision or method.
    """
    _checked(request)
    report = _gke(architecture, request) if request.method == "gke" else _exact(architecture, request)
    fits: list[Fit] = []
    refused: list[Refusal] = []
    for device in devices:
        answers = _answers(architecture, request, device)
        found = [answer for answer in answers if isinstance(answer, Fit)]
        fits += found
        refused += [answer for answer in answers[:1] if isinstance(answer, Refusal) and not found]
    return replace(report, fits=tuple(fits), refused=tuple(refused))


def _answers(architecture: Architecture, request: SizeRequest, device: Device) -> tuple[Fit | Refusal, ...]:
    """Tensor parallel first, then replicas of the attention where they gain anything."""
    if request.method == "gke":
        return (_gke_fit(architecture, request, device),)
    plain = _fit(architecture, request, device, "tensor")
    if device.partition != WHOLE or not gains_from_replicas(architecture):
        return (plain,)
    return plain, _fit(architecture, request, device, "replicas")


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


def _exact(architecture: Architecture, request: SizeRequest) -> SizeReport:
    """Weights + cache of all sequences + activations and overhead of one device."""
    kv_dtype = request.kv_dtype or "bf16"
    weights = weights_bytes(architecture, request.dtype or "")
    kept = math.ceil(request.sequences * cache.sequence_bytes(architecture, request.tokens, kv_dtype))
    step = EngineSettings(
        max_num_batched_tokens=min(_STEP_TOKENS, request.sequences * request.input_tokens),
        max_num_seqs=request.sequences,
        max_model_len=request.tokens,
    )
    activations = activation_bytes(architecture, step)
    engine_step = replace(step, kv_dtype=kv_dtype, max_num_batched_tokens=_STEP_TOKENS)  # type: ignore[arg-type]
    plan = cache_plan(architecture, engine_step)
    constants = engine_memory(_ENGINE, "")
    overhead = constants.context_bytes + constants.graphs_bytes + rotary_bytes(architecture)
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
        dtype=request.dtype or architecture.published_dtype,
        kv_dtype=kv_dtype,
        source=architecture.source,
        kv_bytes_per_sequence=math.ceil(kept / request.sequences),
        kv_bytes_reserved_per_sequence=plan.bytes_per_request(request.tokens),
        kv_in_flight_tokens=plan.in_flight_tokens or 0,
    )
    terms = gke_terms(
        architecture,
        tokens=request.tokens,
        sequences=request.sequences,
        dtype=request.dtype or "",
        kv_dtype=kv_dtype,
    )
    notes = exact_notes(
        architecture,
        terms,
        weights=weights,
        dtype=request.dtype or architecture.published_dtype,
        tokens=request.tokens,
        sequences=request.sequences,
        kv_dtype=kv_dtype,
    )
    return replace(report, notes=notes)


def _gke(architecture: Architecture, request: SizeRequest) -> SizeReport:
    kv_dtype = request.kv_dtype or "bf16"
    terms = gke_terms(
        architecture,
        tokens=request.tokens,
        sequences=request.sequences,
        dtype=request.dtype or "",
        kv_dtype=kv_dtype,
    )
    exact = _exact(architecture, replace(request, method="exact"))
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


def settings_for(
    architecture: Architecture, request: SizeRequest, device: Device, count: int, split: str = "tensor"
) -> EngineSettings:
    """An engine with its defaults on that device, over `count` devices split as in `Fit`, as long as asked."""
    facts = engine(_ENGINE)
    defaults = facts.defaults(facts.latest_version, device)
    return EngineSettings(
        engine=_ENGINE,
        version=facts.latest_version,
        tensor_parallel_size=count if split == "tensor" else 1,
        data_parallel_size=1 if split == "tensor" else count,
        expert_parallel=split != "tensor",
        weight_dtype=request.dtype or architecture.published_dtype,  # type: ignore[arg-type]
        kv_dtype=request.kv_dtype or "bf16",  # type: ignore[arg-type]
        max_model_len=request.tokens,
        max_num_seqs=max(request.sequences, defaults.max_num_seqs),
        max_num_batched_tokens=rank_step_tokens(defaults.max_num_batched_tokens, 1 if split == "tensor" else count),
        memory_fraction=defaults.memory_fraction,
        block_size_tokens=defaults.block_size_tokens,
    )


def _fit(
    architecture: Architecture, request: SizeRequest, device: Device, split: Literal["tensor", "replicas"]
) -> Fit | Refusal:
    """The fewest of 1, 2, 4, 8, 16 devices that are legal and hold all sequences."""
    dtype = request.dtype or architecture.published_dtype
    if weight_support(device, dtype).level == "refused":
        half = weight_support(device, "fp16").level != "refused" and dtype == "bf16"
        return Refusal(device.name, 1, f"cannot run {dtype} weights" + ("; --dtype fp16 can" if half else ""))
    if request.kv_dtype and kv_support(device, request.kv_dtype).level == "refused":
        return Refusal(device.name, 1, f"cannot keep a KV cache in {request.kv_dtype}")
    last = Refusal(device.name, 1, "")
    for count in COUNTS if device.partition == WHOLE else COUNTS[:1]:
        settings = settings_for(architecture, request, device, count, split)
        if illegal := legal_parallelism(architecture, settings):
            last = last if last.reason else Refusal(device.name, count, illegal)
            continue
        held = footprint(architecture, device, settings, typical_tokens=request.tokens)
        if held.fits and held.max_sequences >= request.sequences:
            wanted = max(held.kv_bytes_least, request.sequences * held.kv_bytes_per_sequence)
            margin = held.kv_cache_bytes - wanted
            sure = margin >= UNSURE_BYTES
            return Fit(device.name, count, held.max_sequences, "fits" if sure else "just fits", margin, split)
        total = weights_bytes(architecture, dtype)
        last = Refusal(device.name, count, _reason(held, device, count, request.sequences, total))
    return last


def _reason(held: Footprint, device: Device, count: int, sequences: int, total_bytes: int) -> str:
    if held.reason:
        need, have = f"{total_bytes / 1e9:,.0f} GB", f"{count * device.memory_bytes / 1e9:,.0f} GB"
        return f"{need} of weights, {count} x {device.name} = {have}; per device {held.reason}"
    return f"{count} x {device.name} hold {held.max_sequences} sequences of that length, not {sequences}"


def _gke_fit(architecture: Architecture, request: SizeRequest, device: Device) -> Fit | Refusal:
    """By the formula: total against the memory of all devices."""
    kv_dtype = request.kv_dtype or "bf16"
    one = gke_terms(architecture, tokens=request.tokens, sequences=1, dtype=request.dtype or "", kv_dtype=kv_dtype)
    fixed, each = one.weights_bytes + one.overhead_bytes, one.activation_bytes + one.kv_cache_bytes
    counts = COUNTS if device.partition == WHOLE else COUNTS[:1]
    for count in counts:
        room = count * device.memory_bytes - fixed
        if room >= each * request.sequences:
            return Fit(device.name, count, room // max(1, each), margin_bytes=room - each * request.sequences)
    need, have = fixed + each * request.sequences, counts[-1] * device.memory_bytes
    return Refusal(device.name, counts[-1], f"needs {need / 1e9:.1f} GB, {counts[-1]} have {have / 1e9:.1f} GB")
