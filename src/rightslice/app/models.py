"""Where a model's architecture comes from: the catalogue, a folder or file, and, when it is installed, the hub."""

from __future__ import annotations

from dataclasses import replace

from rightslice.adapters import hub
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.models import model_exists, resolve_model


def may_exist(source: str) -> bool:
    """Known, or worth asking the hub for."""
    return model_exists(source) or hub.worth_asking(source)


def find_model(source: str) -> Architecture:
    """The architecture of a catalogue name, hub id, alias, folder or configuration file.

    Raises BadInputError RS0310, RS0401 to RS0408 or RS2007, and OutsideError RS0601.
    """
    if model_exists(source) or not may_exist(source):
        return resolve_model(source)
    folder = hub.fetch(source)
    return replace(resolve_model(str(folder)), name=source, source=f"hub {source} at {folder.name}")
