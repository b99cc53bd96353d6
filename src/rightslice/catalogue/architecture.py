"""Value type of a model architecture: what sizes memory and time, read from a configuration and never from a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AttentionKind = Literal["full", "sliding", "chunked", "mla", "linear", "mamba", "cross", "encoder"]
"""full: grows without bound. sliding/chunked: keeps a window. mla: latent cache. linear/mamba: constant state.
cross: keys of the encoder, constant per sequence. encoder: no cache."""


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """`layers` equal token mixers. Cache elements are counted for one layer and all its KV heads, K and V together.

    `cross` counts elements per token of the encoder's input (image or text), not of the answer.
    `kv_elements_per_token` is 0 for layers that share another layer's cache or keep none; `state_bytes_per_sequence`
    is constant per sequence and layer (recurrent, convolution or cross-attention state), of which
    `spare_state_bytes_per_sequence` are one column of the convolution: engines keep the columns before a token,
    Transformers the token's own as well. `compress_ratio` tokens share one entry of a compressed cache, 0 where each
    has its own; `compressed_index_width` is that of the indexer's keys beside such an entry, counted in its elements.
    """

    kind: AttentionKind
    layers: int
    query_heads: int
    kv_heads: int
    qk_head_dim: int
    v_head_dim: int
    kv_elements_per_token: int
    window_tokens: int = 0
    indexer_elements_per_token: int = 0
    state_bytes_per_sequence: int = 0
    spare_state_bytes_per_sequence: int = 0
    compress_ratio: int = 0
    compressed_index_width: int = 0


@dataclass(frozen=True, slots=True)
class MoeGroup:
    """`layers` equal mixture-of-experts blocks; parameters are of one layer."""

    layers: int
    experts: int
    experts_per_token: int
    expert_parameters: int
    shared_parameters: int
    intermediate_size: int


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Weights that tensor parallelism treats alike. Counts are of the whole model.

    `part`: layers, embedding, head, outside (norms and the like) or tower (vision, audio). `split`: shard (evenly), kv
    (by KV heads, repeated when there are more ranks), replicate, vocab, expert, shared (experts of every token).
    `linear_parameters` are those a quantiser may convert; `kv_heads` belongs to a `kv` group.
    """

    part: Literal["layers", "embedding", "head", "outside", "tower"]
    split: Literal["shard", "kv", "replicate", "vocab", "expert", "shared"]
    parameters: int
    linear_parameters: int
    published_bytes: int
    kv_heads: int = 0


@dataclass(frozen=True, slots=True)
class LoraWidths:
    """Elements that one adapter of rank 1 adds, over all layers: what every rank holds, what tensor parallelism divides
    evenly or by KV heads, and the same of all routed experts.
    """

    whole: int = 0
    split: int = 0
    kv: int = 0
    experts_whole: int = 0
    experts_split: int = 0


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model. Parameter counts are of the published checkpoint without multi-token-prediction layers.

    `matmul_parameters` are the weights that every token of the text model multiplies with once per step outside
    routed experts: attention projections, dense MLPs, shared experts and the output head. `published_weights_bytes`
    follows the quantisation of the checkpoint, scales included. `quantisation_block` is the block or group of input
    channels that share a scale and must not be cut by tensor parallelism; `dense_intermediate_sizes` the widths of
    dense feed-forward blocks. `predictor`: the multi-token-prediction layers, which use the embedding and head of the
    model and are loaded only to draft tokens; `draft`: another model that somebody chose to draft them. `classes`: the
    architectures that the configuration names, by which engines choose their implementation.
    """

    name: str
    family: str
    kind: Literal["decoder", "encoder", "encoder-decoder", "speech-ctc", "vision"]
    hidden_size: int
    intermediate_size: int
    layers: int
    vocab_size: int
    query_heads: int
    kv_heads: int
    tied_embeddings: bool
    parameters: int
    active_parameters: int
    embedding_parameters: int
    vision_parameters: int
    matmul_parameters: int
    attention: tuple[AttentionGroup, ...]
    moe: tuple[MoeGroup, ...]
    context_max: int | None
    published_dtype: str
    published_weights_bytes: int
    quantisation: str = ""
    kv_dtype_published: str = ""
    advertised_parameters_b: float | None = None
    approximations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""
    weights: tuple[WeightGroup, ...] = ()
    quantisation_block: int = 0
    dense_intermediate_sizes: tuple[int, ...] = ()
    lora: LoraWidths = LoraWidths()
    predictor: Architecture | None = None
    draft: Architecture | None = None
    classes: tuple[str, ...] = ()

    @property
    def routed_parameters(self) -> int:
        """Weights of all routed experts."""
        return sum(g.layers * g.experts * g.expert_parameters for g in self.moe)

    def cache_elements_per_token(self) -> int:
        """Elements that each further token adds in layers that grow without bound (indexer keys apart)."""
        return sum(g.layers * g.kv_elements_per_token for g in self.attention if g.kind in ("full", "mla"))
