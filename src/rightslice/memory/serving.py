"""Whether an engine serves a model's architecture class at all."""

from __future__ import annotations

from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engine_architectures import ServedClasses, served_classes
from rightslice.catalogue.engines import EngineFacts
from rightslice.catalogue.versions import version_key
from rightslice.memory.problems import Problem, Remedy

_SHOWN: Final = 60
"""Characters of a class name."""


def serving(architecture: Architecture, facts: EngineFacts, version: str) -> Problem | str | None:
    """Why `version` does not serve the architecture, or what is to be known about how it does; None when it just does.

    The list is of one version: a class it lacks is not served by others either, unless an older one had it.
    """
    table = served_classes(facts.name)
    if not architecture.classes:
        return f"the configuration names no architectures: whether {facts.title} serves the model is not known"
    name = architecture.classes[0]
    if table is None:
        return f"whether {facts.title} serves {name[:_SHOWN]} is not known: no list of its architectures was read"
    told = f"{facts.title} {table.version}"
    if any(table.own(known) for known in architecture.classes):
        older = version_key(version) < version_key(table.version)
        return f"{told} serves {name}; whether {version} does was not read" if older else None
    last = table.removed.get(name, "")
    if last and version_key(version) <= version_key(last):
        return None
    if _by_transformers(architecture, table, name):
        dropped = f"{facts.title} dropped its own {name} after {last}; " if last else ""
        return f"{dropped}{told} runs {name} by its Transformers backend: memory counts as for one of its own"
    return Problem("class", *_why_not(architecture, table, told, name[:_SHOWN]))


def _why_not(
    architecture: Architecture, table: ServedClasses, told: str, name: str
) -> tuple[str, tuple[Remedy, ...], str]:
    """Reason, no remedies, and what else to do."""
    if last := table.removed.get(name):
        return (
            f"{told} has dropped {name}: {last} was the last version with it",
            (),
            f"version {last}, or another engine",
        )
    if plugin := table.plugins.get(name):
        return f"{told} serves {name} by a plugin only", (), f"the plugin {plugin}"
    if name in table.compatible:
        reason = f"{told} has no {name}, and its Transformers backend does not start models of kind {architecture.kind}"
        return reason, (), "another engine"
    reason = f"{told} has no {name}, nor has Transformers {table.transformers_version} one that it can run"
    return reason, (), "another engine, or code of the model's own for the Transformers backend"


def _by_transformers(architecture: Architecture, table: ServedClasses, name: str) -> bool:
    if name in table.transformers:
        return True
    return name in table.compatible and architecture.kind not in table.fails
