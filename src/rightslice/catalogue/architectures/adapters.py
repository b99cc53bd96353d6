"""How large low-rank adapters of a model are, matrix by matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

from rightslice.catalogue.architecture import LoraWidths
from rightslice.catalogue.architectures.ledger import Ledger
from rightslice.catalogue.architectures.weights import Layer, Weight

_Field = Literal["whole", "split", "kv", "experts_whole", "experts_split"]
_BY_INPUT: Final = ("o_proj", "out_proj", "down_proj", "o_b_proj", "linear_out")
"""Matrices whose inputs are divided over the ranks; all others are divided by outputs."""


def lora_widths(ledger: Ledger) -> LoraWidths:
    """Inputs and outputs of every matrix that an engine wraps: all linear layers, routers and experts; the vocabulary.

    As vLLM 0.32 allocates them (lora/layers): a matrix divided by outputs keeps its adapter's input half whole and
    divides the output half, one divided by inputs the other way round; replicated ones keep both. Each expert has its
    own, with an input half for gate and for up. Embedding and head are whole; models that do not let adapters touch
    them (embedding_modules) take less.
    """
    sums: Counter[_Field] = Counter()
    for layer, copies in Counter(ledger.layers).items():
        for field, elements in _of_layer(layer):
            sums[field] += copies * elements
    for weight in (*ledger.embedding[:1], *(ledger.head[:1] or ledger.embedding[:1])):
        sums["whole"] += weight.rows + weight.columns
    return LoraWidths(
        sums["whole"],
        sums["split"],
        sums["kv"],
        experts_whole=sums["experts_whole"],
        experts_split=sums["experts_split"],
    )


def _of_layer(layer: Layer) -> Iterator[tuple[_Field, int]]:
    width = layer.moe.intermediate_size if layer.moe else 0
    for weight in layer.weights:
        router = weight.module.endswith(".gate") and weight.columns > 1
        if not weight.linear and not router:
            continue
        inputs, outputs = weight.copies * weight.columns, weight.copies * weight.rows
        by_input = weight.module.endswith(_BY_INPUT)
        if weight.split == "expert":
            parts = 1 if by_input else max(1, weight.rows // max(1, width))
            yield "experts_whole", outputs if by_input else parts * inputs
            yield "experts_split", inputs if by_input else outputs
        elif weight.split == "replicate":
            yield "whole", inputs + outputs
        else:
            yield "whole", outputs if by_input else inputs
            yield _divided(weight), inputs if by_input else outputs


def _divided(weight: Weight) -> _Field:
    return "kv" if weight.split == "kv" else "split"
