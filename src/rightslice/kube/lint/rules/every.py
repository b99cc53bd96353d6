"""All rules: importing this module registers them."""

from __future__ import annotations

from rightslice.kube.lint.finding import Rule, registered
from rightslice.kube.lint.rules import (
    alerts,
    engine,
    exposure,
    granted,
    hygiene,
    lifetime,
    nim,
    nodes,
    objects,
    rollout,
    scaling,
    signals,
    start,
    tenants,
)

AREAS = (
    objects,
    start,
    engine,
    granted,
    tenants,
    lifetime,
    rollout,
    scaling,
    signals,
    alerts,
    nim,
    nodes,
    exposure,
    hygiene,
)
"""In the order of the questions: can it start, is a GPU granted, do tenants fit, does it live, can it scale, cost."""


def rules() -> tuple[Rule, ...]:
    """Every rule, in the order of codes."""
    return tuple(registered().values())
