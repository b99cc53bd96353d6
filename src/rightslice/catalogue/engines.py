"""Inference engines: images, ports, arguments and defaults by version and device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.engine_reserve import Reserve, reserve_of
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import Era, era_of, eras, minor_version, version_key
from rightslice.core.engine import EngineSettings

GIB = 2**30
_DEFAULTS = ("memory_fraction", "max_num_seqs", "max_num_batched_tokens")


@dataclass(frozen=True, slots=True)
class EngineDefaults:
    """What an engine does when nothing is passed to it. `note`: what is uncertain about it.

    `memory_fraction` is of what `EngineFacts.memory_fraction_of` says.
    """

    memory_fraction: float
    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool
    prefix_caching: bool
    block_size_tokens: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """How one field of the settings becomes a flag (or an environment variable); see the head of the data file."""

    flag: str
    field: str = ""
    constant: str | None = None
    values: Mapping[str, str] | None = None
    above: float | None = None
    when: bool | None = None
    only_if: str = ""
    members: Mapping[str, str] | None = None
    unit_bytes: int | None = None
    quantise: bool = False
    override: bool = False

    def value(self, settings: EngineSettings, source: str, *, quantise: bool, override: bool) -> str | None:
        """The text to pass, empty for a bare flag, None when it is left out."""
        if self.constant is not None:
            return self.constant
        given: Any = source if self.field == "source" else getattr(settings, self.field)
        if (self.quantise and not quantise) or (self.override and not override):
            return None
        if self.only_if and not getattr(settings, self.only_if):
            return None
        if self.when is not None:
            return "" if bool(given) is self.when else None
        if given == "" or (self.above is not None and given <= self.above):
            return None
        return self._text(given, settings)

    def _text(self, given: Any, settings: EngineSettings) -> str | None:
        if self.values is not None:
            return self.values.get(given)
        if self.members is not None:
            found = {key: getattr(settings, field) for key, field in self.members.items()}
            return json.dumps({key: value for key, value in found.items() if value != ""})
        amount = given / self.unit_bytes if self.unit_bytes else given
        return f"{amount:.6g}" if isinstance(amount, float) else str(amount)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine. Versioned facts are methods; a KeyError says that the fact is not established.

    `command` starts the server where the image does not by itself. `latest_version`: newest one read.
    `memory_fraction_of`: everything = share of the device for the whole engine; weights-and-kv = share of the device
    for weights and KV cache; kv-of-free = share of what is free after the weights, for the KV cache.
    `admission`: what a request must find room for to start: its prompt, its prompt and whole answer, or an estimate of
    what all running ones will answer. `prefill_first`: nobody decodes in a step that computes prompts.
    `fixed_kv`: model types that ignore a cache type; `own_kv`: those that take one type only. `reserve`: how the share
    is chosen where none is given.
    `refuses_long_prompts`: without chunked prefill, those of more tokens than a step; other engines hold them whole.
    """

    name: str
    title: str
    latest_version: str
    tasks: tuple[str, ...]
    vendors: tuple[str, ...]
    command: tuple[str, ...]
    port: int
    metrics_port: int
    health_path: str
    metrics_path: str
    memory_fraction_of: Literal["everything", "weights-and-kv", "kv-of-free", "none"]
    notes: tuple[str, ...]
    source: str
    image_pattern: str
    image_prefixes: Mapping[str, str]
    argument_table: tuple[Argument, ...]
    environment_table: tuple[Argument, ...]
    defaults_of: str
    defaults_note: str
    eras: Mapping[str, tuple[Era, ...]]
    weight_methods: Mapping[str, tuple[str, ...]]
    kv_min_capability: Mapping[str, float]
    fixed_kv: frozenset[str]
    own_kv: Mapping[str, str]
    reserve: Reserve | None
    refuses_long_prompts: bool
    admission: Literal["prompt", "answer", "estimate"]
    prefill_first: bool

    @property
    def oldest_version(self) -> str:
        """The oldest version whose defaults were read; the newest one where there are none."""
        inside = engine(self.defaults_of) if self.defaults_of else self
        since = min((rows[0].since[0] for kind, rows in inside.eras.items() if rows and kind in _DEFAULTS), default=())
        return ".".join(map(str, since)) if since and inside is self else self.latest_version

    @property
    def flags(self) -> Mapping[str, str]:
        """Field of `EngineSettings` -> flag; the positive one of a pair."""
        named = [a for a in self.argument_table if a.field and a.flag]
        return {a.field: a.flag for a in reversed(named)}

    def image(self, version: str, device: Device | None = None) -> str:
        """Image reference of a version; some engines build one image per compute capability."""
        capability = device.accelerator.compute_capability if device else ""
        prefix = self.image_prefixes.get(capability, self.image_prefixes.get("", ""))
        return self.image_pattern.format(version=version, minor=minor_version(version), capability=prefix)

    def defaults(self, version: str, device: Device) -> EngineDefaults:
        """Defaults of the API server of `version` on one device or slice; KeyError when they are not established."""
        if self.defaults_of:
            inside = engine(self.defaults_of)
            return replace(inside.defaults(inside.latest_version, device), note=self.defaults_note)
        found = EngineDefaults(
            memory_fraction=float(self._default("memory_fraction", version, device)),
            max_num_seqs=int(self._default("max_num_seqs", version, device)),
            max_num_batched_tokens=int(self._default("max_num_batched_tokens", version, device)),
            chunked_prefill=bool(self._default("chunked_prefill", version, device)),
            prefix_caching=bool(self._default("prefix_caching", version, device)),
            block_size_tokens=int(self._default("block_size_tokens", version, device)),
            note=self.defaults_note,
        )
        alone = EngineSettings(max_num_batched_tokens=found.max_num_batched_tokens, chunked_prefill=True)
        share = self.reserve.share(version, device, alone) if self.reserve else None
        return found if share is None else replace(found, memory_fraction=share)

    def _default(self, field: str, version: str, device: Device) -> float:
        memory_gib = device.memory_bytes / GIB
        name = device.name.lower()
        era = era_of(self.eras.get(field, ()), version)
        tier = next(t for t in era.tiers if t.holds(memory_gib, name))
        found: float = tier.value
        return found

    def arguments(
        self, settings: EngineSettings, source: str, *, quantise: bool = False, override: bool = False
    ) -> dict[str, str]:
        """Flag -> value that starts the engine on `source` as `settings` say; an empty value is a bare word.

        `quantise`: the checkpoint has another precision than `settings.weight_dtype`; the engine must convert it.
        `override`: untold, the engine would keep its cache in another format than `settings.kv_dtype`.
        """
        return _passed(self.argument_table, settings, source, quantise=quantise, override=override)

    def environment(self, settings: EngineSettings, source: str) -> dict[str, str]:
        """Environment variables that carry settings."""
        return _passed(self.environment_table, settings, source, quantise=False, override=False)

    def metrics(self, version: str) -> Mapping[str, str]:
        """running, waiting, kv_use, ttft, tpot, e2e, and the counters preemptions, prefix_queries, prefix_hits (tokens;
        exposed with `_total`) -> metric name, those that the engine has."""
        found: Mapping[str, str] = self._fact("metrics", version)
        return found

    def metrics_of_all_versions(self) -> frozenset[tuple[str, str]]:
        """(role, metric name) as in `metrics`, of every version."""
        return frozenset(pair for era in self.eras.get("metrics", ()) for pair in era.tiers[0].value.items())

    def drain_flag(self, version: str) -> str:
        """Flag that takes the seconds in which requests may finish after SIGTERM; empty when there is none."""
        flag: str = self._fact("drain_flag", version)
        return flag

    def kv_dtypes(self, version: str) -> tuple[str, ...]:
        """KV cache types that the engine accepts."""
        return tuple(self._fact("kv_dtypes", version))

    def min_capability(self, version: str, method: str) -> float:
        """Lowest CUDA compute capability of a quantisation method; KeyError when the engine does not know it."""
        table: Mapping[str, float] = self._fact("min_capability", version)
        return table[method]

    def weight_capability(self, version: str, dtype: str) -> float | None:
        """Lowest CUDA compute capability on which `version` holds weights in `dtype`; None when it cannot.

        A method that only the following row has may have come in between and counts as known. KeyError when no methods
        of the engine, or none for `dtype`, are established.
        """
        rows = self.eras.get("min_capability", ())
        now = rows.index(era_of(rows, version))
        for row in rows[now : now + 2]:
            table: Mapping[str, float] = row.tiers[0].value
            known = [table[method] for method in self.weight_methods[dtype] if method in table]
            if known:
                return min(known)
        return None

    def kv_cache_type(self, version: str, dtype: str) -> str | None:
        """The engine's own name of a KV cache in `dtype` of 8 or 4 bits; None when `version` has none.

        KeyError when the cache types of the engine are not established.
        """
        listed = self.kv_dtypes(version)
        named = [a.values.get(dtype, "") for a in self.argument_table if a.field == "kv_dtype" and a.values]
        return next((name for name in named if name in listed), None)

    def follows_declared_cache(self, version: str, method: str, dtype: str) -> bool:
        """Whether `version`, told nothing, keeps the KV cache in the `dtype` that a checkpoint of `method` declares.

        KeyError where that is not established; an engine around another does as the newest of that one.
        """
        if self.defaults_of:
            inside = engine(self.defaults_of)
            return inside.follows_declared_cache(inside.latest_version, method, dtype)
        rows = self.eras.get("declared_kv", ())
        if not rows or version_key(version) < rows[0].since:
            raise KeyError(version)
        followed: Mapping[str, list[str]] = era_of(rows, version).tiers[0].value
        return any(method.startswith(known) for known in followed.get(dtype, ()))

    def quantises(self, args: Mapping[str, str]) -> bool:
        """Whether these arguments make the engine lower the precision of a checkpoint while loading it."""
        return any(
            argument.quantise and args.get(argument.flag) in (argument.values or {}).values()
            for argument in self.argument_table
        )

    def _fact(self, kind: str, version: str) -> Any:
        return era_of(self.eras.get(kind, ()), version).tiers[0].value


def _passed(
    table: tuple[Argument, ...], settings: EngineSettings, source: str, *, quantise: bool, override: bool
) -> dict[str, str]:
    passed: dict[str, str] = {}
    for argument in table:
        value = argument.value(settings, source, quantise=quantise, override=override)
        if value is not None:
            passed |= {argument.flag: value} if argument.flag else {value: ""}
    return passed


@lru_cache(maxsize=1)
def engines() -> Mapping[str, EngineFacts]:
    """Every engine by name."""
    return {name: _facts(name, row) for name, row in read_json("engines.json")["engines"].items()}


def engine(name: str) -> EngineFacts:
    """The engine of that name; KeyError when unknown."""
    return engines()[name]


def _facts(name: str, row: Mapping[str, Any]) -> EngineFacts:
    versioned = {kind: row[kind] for kind in ("metrics", "drain_flag", "kv_dtypes", "min_capability")}
    versioned["declared_kv"] = row.get("declared_kv", [])
    return EngineFacts(
        name=name,
        title=row["title"],
        latest_version=row["latest_version"],
        tasks=tuple(row["tasks"]),
        vendors=tuple(row["vendors"]),
        command=tuple(row["command"]),
        port=row["port"],
        metrics_port=row.get("metrics_port", row["port"]),
        health_path=row["health_path"],
        metrics_path=row["metrics_path"],
        memory_fraction_of=row["memory_fraction_of"],
        notes=tuple(row["notes"]),
        source=row["source"],
        image_pattern=row["image"],
        image_prefixes=row.get("image_prefix_by_capability", {}),
        argument_table=tuple(Argument(**argument) for argument in row["arguments"]),
        environment_table=tuple(Argument(**argument) for argument in row["environment"]),
        defaults_of=row.get("defaults_of", ""),
        defaults_note=row.get("defaults_note", ""),
        eras={kind: eras(rows) for kind, rows in {**row["defaults"], **versioned}.items()},
        weight_methods={dtype: tuple(methods) for dtype, methods in row.get("weight_methods", {}).items()},
        kv_min_capability=row.get("kv_min_capability", {}),
        fixed_kv=frozenset(row.get("fixed_kv", ())),
        own_kv=row.get("own_kv", {}),
        reserve=reserve_of(row.get("reserve")),
        refuses_long_prompts=row.get("refuses_long_prompts", False),
        admission=row.get("admission", "prompt"),
        prefill_first=row.get("prefill_first", False),
    )
