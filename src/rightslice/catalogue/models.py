"""Model architectures by catalogue name, hub id, alias, folder or configuration file. No network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, cast

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.catalogue.architectures.config import Object
from rightslice.catalogue.architectures.foreign import empty_folder
from rightslice.catalogue.architectures.reader import read_object, stored_weights
from rightslice.catalogue.weight_files import with_stored
from rightslice.core.errors import BadInputError, Diagnostic, Location, did_you_mean

_NEXT: Final = "rightslice catalog models"
_SIZE_IN_NAME: Final = re.compile(r"(?<![A-Za-z0-9.])(?:(\d{1,2})x)?(\d{1,4}(?:\.\d{1,3})?)[bB](?![A-Za-z0-9])")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One catalogue model: the shipped configuration, what differs from it, and the size in its public name."""

    model: str
    config: str
    overrides: Object
    advertised_b: float | None
    note: str


@cache
def _entries() -> Mapping[str, _Entry]:
    """Every name in lower case -> entry."""
    root = files("rightslice.catalogue") / "data"
    found: dict[str, _Entry] = {}
    for item in sorted((root / "architectures").iterdir(), key=lambda i: i.name):
        stem = item.name.removesuffix(".json")
        model = stem.replace("--", "/", 1)
        entry = _Entry(model, stem, {}, None, "")
        for name in (model, stem, model.partition("/")[2]):
            found.setdefault(name.casefold(), entry)
    aliases = json.loads((root / "model_aliases.json").read_text())
    for name, raw in aliases.items():
        model = raw.get("model", name)
        changes = raw.get("overrides", {}), raw.get("advertised_b"), raw.get("note", "")
        entry = _Entry(model, raw["config"], *changes)
        for alias in (name, model, *raw.get("ids", ())):
            if any(changes) or alias.casefold() not in found:
                found[alias.casefold()] = entry
    return found


@cache
def model_names() -> frozenset[str]:
    """Names for listings and suggestions: hub ids and catalogue names."""
    root = files("rightslice.catalogue") / "data"
    shipped = (item.name.removesuffix(".json").replace("--", "/", 1) for item in (root / "architectures").iterdir())
    aliases = json.loads((root / "model_aliases.json").read_text())
    return frozenset((*shipped, *aliases, *(i for raw in aliases.values() for i in raw.get("ids", ()))))


def model_exists(source: str) -> bool:
    """Whether `source` names a catalogue model, or a file or folder that is there."""
    return source.casefold() in _entries() or (_is_path(source) and _path_exists(source))


def hub_id(source: str) -> str:
    """The hub id that `source` stands for: an id itself, else that of the catalogue name; empty for a path."""
    entry = _entries().get(source.casefold())
    if entry:
        return source if "/" in source else entry.model
    return "" if _is_path(source) and _path_exists(source) else source


def resolve_model(source: str) -> Architecture:
    """The architecture of a catalogue name, hub id, alias, folder or configuration file.

    A folder is read with its `hf_quant_config.json` and the headers of its safetensors files, which give the exact
    bytes. Raises BadInputError: RS0310 unknown name, RS0401 to RS0408 unusable file, RS2007 impossible configuration.
    """
    if source.casefold() in _entries():
        return _from_catalogue(source.casefold())
    if _is_path(source) and _path_exists(source):
        return _from_path(Path(source))
    if source.endswith(".json") or source.startswith((".", "/", "~")):
        raise BadInputError(Diagnostic("RS0401", "no such file or folder", Location(source[:200])), _NEXT)
    hint = did_you_mean(source, model_names()) or "give a catalogue name, a hub id, a folder or a config.json"
    raise BadInputError(Diagnostic("RS0310", f'unknown model "{source[:120]}"', None, hint), _NEXT)


def _is_path(source: str) -> bool:
    return bool(source) and "\0" not in source and len(source) < 4096


def _path_exists(source: str) -> bool:
    try:
        return Path(source).exists()
    except OSError:
        return False


@cache
def _from_catalogue(name: str) -> Architecture:
    entry = _entries()[name]
    item = files("rightslice.catalogue") / "data" / "architectures" / f"{entry.config}.json"
    raw = cast("dict[str, object]", json.loads(item.read_text()))
    raw.update(entry.overrides)
    hf_quant = raw.pop("hf_quant_config", None)
    source = raw.pop("_source", "")
    found = read_architecture(
        cast("Object", raw), entry.model, hf_quant=cast("Object | None", hf_quant) if hf_quant else None, checked=True
    )
    notes = (*found.notes, *([entry.note] if entry.note else []))
    advertised = entry.advertised_b or advertised_parameters_b(entry.model)
    return replace(found, source=str(source), notes=notes, advertised_parameters_b=advertised)


def _from_path(path: Path) -> Architecture:
    folder = path if path.is_dir() else path.parent
    config = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not config.is_file():
        raise empty_folder(path)
    raw = read_object(config)
    quant = folder / "hf_quant_config.json"
    hf_quant = read_object(quant) if config.name == "config.json" and quant.is_file() else None
    name = str(raw.get("_name_or_path") or "") or folder.resolve().name
    found = read_architecture(raw, name[:120], where=str(config), hf_quant=hf_quant)
    found = replace(found, source=str(config), advertised_parameters_b=advertised_parameters_b(name))
    stored = stored_weights(folder, found.layers) if path.is_dir() else None
    return with_stored(found, stored) if stored is not None else found


def advertised_parameters_b(name: str) -> float | None:
    """The size that a public name claims, in billions: `gemma-3-27b-it` -> 27, `Mixtral-8x7B` -> 56; None without."""
    match = _SIZE_IN_NAME.search(name.rpartition("/")[2])
    if match is None:
        return None
    return float(match[1] or 1) * float(match[2])
