"""Settings of autoscalers over one day: which is the cheapest that holds, found one setting at a time.

First the target with the fewest replicas at night, then the least size, the windows, and a target between the best and
the next one that failed. Every setting that the autoscaler states itself stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rightslice.app.scenarios import Load
from rightslice.app.simulating import Asked, day_of, read_asked, with_control
from rightslice.app.what_if import WhatIf
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.replay import Setting, Trial, Tuning, worst_objective
from rightslice.spec.autoscaler import Autoscaler

SHARES: Final = (0.2, 0.4, 0.6, 0.8)
"""Of the rated load that are aimed at."""
SIZES: Final = (0.5, 1.0)
"""Least replicas beside the fewest that may be, as shares of those planned for the peak."""
DOWN_WINDOWS_S: Final = (60.0, 300.0, 900.0)
UP_WINDOWS_S: Final = (0.0, 60.0)
START: Final = Setting(0.6, 0.0, 300.0, 0.0)
_STATED_BY: Final = {
    "share": {"target", "share"},
    "least": {"min"},
    "down_window_s": {"down_window"},
    "up_window_s": {"up_window"},
}
"""Part of a setting -> fields of an autoscaler that state it."""

Autoscalers = Mapping[str, Autoscaler]


@dataclass(frozen=True, slots=True)
class Tried:
    """A setting with the autoscalers that have it, and what came of it."""

    setting: Setting
    autoscalers: Autoscalers
    trial: Trial


def tune_plan(path: Path, what_if: WhatIf, progress: Callable[[str], None]) -> Tuning:
    """Other settings of the autoscalers over the same day: what each costs and whether it holds.

    The cheapest that holds first, then the cheapest of the others. Raises BadInputError as `simulate_plan`, and RS0502
    without an autoscaler.
    """
    asked = read_asked(path, what_if)
    if not any(found.kind in ("hpa", "keda") for found in asked.autoscalers.values()):
        raise BadInputError(Diagnostic("RS0502", "--tune needs an autoscaler", hint="--autoscaler hpa"))
    tried = tuned(asked, asked.autoscalers, what_if, day_of(asked, what_if.horizon_s), progress)
    cost = asked.plan.monthly_usd
    date, quality = (cost.price_date, cost.quality) if cost else ("", "")
    return Tuning(asked.plan.name, asked.seed, tuple(found.trial for found in tried), date, quality)


def tuned(
    asked: Asked, autoscalers: Autoscalers, what_if: WhatIf, day: Load, progress: Callable[[str], None]
) -> tuple[Tried, ...]:
    """Every setting tried, best first."""
    tried: dict[Setting, Tried] = {}

    def attempt(settings: Iterator[Setting]) -> None:
        for setting in settings:
            if setting not in tried:
                progress(f"autoscaler setting {len(tried) + 1}")
                made = {name: with_setting(asked, name, found, setting) for name, found in autoscalers.items()}
                tried[setting] = Tried(setting, made, _trial(asked, made, setting, what_if, day))

    free = _free(autoscalers)
    attempt(replace(_start(free), share=share) for share in (SHARES if "share" in free else (None,)))
    for name, values in (("least", SIZES), ("down_window_s", DOWN_WINDOWS_S), ("up_window_s", UP_WINDOWS_S)):
        if name in free:
            base = _ordered(tried)[0].setting
            attempt(replace(base, **{name: value}) for value in values)
    best = _ordered(tried)[0]
    if best.trial.holds and best.setting.share is not None and best.setting.share < SHARES[-1]:
        between = round((best.setting.share + SHARES[SHARES.index(best.setting.share) + 1]) / 2.0, 3)
        attempt(iter([replace(best.setting, share=between)]))
    return tuple(_ordered(tried))


def with_setting(asked: Asked, model: str, found: Autoscaler, setting: Setting) -> Autoscaler:
    """An autoscaler with what a setting names of it."""
    changes: dict[str, float | int | None] = {}
    if setting.share is not None:
        changes["share"] = setting.share
    if setting.least is not None:
        planned = [s.deployment.replicas.steady for s in asked.servers.values() if s.option.model == model]
        most = min(planned) if found.max is None else min(found.max, *planned)
        changes["min"] = min(most, max(_floor(asked, model, len(planned)), round(setting.least * min(planned))))
    if setting.down_window_s is not None:
        changes["down_window"] = setting.down_window_s
    if setting.up_window_s is not None:
        changes["up_window"] = setting.up_window_s
    return found.model_copy(update=changes)


def _floor(asked: Asked, model: str, deployments: int) -> int:
    """Replicas that a deployment keeps at night: the workload's, or two in production: a lost node leaves one."""
    given = asked.workload.model(model).min_replicas
    if given is None:
        given = 2 if asked.workload.environment == "production" else 1
    return max(1, math.ceil(given / deployments))


def _free(autoscalers: Autoscalers) -> frozenset[str]:
    """What no autoscaler states itself. Who may go to zero keeps its least size."""
    given = frozenset(name for found in autoscalers.values() for name in found.model_fields_set)
    return frozenset(name for name, keys in _STATED_BY.items() if not given & keys)


def _start(free: frozenset[str]) -> Setting:
    return replace(
        START, **{name: None for name in ("share", "least", "down_window_s", "up_window_s") if name not in free}
    )


def _trial(asked: Asked, made: Autoscalers, setting: Setting, what_if: WhatIf, day: Load) -> Trial:
    replay = with_control(asked, made, what_if, day)
    objective, achieved = worst_objective(replay)
    first = next(iter(made.values()))
    return Trial(
        share=setting.share,
        min_replicas=_least(asked, made),
        gpu_hours=replay.gpu_hours,
        usd=replay.usd,
        holds=replay.holds,
        objective=objective,
        achieved=achieved,
        changes=len(replay.scale_events),
        down_window_s=first.down_window or 0.0,
        up_window_s=first.up_window or 0.0,
    )


def _least(asked: Asked, made: Autoscalers) -> int:
    """Least replicas of all that scale."""
    sizes = [
        found.deployment.replicas.min if made[found.option.model].min is None else made[found.option.model].min
        for found in asked.servers.values()
        if found.option.model in made
    ]
    return sum(size or 0 for size in sizes)


def _ordered(tried: Mapping[Setting, Tried]) -> list[Tried]:
    """The cheapest that holds first; of those that fail the one that comes nearest."""
    return sorted(
        tried.values(), key=lambda t: (not t.trial.holds, t.trial.cost if t.trial.holds else -t.trial.achieved)
    )
