"""A whole model as weights: what every total, byte count and shard is summed from."""

from __future__ import annotations

from dataclasses import dataclass, field

from rightslice.catalogue.architectures.config import Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.spelling import Spelling
from rightslice.catalogue.architectures.weights import IDLE_EXPERTS, Layer, Weight, count


@dataclass(frozen=True, slots=True)
class Ledger:
    """`layers` in order, `outside` everything else. `head` is empty when the embedding serves as head.

    `spelling`: the names of its modules, which quantisation lists refer to.
    """

    layers: tuple[Layer, ...]
    embedding: tuple[Weight, ...] = ()
    head: tuple[Weight, ...] = ()
    outside: tuple[Weight, ...] = ()
    towers: tuple[Weight, ...] = ()
    tied: bool = False
    has_language_head: bool = True
    approximations: tuple[str, ...] = ()
    spelling: Spelling = field(default_factory=Spelling)

    @property
    def parameters(self) -> int:
        """All parameters."""
        outside = count(self.embedding) + count(self.head) + count(self.outside) + count(self.towers)
        return outside + sum(layer.elements for layer in self.layers)

    @property
    def idle_parameters(self) -> int:
        """Routed experts that one token does not visit."""
        images = sum(w.elements for layer in self.layers for w in layer.weights if w.module == IDLE_EXPERTS)
        return images + sum(
            (layer.moe.experts - layer.moe.experts_per_token) * layer.moe.expert_parameters
            for layer in self.layers
            if layer.moe is not None
        )


def unknown_family(name: str) -> str:
    """The remark on a configuration whose class is not in the data."""
    return (
        f'model_type "{name[:60]}" is not in the catalogue of families: layers are read from the keys alone'
        " (RMS norms twice a layer, no biases unless the keys say so)"
    )


def norm(family: Family, module: str, width: int, style: str = "") -> Weight:
    """A normalisation of `width`: RMS (weights), layer norm (weights and biases), or without parameters."""
    style = style or family.trait("norm", "rms")
    if style == "none":
        return Weight(module, 0)
    return Weight(module, width, bias=width if style == "layer" else 0)


def has_language_head(config: Config, family: Family) -> bool:
    """Whether the class named in `architectures` computes logits over the vocabulary."""
    if family.switch("always_head", config):
        return True
    names = config.words("architectures") or ()
    without = ("Model", "ForSequenceClassification", "ForTokenClassification", "Encoder")
    return not names or names[0].endswith("LMHeadModel") or not names[0].endswith(without)


def label_head(config: Config, hidden: int) -> tuple[Weight, ...]:
    """The classification head of a decoder: one row per label."""
    names = config.words("architectures") or ()
    if not names or not names[0].endswith("ForSequenceClassification"):
        return ()
    labels = config.raw("id2label")
    number = len(labels) if isinstance(labels, dict) and labels else config.number("num_labels", 2)
    return (Weight("score", number, hidden),)
