"""Multi-token-prediction layers: what a checkpoint holds beside the model to draft further tokens."""

from __future__ import annotations

from typing import Final

from rightslice.catalogue.architectures.config import Config
from rightslice.catalogue.architectures.ledger import Ledger
from rightslice.catalogue.architectures.weights import Layer, Weight, vector

_COUNTS: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""The names of their number: DeepSeek, GLM, MiMo and Nemotron; Qwen3.5; MiniMax."""
_MOST: Final = 16
_ATTENTION: Final = frozenset({"*", "attention"})
_EXPERTS: Final = frozenset({"E", "moe"})


def prediction_layers(ledger: Ledger, text: Config) -> tuple[Layer, ...]:
    """One layer for each predicted token, in order; none where the configuration has no such layers.

    A block is like the model's last one (Nemotron: like its last attention and its last experts, as its pattern says).
    Beside it: the matrix that joins embedding and hidden state (2 x hidden -> hidden, whole on every rank, at the base
    dtype: nn.Linear in vLLM 0.32) and three norms. Embedding and head are the model's own; checkpoints of DeepSeek
    repeat them.
    """
    number = next((n for key in _COUNTS if (n := text.maybe(key, high=_MOST))), 0)
    if not number or not ledger.layers:
        return ()
    hidden = text.number("hidden", low=1)
    joined = (Weight("eh_proj", hidden, 2 * hidden), *(vector(name, hidden) for name in ("enorm", "hnorm", "norm")))
    block = _block(ledger, text)
    inner = text.number("mtp_transformer_layers", 1, low=1, high=_MOST)
    weights = (*joined, *(w for layer in block * inner for w in layer.weights))
    caches = tuple(cache for layer in block * inner for cache in layer.caches)
    moe = next((layer.moe for layer in block if layer.moe is not None), None)
    return (Layer(weights, caches, moe),) * number


def _block(ledger: Ledger, text: Config) -> tuple[Layer, ...]:
    pattern = text.words("mtp_layers_block_type") or tuple(text.text("mtp_hybrid_override_pattern"))
    last = ledger.layers[-1:]
    if not pattern:
        return last
    found: list[Layer] = []
    for word in pattern[:_MOST]:
        like = [layer for layer in ledger.layers if _is(layer, word)]
        found += like[-1:] or last
    return tuple(found)


def _is(layer: Layer, word: str) -> bool:
    if word in _EXPERTS:
        return layer.moe is not None
    return word in _ATTENTION and any(cache.kind in ("full", "mla", "sliding") for cache in layer.caches)
