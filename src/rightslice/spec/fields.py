"""Field types of the documents: quantities with units, checked names, SLO mappings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

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


@dataclass(frozen=True, slots=True, repr=False)
class Problem:
    """One mistake. `path` leads from the value that was checked to the culprit (a last `[key]`: the key itself).

    `near`: what was written and the names that would do, from which the loader makes a hint.
    """

    rule: str
    reason: str
    hint: str = ""
    path: tuple[str | int, ...] = ()
    near: tuple[str, frozenset[str]] | None = None


def problems(found: Sequence[Problem]) -> PydanticCustomError:
    """A validation error that carries our own findings to the loader."""
    return PydanticCustomError("rightslice", "{reason}", {"reason": found[0].reason, "problems": tuple(found)})


def problem(rule: str, reason: str, hint: str = "", *, path: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """The same for one finding."""
    return problems([Problem(rule, reason, hint, path)])


def _quantity(
    parse: Callable[[object], T], at_most: float, shown: str, *, positive: bool = False
) -> Callable[[object], T]:
    """A validator; `at_most` keeps numbers within what 64-bit integers of the kernels hold."""

    def validate(value: object) -> T:
        try:
            amount = parse(value)
        except QuantityError as error:
            raise problem("RS0108" if error.unit_missing else "RS0107", str(error)) from None
        _in_range(amount, value, at_most, shown, positive=positive)
        return amount

    return validate


def _in_range(amount: Any, value: object, at_most: float, shown: str, *, positive: bool) -> None:
    if amount < 0 or (positive and amount == 0):
        raise problem("RS0106", f'"{str(value)[:60]}" must be {"above zero" if positive else "zero or more"}')
    if amount > at_most:
        raise problem("RS0106", f'"{str(value)[:60]}" is too large: at most {shown}')


def _schema(example: str, description: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": description, "examples": [example]})


_COUNT_SCHEMA = WithJsonSchema({"type": ["integer", "number", "string"], "examples": [1500, "2e9"]})

_PERIOD = (90 * 86400.0, "90d")  # the longest horizon that is simulated; int64 picoseconds end at 106 days

Bytes = Annotated[
    int, BeforeValidator(_quantity(parse_bytes, 1e18, "1000000TB")), _schema("80GiB", "bytes with a unit")
]
Seconds = Annotated[
    float, BeforeValidator(_quantity(parse_seconds, *_PERIOD)), _schema("800ms", "time with a unit, at most 90 days")
]
PositiveSeconds = Annotated[
    float,
    BeforeValidator(_quantity(parse_seconds, *_PERIOD, positive=True)),
    _schema("800ms", "time with a unit, above zero, at most 90 days"),
]
RatePerS = Annotated[
    float,
    BeforeValidator(_quantity(parse_rate, 1e9, "1e9/s", positive=True)),
    _schema("12/s", "requests per unit of time"),
]
Usd = Annotated[float, BeforeValidator(_quantity(parse_usd, 1e15, "$1e15")), _schema("$20000", "US dollars")]
Count = Annotated[int, BeforeValidator(_quantity(parse_count, 1e15, "1e15", positive=True)), _COUNT_SCHEMA]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise problem(
            "RS0303",
            f'"{value[:70]}" is not a usable name',
            "lower-case letters, digits and '-', at most 63 characters",
        )
    return value


Name = Annotated[
    str,
    AfterValidator(_name),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$", "examples": ["chat"]}),
]


def _method(value: str) -> str:
    _name(value.replace("_", "-"))
    return value


MethodName = Annotated[
    str,
    AfterValidator(_method),
    WithJsonSchema(
        {"type": "string", "pattern": "^[a-z0-9]([-_a-z0-9]{0,61}[a-z0-9])?$", "examples": ["ngram", "draft_model"]}
    ),
]
"""A name as engines spell it, underscores included."""


def _time_of_day(value: str) -> str:
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value):
        raise problem("RS0107", f'"{value[:20]}" is not a time of day (try 06:00)')
    return value


TimeOfDay = Annotated[
    str,
    AfterValidator(_time_of_day),
    WithJsonSchema({"type": "string", "description": "time of day, 24 hours", "examples": ["06:00"]}),
]


def _known(rule: str, kind: str, category: str) -> AfterValidator:
    def validate(value: str, info: ValidationInfo) -> str:
        known: frozenset[str] = getattr(info.context, category) if isinstance(info.context, Known) else frozenset()
        if known and value not in known:
            raise problems([Problem(rule, f'unknown {kind} "{value[:80]}"', near=(value, known))])
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
        hint = "a catalogue name, a hub id, a folder or a config.json"
        raise problems([Problem("RS0310", f'unknown model "{value[:120]}"', hint, near=(value, context.models))])
    return value


ModelSource = Annotated[str, AfterValidator(_source)]


class OneOrMany:
    """Annotation of a tuple: a single mapping or text stands for a list of one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: (value,) if isinstance(value, str | dict) else value, handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


_SLO_KEY = re.compile(r"(ttft|tpot|e2e)_p(\d{1,2}(?:\.\d{1,2})?)")
_SLO_METRICS: dict[str, SloMetric] = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e"}
_COMMON_SLOS = frozenset(f"{metric}_p{p}" for metric in _SLO_METRICS for p in (50, 90, 95, 99))


def parse_slos(value: Any) -> Any:
    """`{ttft_p95: 800ms}` or `{ttft: {at_most: 800ms, for: 0.99}}` -> tuple of Slo, in document order."""
    if isinstance(value, tuple) and all(isinstance(item, Slo) for item in value):
        return value
    if not isinstance(value, dict):
        raise problem("RS0105", "objectives are a mapping", "for example {ttft_p95: 800ms}")
    slos: list[Slo] = []
    found: list[Problem] = []
    for key, limit in value.items():
        slo, wrong = _one_slo(str(key), limit)
        found += wrong
        if slo and any((slo.metric, slo.share) == (other.metric, other.share) for other in slos):
            found.append(Problem("RS0301", f'a second limit for "{slo.name}"', path=(str(key), "[key]")))
        elif slo:
            slos.append(slo)
    if found:
        raise problems(found)
    return tuple(slos)


def _one_slo(key: str, limit: Any) -> tuple[Slo | None, list[Problem]]:
    short = _SLO_KEY.fullmatch(key)
    if short and float(short[2]) > 0.0:
        limit_s, wrong = _limit((key,), limit)
        return Slo(_SLO_METRICS[short[1]], limit_s, round(float(short[2]) / 100.0, 6)) if not wrong else None, wrong
    if key not in _SLO_METRICS:
        hint = "ttft, tpot or e2e with a percentile: ttft_p95, tpot_p95, e2e_p95"
        return None, [Problem("RS0201", f'unknown objective "{key[:60]}"', hint, (key, "[key]"), (key, _COMMON_SLOS))]
    if not isinstance(limit, dict) or "at_most" not in limit:
        return None, [Problem("RS0202", f"{key} needs at_most", f"{key}_p95: 800ms, or {{at_most: 800ms}}", (key,))]
    limit_s, wrong = _limit((key, "at_most"), limit["at_most"])
    for extra in limit:
        if extra not in {"at_most", "for"}:
            where = (key, extra, "[key]")
            wrong.append(Problem("RS0201", f'unknown key "{extra[:60]}"', "known: at_most, for", where))
    share = limit.get("for", 0.95)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share < 1.0:
        reason = f'for is a share above 0 and below 1, not "{str(share)[:40]}"'
        wrong.append(Problem("RS0106", reason, path=(key, "for")))
    return Slo(_SLO_METRICS[key], limit_s, float(share)) if not wrong else None, wrong


def _limit(path: tuple[str, ...], limit: Any) -> tuple[float, list[Problem]]:
    try:
        seconds = parse_seconds(limit)
    except QuantityError as error:
        return 0.0, [Problem("RS0108" if error.unit_missing else "RS0107", f"{path[0]}: {error}", path=path)]
    if not 0.0 < seconds <= _PERIOD[0]:
        reason = f'{path[0]}: "{str(limit)[:60]}" must be above zero and at most {_PERIOD[1]}'
        return 0.0, [Problem("RS0106", reason, path=path)]
    return seconds, []


_LIMIT_SCHEMA = {"type": "string", "description": "at most this long, with a unit", "examples": ["800ms", "12s"]}
_LONG_SCHEMA = {
    "type": "object",
    "properties": {"at_most": _LIMIT_SCHEMA, "for": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}},
    "required": ["at_most"],
    "additionalProperties": False,
}
Slos = Annotated[
    tuple[Slo, ...],
    BeforeValidator(parse_slos),
    WithJsonSchema(
        {
            "type": "object",
            "description": "ttft_p95: 800ms means that at least 95 % of the requests have a TTFT of at most 800 ms",
            "properties": {
                **dict.fromkeys(sorted(_COMMON_SLOS), _LIMIT_SCHEMA),
                **dict.fromkeys(_SLO_METRICS, _LONG_SCHEMA),
            },
            "patternProperties": {f"^{_SLO_KEY.pattern}$": _LIMIT_SCHEMA},
            "additionalProperties": False,
            "examples": [{"ttft_p95": "800ms", "tpot_p95": "50ms"}],
        }
    ),
]
