"""Where a model's architecture comes from: the catalogue, a folder or file, and, when it is installed, the hub."""

from __future__ import annotations

from dataclasses import replace

from rightslice.adapters import hub
from rightslice.adapters.hub_headers import header_weights
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.models import advertised_parameters_b, model_exists, resolve_model
from rightslice.catalogue.weight_files import with_stored


def may_exist(source: str) -> bool:
    """Known, or worth asking the hub for."""
    return model_exists(source) or hub.worth_asking(source)


def find_model(source: str) -> Architecture:
    """The architecture of a catalogue name, hub id, alias, folder or configuration file.

    Raises BadInputError RS0310, RS0401 to RS0408 or RS2007, and OutsideError RS0601.
    """
    if model_exists(source) or not may_exist(source):
        if not model_exists(source) and (refusal := hub.kept_off(source)) is not None:
            raise refusal
        return resolve_model(source)
    folder = hub.fetch(source)
    described = resolve_model(str(folder / hub.CONFIG))
    stored = header_weights(source, folder, described.layers)
    found = with_stored(described, stored) if stored else resolve_model(str(folder))
    return replace(
        found,
        name=source,
        source=f"hub {source} at {folder.name}",
        advertised_parameters_b=advertised_parameters_b(source),
    )
