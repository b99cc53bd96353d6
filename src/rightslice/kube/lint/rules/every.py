"""All rules: importing this module registers them."""

from __future__ import annotations

from rightslice.kube.lint.finding import Rule, registered
from rightslice.kube.lint.rules import (
    alerts,
    caches,
    engine,
    exposure,
    granted,
    hygiene,
    lifetime,
    nim,
    nodes,
    objects,
    partitions,
    rollout,
    scaling,
    signals,
    slices,
    start,
    tenants,
)

AREAS = (
    objects, start, engine, granted, slices, tenants, partitions, lifetime, caches, rollout, scaling, signals, alerts,
    nim, nodes, exposure, hygiene,
)  # fmt: skip
"""In the order of the questions: can it start, is a GPU granted, do tenants fit, does it live, can it scale, cost."""


def rules() -> tuple[Rule, ...]:
    """Every rule, in the order of codes."""
    return tuple(registered().values())
