"""How llm-compressor would bring a model to a lower precision: scheme, modifier and what must stay as published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.core.engine import DTYPE_BITS

LIBRARY: Final = "llmcompressor"
LIBRARY_VERSION: Final = "0.14.0.1"
"""The release whose parser the recipes were read with."""
_GROUPS: Final = (128, 64, 32)
"""Input channels that share a scale, widest first: 128 is what W4A16 means, narrower ones need more scales."""
_HEAD: Final = ("re:.*lm_head$",)
_ROUTERS: Final = ("re:.*[.]gate$", "re:.*[.]shared_expert_gate$", "re:.*router.*")
_TOWERS: Final = (
    "re:.*vision.*", "re:.*visual.*", "re:.*audio.*", "re:.*projector.*", "re:.*connector.*", "re:.*aligner.*",
)  # fmt: skip
_RECURRENT: Final = ("re:.*linear_attn.*", "re:.*mamba.*", "re:.*mixer[.](in|x|dt|out)_proj$", "re:.*conv1d.*")


@dataclass(frozen=True, slots=True)
class Method:
    """One way down. `block`: input channels per scale that the weights must divide by, 0 when any width will do."""

    scheme: str
    modifier: str
    calibrated: bool
    block: int


METHODS: Final[Mapping[str, Method]] = {
    "fp8": Method("FP8_DYNAMIC", "QuantizationModifier", calibrated=False, block=0),
    "int8": Method("W8A8", "GPTQModifier", calibrated=True, block=0),
    "int4": Method("W4A16", "GPTQModifier", calibrated=True, block=128),
    "nvfp4": Method("NVFP4", "QuantizationModifier", calibrated=True, block=16),
    "fp4": Method("NVFP4", "QuantizationModifier", calibrated=True, block=16),
    "mxfp4": Method("MXFP4", "QuantizationModifier", calibrated=False, block=32),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to write down. `group_size`: set where the scheme's own group does not divide the weights, else 0."""

    method: Method
    ignore: tuple[str, ...]
    group_size: int


def no_recipe(architecture: Architecture, dtype: str) -> str:
    """Why llm-compressor cannot be asked to bring the published checkpoint to `dtype`; empty when it can."""
    published = architecture.published_dtype
    if dtype not in METHODS:
        return f"{dtype} is not a format to quantise to"
    if architecture.quantisation or DTYPE_BITS.get(published, 16) < 16:
        return f"the checkpoint is {published} already: start from one of 16 bit"
    if architecture.kind != "decoder":
        return f"recipes are for text decoders, this is a model of kind {architecture.kind}"
    block = METHODS[dtype].block
    if block and not _group(architecture, block):
        widths = ", ".join(str(width) for width in sorted(set(_widths(architecture))))
        return f"no group of input channels that {dtype} allows divides all of its widths {widths}"
    return ""


def recipe(architecture: Architecture, dtype: str) -> Recipe:
    """The recipe for a model that `no_recipe` has nothing against; ValueError otherwise."""
    if problem := no_recipe(architecture, dtype):
        raise ValueError(problem)
    method = METHODS[dtype]
    group = _group(architecture, method.block) if method.block else 0
    return Recipe(method, _ignored(architecture), group if group != method.block else 0)


def _ignored(architecture: Architecture) -> tuple[str, ...]:
    """Heads, routers and towers are small and sensitive; recurrent mixers lose the most. Engines expect them so too."""
    recurrent = any(group.kind in ("linear", "mamba") for group in architecture.attention)
    return (
        *_HEAD,
        *(_ROUTERS if architecture.moe else ()),
        *(_TOWERS if architecture.vision_parameters else ()),
        *(_RECURRENT if recurrent else ()),
    )


def _group(architecture: Architecture, block: int) -> int:
    """The widest allowed group that divides every input width; 0 when none does. Only integers may take others."""
    allowed = _GROUPS if block == _GROUPS[0] else (block,)
    return next((size for size in allowed if not any(width % size for width in _widths(architecture))), 0)


def _widths(architecture: Architecture) -> Iterator[int]:
    """Input widths of quantised matrices: hidden, feed-forward, experts, concatenated heads."""
    yield architecture.hidden_size
    yield from architecture.dense_intermediate_sizes
    yield from (group.intermediate_size for group in architecture.moe)
    yield from (g.query_heads * g.v_head_dim for g in architecture.attention if g.kind not in ("linear", "mamba"))
