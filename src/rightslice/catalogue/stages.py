"""Measured stages that are not text generation, and the NIM containers that serve models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rightslice.catalogue.datafiles import read_json

MIB = 2**20


@dataclass(frozen=True, slots=True)
class StagePoint:
    """One load level. `streams`: requests at once, 0 for a saturating load of unstated size. None: not printed.

    Latency is end to end or what the profile's mode and note say.
    """

    streams: int
    latency_mean_ms: float | None = None
    latency_p99_ms: float | None = None
    first_audio_mean_ms: float | None = None
    first_audio_p99_ms: float | None = None
    requests_per_s: float | None = None
    audio_s_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class StageProfile:
    """One measured curve. `accelerator` is empty where the source names none, `points` where it gives memory only."""

    task: str
    model: str
    engine: str
    accelerator: str
    partition: str
    mode: str
    memory_bytes: int | None
    points: tuple[StagePoint, ...]
    source: str
    trust: str
    note: str


@dataclass(frozen=True, slots=True)
class NimModel:
    """One NIM container. `gpu_memory_gb` as printed; empty fields were not seen."""

    kind: str
    model: str
    image: str
    tags_seen: tuple[str, ...]
    profiles: tuple[str, ...]
    gpu_memory_gb: float | None
    note: str
    sources: tuple[str, ...]


@lru_cache(maxsize=1)
def stage_profiles() -> tuple[StageProfile, ...]:
    """Every measured curve, in the order of the data. Nothing is scaled from one accelerator to another."""
    document = read_json("stages.json")
    return tuple(
        StageProfile(
            task=row["task"],
            model=row["model"],
            engine=row["engine"],
            accelerator=row["accelerator"],
            partition=row["partition"],
            mode=row["mode"],
            memory_bytes=row["memory_mib"] * MIB if "memory_mib" in row else None,
            points=tuple(StagePoint(**point) for point in row["points"]),
            source=document["sources"][row["source"]]["name"],
            trust=document["sources"][row["source"]]["trust"],
            note=row.get("note", ""),
        )
        for row in document["profiles"]
    )


@lru_cache(maxsize=1)
def nim_models() -> tuple[NimModel, ...]:
    """Every NIM container, in the order of the data."""
    document = read_json("nim.json")
    return tuple(
        NimModel(
            kind=row["kind"],
            model=row["model"],
            image=row.get("image", ""),
            tags_seen=tuple(row.get("tags_seen", ())),
            profiles=tuple(row.get("profiles", ())),
            gpu_memory_gb=row.get("gpu_memory_gb"),
            note=row.get("note", ""),
            sources=tuple(document["sources"][key] for key in row["sources"]),
        )
        for row in document["models"]
    )
