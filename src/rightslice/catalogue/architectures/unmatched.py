"""Entries of quantisation lists that name no module of the model: its modules are called otherwise than is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rightslice.catalogue.architectures.ledger import Ledger
from rightslice.catalogue.architectures.modelopt import FILES
from rightslice.catalogue.architectures.module_names import Names
from rightslice.catalogue.architectures.scheme import Scheme
from rightslice.catalogue.architectures.spelling import tower_part

_LAYER: Final = re.compile(r"\.\d+\.")
_EXPERT: Final = re.compile(r"\.\d+(?=\.|$)")
_NEVER_CONVERTED: Final = ("norm", "router", "rotary", "embed", "head", "bias", "indexer", "eh_proj")
"""Parts of names of modules that stay as they are, listed or not."""
_SHOWN: Final = 3


def unmatched_modules(ledger: Ledger, scheme: Scheme | None) -> tuple[str, ...]:
    """The remark on names of modules inside layers that are not known, or nothing. Patterns are not looked at."""
    if scheme is None or not scheme.lists:
        return ()
    own = [ledger.spelling.of(weight.module, 0) for layer in set(ledger.layers) for weight in layer.weights]
    known = {_split(text) for name in own for text in (*name.exact, *name.loose, *name.fused)}
    paths = {end for path, _ in known for end in _ends(path)}
    modules = {start for _, module in known for start in _starts(module)}
    found: dict[tuple[str, str], str] = {}
    for entry in sorted(entry for names in scheme.lists for entry in _literal(names)):
        path, module = _split(entry)
        if module and not _harmless(path, module) and not (path in paths and module in modules):
            found.setdefault((path, module), entry[:60])
    if not found:
        return ()
    shown = ", ".join([*found.values()][:_SHOWN])
    told = f"quantisation lists name modules that are not known here ({shown})"
    return (f"{told}: what they say of these is not counted; {FILES}",)


def _literal(names: Names) -> Iterator[str]:
    yield from (entry for entry in names.plain | names.trees if tower_part(entry) is None)


def _split(name: str) -> tuple[str, str]:
    """The path before the number of the layer, and that inside the layer, the first expert for all; empty outside."""
    match = _LAYER.search(name)
    return (name[: match.start()], _EXPERT.sub(".0", name[match.end() :])) if match else ("", "")


def _ends(path: str) -> Iterator[str]:
    parts = path.split(".")
    yield from (".".join(parts[i:]) for i in range(len(parts)))


def _starts(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[: i + 1]) for i in range(len(parts)))


def _harmless(path: str, module: str) -> bool:
    last = module.rpartition(".")[2]
    return path.startswith("mtp") or last == "gate" or any(word in module for word in _NEVER_CONVERTED)
