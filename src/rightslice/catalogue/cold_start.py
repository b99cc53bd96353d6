"""Published times of each phase of a cold start: nodes, images, weights, engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.platforms import platforms
from rightslice.core.spread import Spread

GB: Final = 1e9
_DATA: Final = "cold_start.json"


@dataclass(frozen=True, slots=True)
class Figure:
    """What was published about one phase: seconds, bytes or bytes/s as the function says. None: nothing was."""

    spread: Spread | None
    sources: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Transfer:
    """How fast bytes arrive. `fixed`: seconds whatever the size."""

    bytes_per_s: Spread | None
    fixed_s: Spread | None
    sources: tuple[str, ...]
    note: str = ""

    def seconds(self, size_bytes: float) -> Spread | None:
        """What `size_bytes` take; None where no rate was published."""
        if self.fixed_s is not None:
            return self.fixed_s
        return None if self.bytes_per_s is None else self.bytes_per_s.per(size_bytes)


@dataclass(frozen=True, slots=True)
class StartupBudget:
    """Figures on the safe side, for limits that must not end a start that would have succeeded."""

    weights_bytes_per_s: float
    engine_s: int
    image_pull_s: int


def node_provisioning(platform: str) -> Figure:
    """Seconds from the request to a node whose accelerators can be used; driver and device plugin included.

    The middle of the platform's own range stands for its typical value. Nothing for machines of one's own. Raises
    KeyError for an unknown platform.
    """
    found = platforms()[platform]
    if found.provider == "on-prem":
        return Figure(None, (), "machines of one's own are there already")
    if found.node_provisioning_s is None:
        return _figure(read_json(_DATA)["node"], "s", 1.0)
    low, high = found.node_provisioning_s
    evidence = found.evidence["node_provisioning_s"]
    return Figure(Spread(low, (low + high) / 2.0, high), (evidence.source,), evidence.detail)


def phase(name: str) -> Figure:
    """Seconds of `driver`, `mig_apply` or `mig_reboot`. Raises KeyError for another."""
    if name not in {"driver", "mig_apply", "mig_reboot"}:
        raise KeyError(name)
    return _figure(read_json(_DATA)[name], "s", 1.0)


def image_bytes(engine: str) -> Figure:
    """Compressed size of the engine's image in bytes; nothing known for an engine without entry."""
    return _figure(read_json(_DATA)["images"].get(engine, {"points": []}), "gb", GB)


def image_pull(how: str) -> Transfer:
    """Pulling and unpacking: `default`, `parallel`, `streamed` or `preloaded`. Raises KeyError for another."""
    return _transfer(read_json(_DATA)["image_pull"][how])


def weight_load(source: str) -> Transfer:
    """From where the weights lie to the accelerators; `weight_sources()` are known. Raises KeyError for another."""
    return _transfer(read_json(_DATA)["weights"][source])


def weight_sources() -> tuple[str, ...]:
    """The places weights can be loaded from."""
    return tuple(read_json(_DATA)["weights"])


def engine_phases(engine: str, *, kernel_cache: bool) -> tuple[Mapping[str, Figure], bool]:
    """Seconds of `init`, `compile` and `graphs`, and whether they are another engine's, assumed."""
    known = read_json(_DATA)["engines"]
    rows = known.get(engine, known["vllm"])
    compiling = rows["compile_cached" if kernel_cache else "compile"]
    names = {"init": rows["init"], "compile": compiling, "graphs": rows["graphs"]}
    return {name: _figure(row, "s", 1.0) for name, row in names.items()}, engine not in known


def startup_budget() -> StartupBudget:
    """What probes and deadlines allow for."""
    row = read_json(_DATA)["startup_budget"]
    return StartupBudget(row["weights_bytes_per_s"], row["engine_s"], row["image_pull_s"])


def _figure(row: Mapping[str, Any], unit: str, factor: float) -> Figure:
    values = [point[unit] * factor for point in row["points"]]
    return Figure(Spread.of(values) if values else None, _sources(row["points"]), row.get("note", ""))


def _transfer(row: Mapping[str, Any]) -> Transfer:
    points = row["points"]
    rates = [point["gb"] * GB / point["s"] for point in points if "gb" in point]
    fixed = [point["s"] for point in points if "gb" not in point]
    return Transfer(
        bytes_per_s=Spread.of(rates) if rates else None,
        fixed_s=Spread.of(fixed) if fixed else None,
        sources=_sources(points),
        note=row.get("note", ""),
    )


def _sources(points: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    names = read_json(_DATA)["sources"]
    return tuple(dict.fromkeys(names[point["source"]] for point in points))
