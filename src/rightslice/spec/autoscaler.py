"""How a deployment follows its load: `hpa`, or `{kind: keda, signal: held, target: 4, max: 6}`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.spec.fields import Seconds
from rightslice.spec.nodes import compose
from rightslice.spec.sections import Section

MOST_REPLICAS = 1000
"""Of one deployment: each is looked at at every tick."""
Signal = Literal["in_flight", "held", "waiting", "running", "offered_per_s", "kv_use"]


class Autoscaler(Section):
    """`target` of the signal per replica; None: `share` of what a replica at its rated load shows, which leaves room
    for what comes while another one starts. `min`, `max`: replicas.

    `signal`: in_flight = requests anywhere between the gateway and the answer; held = those that wait in the gateway;
    waiting and running = in engines; kv_use = share of the KV cache. `cooldown`: KEDA's, before it goes to zero.
    `up_window`, `down_window`: stabilisation.
    """

    kind: Literal["hpa", "keda", "fixed", "perfect"] = "hpa"
    signal: Signal = "in_flight"
    target: Annotated[float, Field(ge=0.001)] | None = None
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.6
    min: Annotated[int, Field(ge=0, le=MOST_REPLICAS)] | None = None
    max: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] | None = None
    up_window: Annotated[Seconds, Field(le=3600.0)] = 0.0
    down_window: Annotated[Seconds, Field(le=3600.0)] = 300.0
    polling: Annotated[Seconds, Field(ge=1.0)] = 30.0
    cooldown: Seconds = 300.0
    lag: Seconds = 0.0

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value


def parse_autoscaler(text: str, option: str) -> Autoscaler:
    """A kind, or a YAML mapping. Raises BadInputError RS0501 with the first mistake."""
    value = compose(text, option).root.plain
    try:
        return Autoscaler.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = tuple(Autoscaler.model_fields)
        hint = did_you_mean(where, known) if where not in known else f"known: {', '.join(known)}"
        message = f"{option}: {where or 'value'}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        raise BadInputError(Diagnostic("RS0501", message, hint=hint)) from None
