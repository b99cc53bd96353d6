"""How engines spell and read the arguments that bear on memory, and all others that their parsers accept:
`engine_arguments.json` and `engine_flags.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.engines import engine
from rightslice.catalogue.versions import version_key

COMMON = "vllm"
"""Whose names every argument is read under."""
_ANY = "*"


@dataclass(frozen=True, slots=True)
class QuantizationFlag:
    """What an engine accepts as its method of quantisation; see the head of the data file for each field."""

    methods: tuple[str, ...]
    earlier: tuple[str, ...]
    lacks: tuple[str, ...]
    deprecated: tuple[str, ...]
    while_loading: Mapping[str, str]
    reads: Mapping[str, tuple[str, ...]]
    anything: tuple[str, ...]
    unset: str

    def read_by(self, checkpoint: str, method: str) -> bool | None:
        """Whether `method` loads a checkpoint of that method; None when it is not known."""
        if checkpoint not in self.reads:
            return None
        accepted = self.reads[checkpoint]
        return _ANY in accepted or method in (checkpoint, *accepted, *self.anything)


@dataclass(frozen=True, slots=True)
class ComputeRules:
    """Formats of computation: `half_since`: version from which float16 replaces bfloat16 where a device has none, empty
    when never; `half_always`: even when told otherwise; `least_capability`: starts on nothing below; `no_half`: model
    types for which float16 is refused.
    """

    half_since: str
    half_always: bool
    least_capability: float
    no_half: frozenset[str]

    def falls_back(self, version: str) -> bool:
        """Whether `version` computes in float16 where bfloat16 was not asked for and is not there."""
        return self.half_since != "" and version_key(version) >= version_key(self.half_since)


@dataclass(frozen=True, slots=True)
class EngineArguments:
    """`names`: what the engine accepts -> the common name; `underscores`: `_` may stand for `-`."""

    version: str
    names: Mapping[str, str]
    underscores: bool
    suffixed: frozenset[str]
    quantization: QuantizationFlag | None
    compute: ComputeRules
    lora_ranks: tuple[int, ...]

    def spelled(self, name: str) -> str:
        """The engine's own spelling of a common name; empty when it has none."""
        return next((own for own, common in self.names.items() if common == name), "")

    def next_rank(self, rank: int) -> int | None:
        """The smallest rank of adapters that is taken and holds `rank`; None when all that are taken are smaller."""
        return next((size for size in self.lora_ranks or (rank,) if size >= rank), None)


@cache
def engine_arguments(name: str) -> EngineArguments:
    """Of the engine of that name; an engine around another takes that one's, one without a table vLLM's."""
    table = read_json("engine_arguments.json")["engines"]
    row = table.get(name) or table.get(engine(name).defaults_of) or table[COMMON]
    half = row["automatic_half"] or {"from": "", "always": False, "least_capability": 0.0}
    return EngineArguments(
        version=row["version"],
        names=row["names"],
        underscores=row["underscores"],
        suffixed=frozenset(row["suffixed"]),
        quantization=_quantization(row["quantization"]) if row["quantization"] else None,
        compute=ComputeRules(half["from"], half["always"], half["least_capability"], frozenset(row["no_half"])),
        lora_ranks=tuple(row.get("lora_ranks", ())),
    )


def _quantization(row: Mapping[str, Any]) -> QuantizationFlag:
    lists = {key: tuple(row[key]) for key in ("methods", "earlier", "lacks", "deprecated", "anything")}
    reads = {checkpoint: tuple(accepted) for checkpoint, accepted in row["reads"].items()}
    return QuantizationFlag(**lists, while_loading=row["while_loading"], reads=reads, unset=row["unset"])


@dataclass(frozen=True, slots=True)
class KnownFlags:
    """Every argument that the parser of `version` accepts; an unambiguous beginning may stand for a name."""

    version: str
    names: frozenset[str]
    abbreviations: bool

    def meant(self, flag: str) -> tuple[str, ...]:
        """The names that the flag stands for: one when it is accepted, several when it is ambiguous."""
        if flag in self.names or not self.abbreviations:
            return (flag,) if flag in self.names else ()
        return tuple(sorted(name for name in self.names if name.startswith(flag))) if len(flag) > 1 else ()


@cache
def known_flags(name: str) -> KnownFlags | None:
    """Of the engine of that name; None where no list of them was read."""
    row = read_json("engine_flags.json")["engines"].get(name)
    if row is None:
        return None
    names = (*row["names"], *row["switches"], *(f"--no-{switch[2:]}" for switch in row["switches"]))
    return KnownFlags(row["version"], frozenset(names), row["abbreviations"])


@cache
def names_of_all() -> Mapping[str, str]:
    """Every spelling of any engine -> the common name."""
    rows = read_json("engine_arguments.json")["engines"].values()
    return {own: common for row in rows for own, common in row["names"].items()}
