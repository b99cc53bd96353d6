"""How a deployment follows its load: `hpa`, or `{kind: keda, signal: held, target: 4, max: 6}`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.spec.fields import Seconds, problem
from rightslice.spec.nodes import compose
from rightslice.spec.sections import Section

MOST_REPLICAS = 1000
"""Of one deployment: each is looked at at every tick."""
EMITTED_SIGNALS = ("in_flight", "running", "waiting", "kv_use")
"""What the engines' own metrics tell, so that a manifest can follow it."""
WAKING_SIGNALS = ("in_flight", "held")
"""What counts the requests in the gateway, so that there is something to see before a replica is ready."""
Signal = Literal["in_flight", "held", "waiting", "running", "offered_per_s", "kv_use"]


class Autoscaler(Section):
    """`target` of the signal per replica; None: `share` of what a replica shows at the largest load at which every
    objective holds, which leaves room for what comes while another one starts. `min`, `max`: replicas.

    `signal`: in_flight = requests anywhere between the gateway and the answer; held = those that wait in the gateway;
    waiting and running = in engines; kv_use = share of the KV cache. None: kv_use where the KV cache limits a replica
    (for an HPA only), else in_flight. `cooldown`: KEDA's, before it goes to zero. `up_window`, `down_window`:
    stabilisation; None: none upwards, two cold starts downwards.
    """

    kind: Literal["hpa", "keda", "fixed", "perfect"] = "hpa"
    signal: Signal | None = None
    target: Annotated[float, Field(ge=0.001)] | None = None
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.8
    min: Annotated[int, Field(ge=0, le=MOST_REPLICAS)] | None = None
    max: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] | None = None
    up_window: Annotated[Seconds, Field(le=3600.0)] | None = None
    down_window: Annotated[Seconds, Field(le=3600.0)] | None = None
    polling: Annotated[Seconds, Field(ge=1.0)] = 30.0
    cooldown: Seconds = 300.0
    lag: Seconds = 0.0

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        section = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [section["properties"]["kind"], section]}

    def check_emitted(self) -> None:
        """Whether a plan can write it down. Raises a problem RS0204 where it is for simulations only."""
        if self.kind not in ("hpa", "keda"):
            hint = "hpa or keda; simulate --autoscaler plays the others"
            raise problem("RS0204", f"a plan has no autoscaler of kind {self.kind}", hint, path=("autoscaling", "kind"))
        if self.signal not in (None, *EMITTED_SIGNALS):
            hint = ", ".join(EMITTED_SIGNALS)
            message = f"engines have no metric for {self.signal}"
            raise problem("RS0204", message, hint, path=("autoscaling", "signal"))
        if self.kind == "keda" and self.signal == "kv_use":
            hint = "kind: hpa, or signal: in_flight"
            raise problem(
                "RS0204", "KEDA sums a metric, kv_use is one per replica", hint, path=("autoscaling", "signal")
            )
        if self.min is not None and self.max is not None and self.min > self.max:
            message = f"at least {self.min} replicas, at most {self.max}"
            raise problem("RS0204", message, path=("autoscaling", "min"))


def sleeps_for_ever(kind: str, signal: str | None, *, holds: bool) -> tuple[str, str] | None:
    """(Why an autoscaler cannot keep zero replicas, what can), or None where it can.

    Only a gateway that holds requests back (`holds`) knows of them while no engine runs; a Service refuses them.
    """
    if kind != "keda":
        return "an HPA keeps at least one replica", "kind: keda goes to zero"
    if not holds:
        message = "without replicas no engine reports a metric, and nothing holds the request that should wake one"
        return message, "gateway: {flow_control: true} for the model, or min: 1"
    if signal not in (None, *WAKING_SIGNALS):
        message = f"engines report {signal}, and without replicas there is none to wake by"
        return message, "signal: in_flight"
    return None


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
