"""The ledger: every matrix and vector of a model, with what quantisation and tensor parallelism need to know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from rightslice.catalogue.architecture import AttentionGroup, MoeGroup

Split = Literal["shard", "kv", "replicate", "vocab", "expert", "shared"]
"""How tensor parallelism divides a weight.

shard: evenly. kv: by KV heads, repeated when there are more ranks than heads. replicate: whole on every rank.
vocab: by rows of the vocabulary. expert: a routed expert, split by width or spread over the ranks. shared: a shared
expert, split evenly or whole on every rank where tokens are spread instead.
"""


IDLE_EXPERTS: Final = "mlp.vision_experts"
"""Module of experts that no text token visits: in the total, not among the active parameters."""


@dataclass(frozen=True, slots=True)
class Weight:
    """`copies` equal tensors of `rows` x `columns` elements and `bias` further ones.

    `module` is the name inside its layer as published checkpoints spell it (quantisation lists refer to it).
    `linear` tells a matrix that a quantiser may convert from an embedding, convolution, norm or router. `head_dim` of
    a `kv` weight is the rows of one KV head.
    """

    module: str
    rows: int
    columns: int = 1
    split: Split = "replicate"
    copies: int = 1
    bias: int = 0
    linear: bool = False

    @property
    def matrix_elements(self) -> int:
        """Elements of the tensors without biases."""
        return self.copies * self.rows * self.columns

    @property
    def elements(self) -> int:
        """All parameters."""
        return self.copies * (self.rows * self.columns + self.bias)


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder or encoder layer. `caches` and `moe` are written for a single layer."""

    weights: tuple[Weight, ...]
    caches: tuple[AttentionGroup, ...] = ()
    moe: MoeGroup | None = None

    @property
    def elements(self) -> int:
        """All parameters of the layer."""
        return count(self.weights)


def count(weights: Iterable[Weight]) -> int:
    """Parameters of several weights."""
    return sum(w.elements for w in weights)


def linear(module: str, rows: int, columns: int, split: Split = "shard", *, bias: bool = False) -> Weight:
    """A dense matrix that a quantiser may convert."""
    return Weight(module, rows, columns, split, bias=rows if bias else 0, linear=True)


def vector(module: str, size: int, *, bias: bool = False) -> Weight:
    """A norm or another small tensor, whole on every rank."""
    return Weight(module, size, bias=size if bias else 0)


def no_cache(kind: Literal["encoder", "cross"] = "encoder", heads: int = 0, head_dim: int = 0) -> AttentionGroup:
    """The attention of an encoder layer: nothing is kept between steps."""
    return AttentionGroup(kind, 1, heads, heads, head_dim, head_dim, 0)
