"""A quantisation scheme: a format for all weights, for some of them, and what is left out."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.catalogue.architectures.formats import Format
from rightslice.catalogue.architectures.module_names import Names
from rightslice.catalogue.architectures.spelling import ModuleName
from rightslice.catalogue.architectures.weights import Weight


@dataclass(frozen=True, slots=True)
class Scheme:
    """`default` for every linear weight that no list names, `own` for those named, `experts` for routed experts.

    `skip` goes before all others, and the first list of `own` that names a weight decides; None keeps the base dtype.
    `head`: whether the output head is converted like other weights. `whole_groups`: whether the engine refuses inputs
    that are no multiple of the group. `notes` are facts about the checkpoint,
    `approximations` say what its files would tell more exactly.
    """

    method: str
    default: Format | None
    experts: Format | None = None
    own: tuple[tuple[Names, Format | None], ...] = ()
    skip: Names | None = None
    head: bool = False
    whole_groups: bool = False
    notes: tuple[str, ...] = ()
    approximations: tuple[str, ...] = ()

    def format_of(self, weight: Weight, name: ModuleName) -> Format | None:
        """The format of one weight; None when it stays at the base dtype."""
        if not weight.linear or (weight.split == "vocab" and not self.head):
            return None
        if self.skip is not None and self.skip.match(name):
            return None
        for listed, found in self.own:
            if listed.match(name):
                return found
        return self.experts if self.experts is not None and weight.split == "expert" else self.default

    @property
    def lists(self) -> tuple[Names, ...]:
        """The lists that name modules."""
        return (*(names for names, _ in self.own), *((self.skip,) if self.skip is not None else ()))

    @property
    def unread(self) -> tuple[str, ...]:
        """Patterns of the lists that cannot be read, the first few."""
        return tuple(dict.fromkeys(text for names in self.lists for text in names.unread))[:3]
