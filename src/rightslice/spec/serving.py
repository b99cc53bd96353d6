"""How requests of a model are served: what prompts have in common, who routes them, what the engine is told."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rightslice.spec.fields import Count, Name, Seconds, Share
from rightslice.spec.sections import Section


class Prefix(Section):
    """What prompts of a class start with in common, such as a system prompt.

    `tokens` stand before `input_tokens`; each request (each session) starts with one of `distinct` texts, all equally
    often. Classes of one model that name the same `group` share its texts.
    """

    tokens: Count | None = None
    distinct: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    group: Name | None = None


class Router(Section):
    """How requests find a replica; the name of a policy stands for it with the other values as they are.

    `kv_aware` and `prefix_aware` send to the lowest sum of waiting requests, share of the KV cache in use and (prefix
    aware only) share of the prompt that is not cached, each times its weight. `signal_age`: how old the gateway's
    figures of the first two may get.
    """

    policy: Literal["round_robin", "least_requests", "power_of_two", "kv_aware", "prefix_aware"] = "least_requests"
    queue_weight: Annotated[float, Field(ge=0.0, le=1000.0)] = 1.0
    kv_weight: Annotated[float, Field(ge=0.0, le=1000.0)] = 1.0
    prefix_weight: Annotated[float, Field(ge=0.0, le=1000.0)] = 1.0
    signal_age: Seconds = 0.0

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"policy": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        section = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [section["properties"]["policy"], section]}


class Gateway(Section):
    """When an inference gateway takes the replicas for saturated, and what it does then.

    No replica has room any more: more than `queue_depth` requests wait in each, or more than `kv_use` of its KV cache
    is in use. Classes of negative priority are then refused at once; with `flow_control` the others wait in the
    gateway, by priority, and else go on to the engines. The thresholds are those of the Kubernetes inference gateway.
    """

    queue_depth: Annotated[int, Field(ge=0, le=100_000)] = 5
    kv_use: Share = 0.8
    flow_control: bool = True


class EngineChoice(Section):
    """What the engine is told beside what is planned. None: the engine's default."""

    prefix_caching: bool | None = None
