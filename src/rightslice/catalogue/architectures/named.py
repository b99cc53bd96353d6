"""Towers that a configuration only names: LLaVA's `mm_vision_tower`, Phi-3-vision's `img_processor`, fixed towers."""

from __future__ import annotations

from typing import Final

from rightslice.catalogue.architectures.config import Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.weights import Weight, linear

_NAMED: Final[dict[str, tuple[int, int]]] = {
    "clip-vit-large-patch14-336": (303_507_456, 1024),
    "clip-vit-large-patch14": (303_179_776, 1024),
    "siglip-so400m-patch14-384": (428_225_600, 1152),
    "siglip-base-patch16-224": (92_884_224, 768),
}
"""Name of a public checkpoint -> parameters of its vision tower and its width (Transformers classes, meta device)."""


def named_tower(config: Config, parent: Family, text: int) -> tuple[tuple[Weight, ...], str]:
    """The tower of a flat configuration with its projector, and a remark where it is not exact. Both may be empty."""
    if fixed := parent.amount("fixed_tower", 0):
        return (Weight("vision_tower", fixed), *_fixed_projector(config, parent, text)), ""
    name = config.text("mm_vision_tower")
    style = config.text("mm_projector_type", "linear")
    if part := config.part("img_processor"):
        nested = config.inside(part)
        name, style = nested.text("model_name") or "clip-vit-large-patch14-336", "pixels"
    if not name:
        return (), ""
    found = _NAMED.get(name.rstrip("/").rpartition("/")[2].casefold())
    if found is None:
        return (), f"the vision tower {name[:80]} and its projector are not counted"
    parameters, width = found
    return (Weight("vision_tower", parameters), *_projector(config, style, width, text)), ""


def _projector(config: Config, style: str, width: int, text: int) -> tuple[Weight, ...]:
    if style == "linear":
        return (linear("mm_projector", text, width, bias=True),)
    inputs = 4 * width if style == "pixels" else width
    found = [linear("mm_projector.0", text, inputs, bias=True), linear("mm_projector.2", text, text, bias=True)]
    if style == "pixels":
        found.append(Weight("mm_projector.separators", 2, inputs))
    if style.endswith("_Norm"):
        found.append(Weight("mm_projector.norms", 4, text))
    if "unpad" in config.text("mm_patch_merge_type"):
        found.append(Weight("image_newline", text))
    return tuple(found)


def _fixed_projector(config: Config, parent: Family, text: int) -> tuple[Weight, ...]:
    """Molmo: a gated block from the tower's width into the language model's."""
    width = parent.amount("fixed_width", 0)
    if not width:
        return ()
    inner = config.number("intermediate", 4 * text) // 2
    return (linear("image_projector.up", 2 * inner, width), linear("image_projector.down", text, inner))
