"""From the ledger to the value type: totals, bytes as published, attention groups and shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from rightslice.catalogue.architecture import Architecture, AttentionGroup, MoeGroup, WeightGroup
from rightslice.catalogue.architectures.build import build
from rightslice.catalogue.architectures.config import MAX_CONTEXT, Config, Object
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.ledger import Ledger
from rightslice.catalogue.architectures.multimodal import text_part
from rightslice.catalogue.architectures.quantisation import DTYPE_BYTES, Scheme, base_dtype, kv_dtype, scheme_of
from rightslice.catalogue.architectures.weights import Layer, Weight, count

Part = Literal["layers", "embedding", "head", "outside", "tower"]
_Sums = Counter[tuple[Part, str, int, str]]


def read_architecture(raw: Object, name: str, *, where: str = "", hf_quant: Object | None = None) -> Architecture:
    """The architecture that a configuration describes. Raises BadInputError RS2007 when it does not describe one.

    parameters: sum over all tensors, multi-token-prediction layers left out. active_parameters: without the routed
    experts that one token does not visit; embeddings, head and towers are in both.
    """
    ledger, kind, own, config = build(raw, where or name)
    text, _ = text_part(config, own)
    dtype = base_dtype(raw)
    scheme = scheme_of(raw, hf_quant)
    notes = [] if dtype else ["the configuration names no dtype: 32 bit is assumed, as the library does"]
    groups = _groups(ledger, scheme, dtype or "fp32")
    if scheme is not None and not _converted(groups, dtype or "fp32"):
        notes.append(f"quantisation {scheme.method}: no list matched a weight, bytes are those of the base dtype")
    moe = _merged_moe(ledger.layers)
    number = text.maybe("num_nextn_predict_layers") or text.maybe("num_mtp_modules") or 0
    if number:
        notes.append(f"{number} multi-token-prediction layer{'s' if number > 1 else ''} not counted")
    parameters = ledger.parameters
    heads = text.number("heads", 0)
    attention = _merged_attention(ledger.layers)
    return Architecture(
        name=name,
        family=str(raw.get("model_type") or own.name),
        kind=kind,
        hidden_size=text.number("hidden", 0),
        intermediate_size=_intermediate(ledger),
        layers=len(ledger.layers),
        vocab_size=text.number("vocab", 0),
        query_heads=max((g.query_heads for g in attention), default=heads),
        kv_heads=min((g.kv_heads for g in attention if g.kind not in ("linear", "mamba")), default=0),
        tied_embeddings=ledger.tied,
        parameters=parameters,
        active_parameters=parameters - ledger.idle_parameters,
        embedding_parameters=_embedding_parameters(ledger),
        vision_parameters=count(ledger.towers),
        matmul_parameters=_matmul_parameters(ledger),
        attention=attention,
        moe=moe,
        context_max=_context(text, own),
        published_dtype=_published_dtype(scheme, dtype),
        published_weights_bytes=sum(g.published_bytes for g in groups),
        quantisation=scheme.method if scheme is not None else "",
        kv_dtype_published=kv_dtype(raw, hf_quant),
        approximations=ledger.approximations,
        notes=tuple(notes),
        weights=groups,
        quantisation_block=_block(scheme),
        dense_intermediate_sizes=_dense_widths(ledger.layers),
    )


def _context(text: Config, own: Family) -> int | None:
    if own.trait("kind") == "speech-ctc":
        return None
    return text.maybe("context", high=MAX_CONTEXT)


def _published_dtype(scheme: Scheme | None, dtype: str) -> str:
    if scheme is None:
        return dtype or "fp32"
    chosen = scheme.experts or scheme.default or (scheme.own[0][1] if scheme.own else None)
    return chosen.name if chosen is not None else dtype or "fp32"


def _block(scheme: Scheme | None) -> int:
    """Input channels that share a scale; only formats whose kernels refuse a cut block count."""
    if scheme is None or scheme.default is None:
        return 0
    return scheme.default.columns if scheme.default.columns > _FREE_BLOCK else 0


_FREE_BLOCK = 64
"""Blocks of 16 or 32 (NVFP4, MXFP4) divide every published width."""


def _groups(ledger: Ledger, scheme: Scheme | None, dtype: str) -> tuple[WeightGroup, ...]:
    sums: Counter[tuple[Part, str, int, str]] = Counter()
    if scheme is None or not scheme.depends_on_layer:
        for layer, copies in Counter(ledger.layers).items():
            _add(sums, "layers", layer.weights, scheme, dtype, copies=copies, kv_heads=_kv_heads(layer), layer=0)
    else:
        for i, layer in enumerate(ledger.layers):
            _add(sums, "layers", layer.weights, scheme, dtype, copies=1, kv_heads=_kv_heads(layer), layer=i)
    outside: tuple[tuple[Part, tuple[Weight, ...]], ...] = (
        ("embedding", ledger.embedding),
        ("head", ledger.head),
        ("outside", ledger.outside),
        ("tower", ledger.towers),
    )
    for part, weights in outside:
        _add(sums, part, weights, scheme, dtype, copies=1, kv_heads=0, layer=-1)
    keys = dict.fromkeys((part, split, kv) for part, split, kv, _ in sums)
    return tuple(
        WeightGroup(
            part,
            split,  # type: ignore[arg-type]
            sums[part, split, kv, "parameters"],
            sums[part, split, kv, "linear"],
            sums[part, split, kv, "bytes"],
            kv,
        )
        for part, split, kv in keys
    )


def _add(
    sums: _Sums,
    part: Part,
    weights: Iterable[Weight],
    scheme: Scheme | None,
    dtype: str,
    *,
    copies: int,
    kv_heads: int,
    layer: int,
) -> None:
    width = DTYPE_BYTES[dtype]
    for weight in weights:
        key = (part, weight.split, kv_heads if weight.split == "kv" else 0)
        elements = weight.elements
        found = scheme.format_of(weight, layer) if scheme is not None else None
        stored = elements * width
        if found is not None:
            stored = found.bytes_of(weight) + (elements - weight.matrix_elements) * width
        sums[*key, "parameters"] += copies * elements
        sums[*key, "bytes"] += copies * round(stored)
        if weight.linear:
            sums[*key, "linear"] += copies * weight.matrix_elements


def _converted(groups: tuple[WeightGroup, ...], dtype: str) -> bool:
    return any(g.published_bytes != round(g.parameters * DTYPE_BYTES[dtype]) for g in groups)


def _kv_heads(layer: Layer) -> int:
    return max((c.kv_heads for c in layer.caches if c.kind not in ("linear", "mamba")), default=0)


def _merged_attention(layers: Iterable[Layer]) -> tuple[AttentionGroup, ...]:
    counts: Counter[AttentionGroup] = Counter()
    for layer, copies in Counter(layers).items():
        for cache in layer.caches:
            counts[cache] += copies
    return tuple(replace(group, layers=number) for group, number in counts.items())


def _merged_moe(layers: Iterable[Layer]) -> tuple[MoeGroup, ...]:
    counts: Counter[MoeGroup] = Counter(layer.moe for layer in layers if layer.moe is not None)
    return tuple(replace(group, layers=number) for group, number in counts.items())


def _matmul_parameters(ledger: Ledger) -> int:
    inside = sum(
        copies * sum(w.matrix_elements for w in layer.weights if w.split != "expert" and (w.linear or _is_router(w)))
        for layer, copies in Counter(ledger.layers).items()
    )
    head = ledger.head or (ledger.embedding[:1] if ledger.tied else ())
    return inside + sum(w.matrix_elements for w in head if w.columns > 1)


def _is_router(weight: Weight) -> bool:
    return weight.module.endswith(".gate") and weight.columns > 1


def _embedding_parameters(ledger: Ledger) -> int:
    """Input embeddings, positions and tables per layer included; a separate head is not."""
    return count(ledger.embedding) + count(w for w in ledger.outside if w.module == "embed_tokens_per_layer")


def _intermediate(ledger: Ledger) -> int:
    widths = _dense_widths(ledger.layers)
    experts = [layer.moe.intermediate_size for layer in ledger.layers if layer.moe is not None]
    return max(widths, default=max(experts, default=0))


def _dense_widths(layers: Iterable[Layer]) -> tuple[int, ...]:
    names = ("mlp.up_proj", "mlps.up_proj")
    return tuple(sorted({w.rows for layer in set(layers) for w in layer.weights if w.module in names}))
