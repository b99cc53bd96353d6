"""What a memory answer says in words: where it differs from the rule of thumb, and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.core.quantities import format_bytes
from rightslice.memory import cache
from rightslice.memory.gke import GkeTerms

_WORTH_SAYING: Final = 0.005
_WORTH_SAYING_OF_CACHE: Final = 0.05
"""Smaller shares of the formula's total, or of its cache, are not mentioned."""


def exact_notes(
    architecture: Architecture, terms: GkeTerms, *, weights: int, dtype: str, tokens: int, sequences: int, kv_dtype: str
) -> tuple[str, ...]:
    """Differences from the formula of the GKE guide, each with its bytes, then the architecture's own remarks."""
    least = _WORTH_SAYING * terms.total_bytes
    found = [note for amount, note in _weights(architecture, terms, weights, dtype) if abs(amount) >= least]
    if any(g.kind != "encoder" for g in architecture.attention):
        steps = _cache(architecture, terms, tokens, sequences, kv_dtype)
        least = min(least, _WORTH_SAYING_OF_CACHE * terms.kv_cache_bytes)
        found += [note for amount, note in steps if abs(amount) > least]
    else:
        found.append("no KV cache: the whole input is read at once")
    limit = architecture.context_max
    if limit is not None and tokens > limit:
        found.append(f"{tokens:,} tokens asked, the model's context is {limit:,}")
    if architecture.kv_dtype_published and kv_dtype in ("bf16", "fp16"):
        found.append(
            f"the checkpoint declares a KV cache in {architecture.kv_dtype_published}: fewer cache bytes where the "
            f"engine follows it (--kv-dtype {architecture.kv_dtype_published})"
        )
    if extra := cache.encoder_bytes_per_token(architecture, kv_dtype):
        found.append(f"cross attention keeps {extra:,.0f} B per token of the encoder's input on top")
    if architecture.active_parameters < architecture.parameters:
        found.append(
            f"mixture of experts: {architecture.active_parameters / 1e9:.2f} B parameters work per token, "
            f"all {architecture.parameters / 1e9:.2f} B must be in memory"
        )
    approximated = (f"approximated: {text}" for text in architecture.approximations)
    return (*found, *architecture.notes, *approximated)


def _signed(amount_bytes: float) -> str:
    return ("+" if amount_bytes >= 0 else "-") + format_bytes(abs(amount_bytes))


def _weights(architecture: Architecture, terms: GkeTerms, weights: int, dtype: str) -> Iterator[tuple[float, str]]:
    advertised = architecture.advertised_parameters_b
    difference = weights - terms.weights_bytes
    if advertised is None:
        return
    real = architecture.parameters / 1e9
    text = f"{real:.1f} B real parameters, {advertised:g} B advertised"
    if architecture.quantisation:
        text = f"{real:.1f} B parameters ({advertised:g} B advertised), scales and unquantised parts included"
    elif dtype != architecture.published_dtype:
        text = f"{real:.1f} B parameters ({advertised:g} B advertised), what stays as published included"
    yield difference, f"{text}: {_signed(difference)} of weights"


def _cache(
    architecture: Architecture, terms: GkeTerms, tokens: int, sequences: int, kv_dtype: str
) -> Iterator[tuple[float, str]]:
    """From the formula's cache to the real one in steps: head width and kinds of layers, then windows, then state."""
    width = cache.KV_BYTES[kv_dtype]
    caching = [g for g in architecture.attention if g.kind in ("full", "mla", "sliding", "chunked")]
    all_long = sequences * tokens * width * sum(g.layers * g.kv_elements_per_token for g in caching)
    yield from _head_width(architecture, terms, all_long)
    windowed = [g for g in caching if g.window_tokens and g.window_tokens < tokens]
    saved = sequences * width * sum(g.layers * g.kv_elements_per_token * (tokens - g.window_tokens) for g in windowed)
    layers = sum(g.layers for g in windowed)
    window = max((g.window_tokens for g in windowed), default=0)
    yield (
        -saved,
        (f"{layers} of {architecture.layers} layers keep only {window:,} tokens: {_signed(-saved)} of KV cache"),
    )
    state = sequences * cache.state_bytes(architecture)
    yield state, f"constant state per sequence (recurrent, convolution or cross attention): {_signed(state)}"
    index = sequences * tokens * cache.indexer_bytes_per_token(architecture, kv_dtype)
    yield index, f"keys of the sparse-attention indexer: {_signed(index)}"


def _head_width(architecture: Architecture, terms: GkeTerms, all_long: float) -> Iterator[tuple[float, str]]:
    difference = all_long - terms.kv_cache_bytes
    kinds = {g.kind for g in architecture.attention}
    widths = sorted({g.qk_head_dim for g in architecture.attention if g.kind in ("full", "sliding", "chunked")})
    if "mla" in kinds:
        text = "one latent per token and layer instead of keys and values per head"
    elif kinds & {"mamba", "linear"}:
        keeping = sum(g.layers for g in architecture.attention if g.kind in ("full", "sliding", "chunked"))
        text = f"only {keeping} of {architecture.layers} layers have a KV cache"
    elif widths and widths != [terms.head_dim]:
        shown = " and ".join(str(w) for w in widths)
        text = f"head width {shown} as configured, not hidden / heads = {terms.head_dim}"
    else:
        text = "KV heads as configured, layer by layer"
    yield difference, f"{text}: {_signed(difference)} of KV cache"


def not_modeled(architecture: Architecture) -> tuple[str, ...]:
    """What the numbers leave out."""
    found = [
        "prompt log-probabilities and other requests that keep extra tensors",
        "draft models and multi-token-prediction layers, unless a speculative configuration names them",
    ]
    if architecture.vision_parameters:
        found.append("activations and cached outputs of the vision or audio encoder")
    return tuple(found)
