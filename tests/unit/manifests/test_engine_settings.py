"""Arguments of emitted servers, read back as an engine reads them, are the settings that the plan was verified with."""

from __future__ import annotations

import shlex

import pytest
from emitted import objects, tree

from plans import EVERY
from rightslice.catalogue.accelerators import device
from rightslice.catalogue.models import model_exists, resolve_model
from rightslice.core.engine import EngineSettings
from rightslice.manifests.resolve import resolve
from rightslice.memory.startup import command_line

PLANNED = [
    (name, unit.name)
    for name, made in sorted(EVERY.items())
    for unit in resolve(made()).units
    if unit.deployment.engine.settings and not unit.grouped and model_exists(unit.model.source)
]


@pytest.mark.parametrize(("name", "workload"), PLANNED)
def test_arguments_read_back_are_the_planned_settings(name: str, workload: str) -> None:
    (planned,) = [unit.deployment for unit in resolve(EVERY[name]()).units if unit.name == workload]
    settings = planned.engine.settings
    assert isinstance(settings, EngineSettings)
    made = next(o for o in objects(tree(name)) if (o["kind"], o["metadata"]["name"]) == ("Deployment", workload))
    source, *given = made["spec"]["template"]["spec"]["containers"][0]["args"]
    line = command_line(
        resolve_model(source),
        device(planned.accelerator, planned.partition),
        engine_name=settings.engine,
        version=settings.version,
        arguments=shlex.join(given),
    )
    assert line.settings == settings
