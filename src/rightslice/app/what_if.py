"""`rightslice simulate`: the options, and what they change in the workload that a plan answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from rightslice.app.knowledge import known_names
from rightslice.catalogue.hardware import ON_ONE_GPU
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.plan import Plan
from rightslice.core.quantities import format_seconds
from rightslice.core.rng import checked_seed
from rightslice.spec.loader import parse_workload
from rightslice.spec.paths import changed, split_change
from rightslice.spec.workload import Pipeline, Workload

MAX_HORIZON_S: Final = 90 * 86_400.0
_OF_DEPLOYMENTS: Final = ("replicas", "accelerator", "autoscaler", "disaggregation")
"""Keys under `models.NAME` that change the plan and not its workload."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What differs from the plan. `changes`: `PATH=VALUE` texts; None: as planned.

    `autoscaler`: of every model with traffic of its own; `faults`: see `faults`; `rollout`: see `rolling`. Each brings
    a control plane, and so does a purchase whose machines end within the horizon.
    """

    trace: Path | None = None
    rate: str | None = None
    users: str | None = None
    changes: tuple[str, ...] = ()
    seed: int | None = None
    horizon_s: float | None = None
    autoscaler: str | None = None
    faults: tuple[str, ...] = ()
    rollout: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given."""
        found = {option.name: getattr(self, option.name) for option in fields(self)}
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in found.items()
            if value not in (None, ())
        }


def check_options(what_if: WhatIf, seed: int) -> None:
    """Raises BadInputError for a seed or horizon out of range, or options that exclude each other."""
    checked_seed(seed)
    if what_if.horizon_s is not None and not 0.0 < what_if.horizon_s <= MAX_HORIZON_S:
        raise BadInputError(Diagnostic("RS0501", "--horizon is above zero and at most 90d", hint="for example 6h"))
    if what_if.trace is not None and what_if.rate is not None:
        raise BadInputError(Diagnostic("RS0502", "--trace and --rate exclude each other", hint="a trace has its rate"))


def changes_of(plan: Plan, what_if: WhatIf) -> tuple[dict[str, dict[str, str]], dict[str, Any]]:
    """(model -> changed keys of its deployments, the workload document with the other changes).

    Raises BadInputError for names that the plan does not have.
    """
    own: dict[str, dict[str, str]] = {}
    document: dict[str, Any] = dict(plan.workload or {})
    names = [model.name for model in plan.models]
    for text in what_if.changes:
        path, value = split_change(text)
        if len(path) == 3 and path[0] == "models" and path[2] in _OF_DEPLOYMENTS:
            if path[1] not in names:
                hint = did_you_mean(path[1], names) or f"models: {', '.join(names)}"
                raise BadInputError(Diagnostic("RS0501", f'--set: there is no model "{path[1][:60]}"', hint=hint))
            own.setdefault(path[1], {})[path[2]] = value
        else:
            document = changed(document, path, value)
    if what_if.users is not None:
        document = _one_population(document, what_if.users)
    if what_if.rate is not None:
        document = changed(document, ("models", _open_model(document, "--rate"), "traffic", "rate"), what_if.rate)
    if what_if.trace is not None:
        document = _replayed(document, what_if.trace)
    return own, document


def _one_population(document: Mapping[str, Any], users: str) -> dict[str, Any]:
    """Only the populations of that name, in every pipeline that has one."""
    pipelines = document.get("pipelines") or []
    names = sorted({name for pipeline in pipelines for name in pipeline["users"]})
    if users not in names:
        hint = did_you_mean(users, names) or (f"users: {', '.join(names)}" if names else "the plan has no pipeline")
        raise BadInputError(Diagnostic("RS0501", f'--users: there is no "{users[:60]}"', hint=hint))
    kept = [
        {**pipeline, "users": {users: pipeline["users"][users]}} for pipeline in pipelines if users in pipeline["users"]
    ]
    return {**document, "pipelines": kept}


def _open_model(document: Mapping[str, Any], option: str) -> str:
    """The only model with one class of traffic of its own."""
    found = [model for model in document["models"] if model.get("traffic")]
    single = [m for m in found if isinstance(m["traffic"], dict) or len(m["traffic"]) == 1]
    if len(found) != 1 or not single:
        hint = "--set models.NAME.traffic.CLASS.rate=20/s changes one class"
        classes = ", ".join(model["name"] for model in found) or "none"
        message = f"{option} needs one model with one class of traffic of its own; here: {classes}"
        raise BadInputError(Diagnostic("RS0502", message, hint=hint))
    return str(single[0]["name"])


def _replayed(document: Mapping[str, Any], trace: Path) -> dict[str, Any]:
    """The one class of traffic with the recorded requests instead of its own."""
    name = _open_model(document, "--trace")
    models = []
    for model in document["models"]:
        if model["name"] == name:
            own = model["traffic"] if isinstance(model["traffic"], dict) else model["traffic"][0]
            stays = {key: own[key] for key in ("class", "slo", "priority", "timeout") if key in own}
            model = {**model, "traffic": {**stays, "trace": str(trace.absolute())}}  # noqa: PLW2901
        models.append(model)
    return {**document, "models": models}


def workload_of(plan: Plan, document: Mapping[str, Any]) -> Workload:
    """The document with the sources and the groups on shared GPUs that the plan chose. Raises BadInputError."""
    try:
        loaded = parse_workload(json.dumps(document), file="", known=known_names())
    except BadInputError as error:  # places in a text that nobody sees
        raise BadInputError([replace(found, location=None) for found in error.diagnostics]) from None
    planned = {model.name: model.source for model in plan.models}
    groups = dict(_shared(plan))
    models = tuple(
        model.model_copy(
            update={"source": _chosen(model.source, planned.get(model.name, "")), **groups.get(model.name, {})}
        )
        for model in loaded.workload.models
    )
    return loaded.workload.model_copy(update={"models": models})


def _shared(plan: Plan) -> Iterator[tuple[str, dict[str, str]]]:
    """Model on shared GPUs -> how, and the label of its group, which names the pool's layout."""
    layouts = {pool.name: pool.layouts[0].name for pool in plan.pools if pool.layouts}
    for model in plan.models:
        for found in model.deployments:
            label = layouts.get(found.pool, "").removeprefix(found.partition).removeprefix("-")
            if found.partition in ON_ONE_GPU:
                yield model.name, {"partition": found.partition, **({"gpu": label} if label else {})}


def _chosen(sources: tuple[str, ...], planned: str) -> tuple[str, ...]:
    return tuple(source for source in sources if planned in (source, f"./{source}"))[:1] or sources[:1]


def lasting(workload: Workload, horizon_s: float | None) -> Workload:
    """Users stay as long as is simulated: `hold` takes what ramp-up and ramp-down leave of the horizon.

    Raises BadInputError RS0501 where they leave nothing.
    """
    if horizon_s is None:
        return workload
    pipelines = tuple(_held(pipeline, horizon_s) for pipeline in workload.pipelines)
    return workload.model_copy(update={"pipelines": pipelines})


def _held(pipeline: Pipeline, horizon_s: float) -> Pipeline:
    users = {}
    for name, found in pipeline.users.items():
        ramps_s = found.ramp_up + found.ramp_down
        if horizon_s <= ramps_s:
            message = (
                f"--horizon: {pipeline.name}/{name} takes {format_seconds(ramps_s)} for ramp-up and ramp-down alone"
            )
            raise BadInputError(Diagnostic("RS0501", message, hint="state a longer one"))
        users[name] = found.model_copy(update={"hold": horizon_s - ramps_s})
    return pipeline.model_copy(update={"users": users})
