"""A stand-in for a model that the catalogue does not know: a usual decoder of the stated size."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, cast

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.catalogue.architectures.config import Object

_HEAD: Final = 128
_KV_HEADS: Final = 8
_VOCABULARY: Final = 128_000
_EXPERTS_PER_TOKEN: Final = 8
_WIDTH_PER_LAYER: Final = 128
"""Hidden size over layers of published decoders of 7 to 405 billion parameters: 100 to 130."""
_MLP_RATIO: Final = 3.5
_CONTEXT: Final = 131_072


@lru_cache(maxsize=64)
def usual_decoder(parameters: float, active_parameters: float) -> Architecture:
    """A decoder with grouped-query attention of about that many parameters; experts where fewer are active.

    Layers L and hidden size h = 128 L, so that 12.5 h^2 a layer and the embeddings give the active parameters; experts
    hold the difference. Raises BadInputError for sizes that no model has.
    """
    active = min(active_parameters or parameters, parameters)
    layers = max(2, round((active / (12.5 * _WIDTH_PER_LAYER**2)) ** (1.0 / 3.0)))
    hidden = max(1024, round(layers * _WIDTH_PER_LAYER / 1024) * 1024)
    attention = 2 * hidden * hidden + 2 * hidden * _KV_HEADS * _HEAD
    per_layer = max(hidden * hidden, (active - 2 * _VOCABULARY * hidden) / layers - attention)
    width = max(256, round(per_layer / (3 * hidden) / 256) * 256)
    config: dict[str, object] = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // _HEAD,
        "num_key_value_heads": _KV_HEADS,
        "vocab_size": _VOCABULARY,
        "max_position_embeddings": _CONTEXT,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    if active < 0.9 * parameters:
        expert = max(128, round(width / _EXPERTS_PER_TOKEN / 128) * 128)
        rest = parameters - active + layers * 3 * hidden * width
        experts = max(_EXPERTS_PER_TOKEN, round(rest / (layers * 3 * hidden * expert) / 8) * 8)
        config |= {
            "model_type": "qwen3_moe",
            "architectures": ["Qwen3MoeForCausalLM"],
            "moe_intermediate_size": expert,
            "num_experts": experts,
            "num_experts_per_tok": _EXPERTS_PER_TOKEN,
            "head_dim": _HEAD,
        }
    return read_architecture(cast("Object", config), f"{parameters / 1e9:.4g}B")
