"""A quantisation scheme: a format for all weights, for some of them, and what is left out."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.catalogue.architectures.formats import Format
from rightslice.catalogue.architectures.module_names import Names
from rightslice.catalogue.architectures.weights import Weight


@dataclass(frozen=True, slots=True)
class Scheme:
    """`default` for every linear weight that no list names, `own` for those named, `experts` for routed experts.

    `notes` are facts about the checkpoint, `approximations` say what its files would tell more exactly.
    """

    method: str
    default: Format | None
    experts: Format | None = None
    own: tuple[tuple[Names, Format], ...] = ()
    skip: Names | None = None
    notes: tuple[str, ...] = ()
    approximations: tuple[str, ...] = ()

    def format_of(self, weight: Weight, layer: int) -> Format | None:
        """The format of one weight; None when it stays at the base dtype."""
        if not weight.linear:
            return None
        if weight.split == "vocab":  # kept at the base dtype even where a list names it: the safe side
            return None
        for listed, found in self.own:
            if listed.match(weight.module, layer):
                return found
        if self.experts is not None and weight.split == "expert":
            return self.experts
        if self.default is None or (self.skip is not None and self.skip.match(weight.module, layer)):
            return None
        return self.default

    @property
    def depends_on_layer(self) -> bool:
        """Whether any list names single layers."""
        lists = [names for names, _ in self.own] + ([self.skip] if self.skip else [])
        return any(names.by_layer for names in lists)
