"""The names a workload may use, taken from the catalogue, so that one reading finds every mistake."""

from __future__ import annotations

from rightslice.app.models import may_exist
from rightslice.catalogue.accelerators import accelerators
from rightslice.catalogue.engines import engines
from rightslice.catalogue.hardware import SHARED, WHOLE
from rightslice.catalogue.machines import machines
from rightslice.catalogue.mig import geometry
from rightslice.catalogue.models import model_names
from rightslice.catalogue.platforms import platforms
from rightslice.procurement.refusals import ON_PREMISES
from rightslice.spec.fields import Known


def known_names() -> Known:
    """Everything the catalogue knows by name."""
    rows = machines()
    tables = [table for name in accelerators() if (table := geometry(name))]
    return Known(
        accelerators=frozenset(accelerators()),
        machine_types=frozenset(m.machine_type for m in rows),
        providers=frozenset(m.provider for m in rows) | {ON_PREMISES},
        regions=frozenset(m.region for m in rows),
        engines=frozenset(engines()),
        platforms=frozenset(platforms()),
        partitions=frozenset({WHOLE, *SHARED, *(p.name for table in tables for p in table.profiles)}),
        models=model_names(),
        model_exists=may_exist,
    )
