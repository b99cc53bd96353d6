"""From the ledger to the value type: totals, bytes as published, attention groups and shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from rightslice.catalogue.architecture import Architecture, AttentionGroup, MoeGroup, WeightGroup
from rightslice.catalogue.architectures.adapters import lora_widths
from rightslice.catalogue.architectures.build import build
from rightslice.catalogue.architectures.config import MAX_CONTEXT, Config, Object
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.formats import DTYPE_BYTES, Format, base_dtype
from rightslice.catalogue.architectures.ledger import Ledger
from rightslice.catalogue.architectures.multimodal import image_cache, text_part
from rightslice.catalogue.architectures.prediction import prediction_layers
from rightslice.catalogue.architectures.quantisation import kv_dtype, scheme_of
from rightslice.catalogue.architectures.scheme import Scheme
from rightslice.catalogue.architectures.spelling import Spelling
from rightslice.catalogue.architectures.unmatched import unmatched_modules
from rightslice.catalogue.architectures.weights import Layer, Split, Weight, count
from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.core.quantities import format_bytes

Part = Literal["layers", "embedding", "head", "outside", "tower"]


def read_architecture(
    raw: Object, name: str, *, where: str = "", hf_quant: Object | None = None, checked: bool = False
) -> Architecture:
    """The architecture that a configuration describes. Raises BadInputError RS2007 when it does not describe one.

    Sizes that the file leaves to its class are told, unless it is known to be right without them (`checked`).

    parameters: sum over all tensors, multi-token-prediction layers left out. active_parameters: without the routed
    experts that one token does not visit; embeddings, head and towers are in both.
    """
    ledger, kind, own, config = build(raw, where or name)
    text, text_family = text_part(config, own)
    dtype = base_dtype(raw, where or name)
    scheme = scheme_of(raw, hf_quant, where or name)
    notes = list(scheme.notes) if scheme is not None else []
    if not dtype:
        dtype = "bf16" if scheme is not None else "fp32"
        notes.append(f"the configuration names no dtype (torch_dtype): {dtype} is assumed for what is not quantised")
    groups = _groups(ledger, scheme, dtype, where=where)
    approximations = [*ledger.approximations, *(scheme.approximations if scheme is not None else ())]
    if scheme is not None and scheme.unread:
        approximations.append(f"patterns of the quantisation lists that are not read: {', '.join(scheme.unread)}")
    if scheme is not None and not scheme.approximations and not _converted(groups, dtype):
        notes.append(f"quantisation {scheme.method}: no list matched a weight, bytes are those of the base dtype")
    moe = _merged_moe(ledger.layers)
    predictor = _predictor(prediction_layers(ledger, text), scheme, dtype, ledger.spelling)
    if predictor is not None:
        number = predictor.layers
        held = f"{format_bytes(predictor.published_weights_bytes)}, loaded for speculative decoding only"
        notes.append(f"{number} multi-token-prediction layer{'s' if number > 1 else ''} not counted ({held})")
    attention = _merged_attention(ledger.layers)
    notes += image_cache(config, own, attention)
    notes += _fewer_experts(text, ledger)
    notes += _quantised_head(ledger, scheme, dtype)
    if not checked:
        told, guessed = _left_out(config, own, text_family)
        notes += told
        approximations += (*guessed, *unmatched_modules(ledger, scheme))
    parameters = ledger.parameters
    heads = text.number("heads", 0)
    return Architecture(
        name=name,
        family=str(raw.get("model_type") or own.name),
        kind=kind,
        hidden_size=text.number("hidden", 0),
        intermediate_size=_intermediate(ledger),
        layers=len(ledger.layers),
        vocab_size=text.number("vocab", 0),
        query_heads=max((g.query_heads for g in attention), default=heads),
        kv_heads=_configured_kv_heads(text, attention),
        tied_embeddings=ledger.tied and ledger.has_language_head,
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
        approximations=tuple(approximations),
        notes=tuple(notes),
        weights=groups,
        quantisation_block=_block(scheme),
        dense_intermediate_sizes=_dense_widths(ledger.layers),
        lora=lora_widths(ledger),
        predictor=predictor,
        classes=_classes(raw),
    )


def _fewer_experts(text: Config, ledger: Ledger) -> list[str]:
    """Of the experts that a token chooses, those that compute nothing are not known before."""
    empty = text.number("zero_expert_num", 0)
    moe = _merged_moe(ledger.layers)
    if not empty or not moe:
        return []
    saved = sum(group.layers * group.experts_per_token * group.expert_parameters for group in moe)
    active = ledger.parameters - ledger.idle_parameters
    mean = active - saved * empty / (empty + moe[0].experts)
    span = f"{(active - saved) / 1e9:.1f} to {active / 1e9:.1f} B parameters work per token"
    return [f"{empty} of the experts compute nothing: {span}, {mean / 1e9:.1f} B if all are chosen alike"]


def _quantised_head(ledger: Ledger, scheme: Scheme | None, dtype: str) -> list[str]:
    """An output head that a list quantises or does not leave out, and that is counted at the base dtype.

    Model Optimizer leaves heads out unless told otherwise, and writes them into its list. An engine follows that list
    (vLLM: modelopt.py converts heads from 0.23.0 on, not in 0.21.0), so a head that it does not name may be either.
    """
    if scheme is None or scheme.head or not ledger.head:
        return []
    name, weight = ledger.spelling.of("lm_head", -1), ledger.head[0]
    found = next((found for listed, found in scheme.own if listed.match(name)), None)
    told = f"the checkpoint lists its output head as {found.name}; it is counted in {dtype}" if found else ""
    excluded = scheme.skip is not None and scheme.skip.match(name)
    if found is None and scheme.default is not None and scheme.method.startswith("modelopt") and not excluded:
        found = scheme.default
        told = f"the checkpoint's list does not leave its output head out; it is counted in {dtype}, as usual"
    if found is None:
        return []
    saved = format_bytes(weight.elements * DTYPE_BYTES[dtype] - found.bytes_of(weight))
    return [f"{told}: {saved} less where the file and the engine have it in {found.name} (vLLM from 0.23.0)"]


def _left_out(config: Config, own: Family, text: Family) -> tuple[list[str], list[str]]:
    """What was taken for sizes that the file does not give: facts of the class, and guesses."""
    usual, guessed = config.assumed(guessed=False), config.assumed(guessed=True)
    if not text.known:
        usual, guessed = (), (*usual, *guessed)
    name = text.name or own.name
    told = [f"not in the configuration, default of the class {name}: {', '.join(usual)}"] if usual else []
    return told, [f"not in the configuration, assumed: {', '.join(guessed)}"] if guessed else []


def _classes(raw: Object) -> tuple[str, ...]:
    named = raw.get("architectures")
    return tuple(name for name in named if isinstance(name, str)) if isinstance(named, list | tuple) else ()


def _predictor(layers: tuple[Layer, ...], scheme: Scheme | None, dtype: str, spelling: Spelling) -> Architecture | None:
    """The multi-token-prediction layers as a model without embedding and head; they follow those of the model."""
    if not layers:
        return None
    ledger = Ledger(layers, spelling=spelling)
    groups = _groups(ledger, scheme, dtype, first=spelling.predictors or 0)
    attention = _merged_attention(layers)
    return Architecture(
        name="multi-token prediction",
        family="",
        kind="decoder",
        hidden_size=0,
        intermediate_size=_intermediate(ledger),
        layers=len(layers),
        vocab_size=0,
        query_heads=max((g.query_heads for g in attention), default=0),
        kv_heads=0,
        tied_embeddings=False,
        parameters=ledger.parameters,
        active_parameters=ledger.parameters - ledger.idle_parameters,
        embedding_parameters=0,
        vision_parameters=0,
        matmul_parameters=_matmul_parameters(ledger),
        attention=attention,
        moe=_merged_moe(layers),
        context_max=None,
        published_dtype=_published_dtype(scheme, dtype),
        published_weights_bytes=sum(g.published_bytes for g in groups),
        weights=groups,
        quantisation_block=_block(scheme),
        dense_intermediate_sizes=_dense_widths(layers),
    )


def _configured_kv_heads(text: Config, attention: tuple[AttentionGroup, ...]) -> int:
    """KV heads as configured; for latent attention that is not what is cached (see the groups)."""
    heads = [g.kv_heads for g in attention if g.kind not in ("linear", "mamba", "mla")]
    if heads:
        return min(heads)
    return text.maybe("kv_heads") or text.number("heads", 0) if attention else 0


def _context(text: Config, own: Family) -> int | None:
    if own.trait("kind") == "speech-ctc":
        return None
    return text.maybe("context", high=MAX_CONTEXT)


def _published_dtype(scheme: Scheme | None, dtype: str) -> str:
    if scheme is None:
        return dtype
    chosen = scheme.experts or scheme.default or (scheme.own[0][1] if scheme.own else None)
    return chosen.name if chosen is not None else dtype


def _block(scheme: Scheme | None) -> int:
    """Input channels that share a scale; only formats whose kernels refuse a cut block count."""
    if scheme is None or scheme.default is None:
        return 0
    packed = scheme.default.name.startswith("int") and any(word in scheme.method for word in _PACKED_GROUPS)
    return scheme.default.columns if packed or scheme.default.columns > _FREE_BLOCK else 0


_FREE_BLOCK = 64
"""Blocks of 16 or 32 (NVFP4, MXFP4) divide every published width."""
_PACKED_GROUPS = ("gptq", "awq", "compressed-tensors", "compressed_tensors")
"""Methods whose kernels take whole groups only, whatever their size (vLLM 0.32: MarlinLinearKernel.can_implement)."""


class _Tally:
    """Sums weights into groups that tensor parallelism treats alike."""

    def __init__(self, scheme: Scheme | None, dtype: str, spelling: Spelling, where: str) -> None:
        self._scheme = scheme
        self._where = where
        self._spelling = spelling
        self._width = DTYPE_BYTES[dtype]
        self._sums: dict[tuple[Part, Split, int], list[int]] = {}

    def add(
        self, part: Part, weights: Iterable[Weight], *, copies: int = 1, kv_heads: int = 0, layer: int = -1
    ) -> None:
        """Count `weights` `copies` times; `layer` is the index that quantisation lists may name."""
        for weight in weights:
            key = (part, weight.split, kv_heads if weight.split == "kv" else 0)
            elements = weight.elements
            found = self._format(part, weight, layer)
            stored = elements * self._width
            if found is not None:
                stored = found.bytes_of(weight) + (elements - weight.matrix_elements) * self._width
            sums = self._sums.setdefault(key, [0, 0, 0])
            sums[0] += copies * elements
            sums[1] += copies * weight.matrix_elements if weight.linear else 0
            sums[2] += copies * round(stored)

    def _format(self, part: Part, weight: Weight, layer: int) -> Format | None:
        if self._scheme is None or not weight.linear:
            return None
        name = self._spelling.of(weight.module, layer)
        found = self._scheme.format_of(weight, name)
        checked = self._scheme.whole_groups and part == "layers" and weight.split != "expert"
        if checked and found is not None and found.columns and weight.columns % found.columns:
            message = f"group_size {found.columns} does not divide the {weight.columns} inputs of {name.exact[0]}"
            hint = "no engine loads such weights: 32, 64, 128, or -1 for whole rows"
            raise BadInputError(Diagnostic("RS2007", message, Location(self._where), hint))
        return found

    def groups(self) -> tuple[WeightGroup, ...]:
        """The groups in order of first appearance."""
        return tuple(
            WeightGroup(part, split, parameters, linear, stored, kv_heads)
            for (part, split, kv_heads), (parameters, linear, stored) in self._sums.items()
        )


def _groups(
    ledger: Ledger, scheme: Scheme | None, dtype: str, *, first: int = 0, where: str = ""
) -> tuple[WeightGroup, ...]:
    tally = _Tally(scheme, dtype, ledger.spelling, where)
    if scheme is not None and scheme.lists:
        for i, layer in enumerate(ledger.layers, start=first):
            tally.add("layers", layer.weights, kv_heads=_kv_heads(layer), layer=i)
    else:
        for layer, copies in Counter(ledger.layers).items():
            tally.add("layers", layer.weights, copies=copies, kv_heads=_kv_heads(layer), layer=first)
    tally.add("embedding", ledger.embedding)
    tally.add("head", ledger.head)
    tally.add("outside", ledger.outside)
    tally.add("tower", ledger.towers)
    return tally.groups()


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
    head = ledger.head or (ledger.embedding[:1] if ledger.tied and ledger.has_language_head else ())
    return inside + sum(w.matrix_elements for w in head if w.columns > 1)


def _is_router(weight: Weight) -> bool:
    return weight.module.endswith(".gate") and weight.columns > 1


def _embedding_parameters(ledger: Ledger) -> int:
    """The table of input words; positions, per-layer tables and a separate head are not in it."""
    return count(ledger.embedding[:1])


def _intermediate(ledger: Ledger) -> int:
    widths = _dense_widths(ledger.layers)
    experts = [layer.moe.intermediate_size for layer in ledger.layers if layer.moe is not None]
    return max(widths, default=max(experts, default=0))


def _dense_widths(layers: Iterable[Layer]) -> tuple[int, ...]:
    names = ("mlp.up_proj", "mlps.up_proj")
    return tuple(sorted({w.rows for layer in set(layers) for w in layer.weights if w.module in names}))
