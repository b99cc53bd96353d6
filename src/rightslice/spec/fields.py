"""Field types of the documents: quantities with units, checked names, SLO mappings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from rightslice.core.errors import did_you_mean
from rightslice.core.quantities import (
    QuantityError,
    parse_bytes,
    parse_count,
    parse_rate,
    parse_seconds,
    parse_usd,
)
from rightslice.core.slo import Slo, SloMetric

T = TypeVar("T")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Known:
    """Names that exist outside the document, handed in by the caller so that one pass finds every mistake.

    An empty set switches that check off.
    """

    accelerators: frozenset[str] = field(default=frozenset())
    machine_types: frozenset[str] = field(default=frozenset())
    providers: frozenset[str] = field(default=frozenset())
    regions: frozenset[str] = field(default=frozenset())
    engines: frozenset[str] = field(default=frozenset())
    platforms: frozenset[str] = field(default=frozenset())
    partitions: frozenset[str] = field(default=frozenset())
    models: frozenset[str] = field(default=frozenset())
    model_exists: Callable[[str], bool] | None = None


def problem(rule: str, reason: str, hint: str = "") -> PydanticCustomError:
    """A validation error that carries our rule and hint to the loader."""
    return PydanticCustomError("rightslice", "{reason}", {"rule": rule, "reason": reason, "hint": hint})


def _quantity(parse: Callable[[object], T], *, positive: bool = False) -> Callable[[object], T]:
    def validate(value: object) -> T:
        try:
            amount = parse(value)
        except QuantityError as error:
            raise problem("RS0108" if error.unit_missing else "RS0107", str(error)) from None
        if amount < 0 or (positive and amount == 0):  # type: ignore[operator]
            raise problem("RS0106", f'"{value}" must be {"above zero" if positive else "zero or more"}')
        return amount

    return validate


def _schema(example: str, description: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": description, "examples": [example]})


_COUNT_SCHEMA = WithJsonSchema({"type": ["integer", "number", "string"], "examples": [1500, "2e9"]})

Bytes = Annotated[int, BeforeValidator(_quantity(parse_bytes)), _schema("80GiB", "bytes with a unit")]
Seconds = Annotated[float, BeforeValidator(_quantity(parse_seconds)), _schema("800ms", "time with a unit")]
PositiveSeconds = Annotated[
    float, BeforeValidator(_quantity(parse_seconds, positive=True)), _schema("800ms", "time with a unit")
]
RatePerS = Annotated[
    float, BeforeValidator(_quantity(parse_rate, positive=True)), _schema("12/s", "rate with a unit of time")
]
Usd = Annotated[float, BeforeValidator(_quantity(parse_usd)), _schema("$20000", "US dollars")]
Count = Annotated[int, BeforeValidator(_quantity(parse_count, positive=True)), _COUNT_SCHEMA]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise problem(
            "RS0303",
            f'"{value[:70]}" is not a usable name',
            "lower-case letters, digits and '-', at most 63 characters",
        )
    return value


Name = Annotated[str, AfterValidator(_name)]


def _known(rule: str, kind: str, category: str) -> AfterValidator:
    def validate(value: str, info: ValidationInfo) -> str:
        known: frozenset[str] = getattr(info.context, category) if isinstance(info.context, Known) else frozenset()
        if known and value not in known:
            raise problem(rule, f'unknown {kind} "{value[:80]}"', did_you_mean(value, known))
        return value

    return AfterValidator(validate)


AcceleratorName = Annotated[str, _known("RS0312", "accelerator", "accelerators")]
MachineName = Annotated[str, _known("RS0313", "machine type", "machine_types")]
RegionName = Annotated[str, _known("RS0314", "region", "regions")]
EngineName = Annotated[str, _known("RS0315", "engine", "engines")]
PlatformName = Annotated[str, _known("RS0316", "platform", "platforms")]
PartitionName = Annotated[str, _known("RS0317", "partition", "partitions")]
ProviderName = Annotated[str, _known("RS0318", "provider", "providers")]


def _source(value: str, info: ValidationInfo) -> str:
    context = info.context
    if isinstance(context, Known) and context.model_exists and not context.model_exists(value):
        hint = did_you_mean(value, context.models)
        raise problem("RS0310", f'unknown model "{value[:120]}"', hint or "give a folder or a config.json")
    return value


ModelSource = Annotated[str, AfterValidator(_source)]


def one_or_many(value: Any) -> Any:
    """A single mapping or string stands for a list of one."""
    return (value,) if isinstance(value, str | dict) else value


_SLO_KEY = re.compile(r"(ttft|tpot|e2e)_p(\d{1,2}(?:\.\d{1,2})?)")
_SLO_METRICS: dict[str, SloMetric] = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e"}


def parse_slos(value: Any) -> Any:
    """`{ttft_p95: 800ms}` or `{ttft: {at_most: 800ms, for: 0.99}}` -> tuple of Slo, in document order."""
    if isinstance(value, tuple) and all(isinstance(item, Slo) for item in value):
        return value
    if not isinstance(value, dict):
        raise problem("RS0105", "expected a mapping of objectives", "for example {ttft_p95: 800ms}")
    return tuple(_one_slo(str(key), limit) for key, limit in value.items())


def _one_slo(key: str, limit: Any) -> Slo:
    short = _SLO_KEY.fullmatch(key)
    if short:
        return Slo(_SLO_METRICS[short[1]], _limit(key, limit), round(float(short[2]) / 100.0, 6))
    if key in _SLO_METRICS and isinstance(limit, dict):
        unknown = set(limit) - {"at_most", "for"}
        if unknown or "at_most" not in limit:
            raise problem("RS0202", f"{key} needs at_most, and optionally for", f"{key}: {{at_most: 800ms, for: 0.99}}")
        share = limit.get("for", 0.95)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share < 1.0:
            raise problem("RS0106", f'{key}.for is a share between 0 and 1, not "{share}"')
        return Slo(_SLO_METRICS[key], _limit(key, limit["at_most"]), float(share))
    known = [f"{metric}_p{p}" for metric in _SLO_METRICS for p in (50, 90, 95, 99)]
    raise problem(
        "RS0201", f'unknown objective "{key[:60]}"', did_you_mean(key, known) or "ttft_p95, tpot_p95, e2e_p95"
    )


def _limit(key: str, limit: Any) -> float:
    try:
        seconds = parse_seconds(limit)
    except QuantityError as error:
        raise problem("RS0108" if error.unit_missing else "RS0107", f"{key}: {error}") from None
    if seconds <= 0:
        raise problem("RS0106", f'{key}: "{limit}" must be above zero')
    return seconds


Slos = Annotated[
    tuple[Slo, ...],
    BeforeValidator(parse_slos),
    WithJsonSchema(
        {
            "type": "object",
            "description": "ttft_p95, tpot_p95, e2e_p95 (any percentile), or metric: {at_most, for}",
            "examples": [{"ttft_p95": "800ms", "tpot_p95": "50ms"}],
        }
    ),
]
