"""`rightslice predict --rows` for speech, embedding and reranking: what was measured of a stage, carried over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from rightslice.catalogue.hardware import Device
from rightslice.catalogue.stages import StageProfile, stage_profiles
from rightslice.core.estimate import Metric, Provenance
from rightslice.performance.coefficients import sixteen_bit_flops
from rightslice.performance.stages import OTHER_ACCELERATOR_ERROR, REPEAT_ERROR

TASKS: Final = {"asr": "transcribe", "tts": "synthesize", "embed": "embed", "rerank": "rerank"}
_OTHER_SERVER_ERROR: Final = 1.5
"""The shipped runs of Whisper large-v2 on one RTX 3070 Ti differ by up to nine times with engine and batch."""
_WINDOW_S: Final = 30.0
"""Whisper takes audio in windows of 30 s; a request is one of them where the row does not say how long it is."""
_ONE_SIDED: Final = 1.28
_WORD: Final = re.compile(r"[a-z]+|\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class StagePrediction:
    """Times of a request in milliseconds, rates over all accelerators; None where nothing was measured.

    `ttft_ms`: to the first audio. `rtfx`: seconds of audio per second. `cell`: what the figures come from.
    """

    ttft_ms: Metric | None
    e2e_ms: Metric | None
    requests_per_s: Metric | None
    rtfx: Metric | None
    output_tokens_per_s: Metric | None
    cell: str
    provenance: Provenance


def predict_stage(row: Mapping[str, str], task: str, device: Device, accelerators: int) -> StagePrediction:
    """From the shipped run of the same model that resembles the row most, on its accelerator or another one.

    Rates go with the 16-bit FLOP/s of device or slice, as in `performance.stages`. The band is that of repeated runs
    where model, accelerator, partition and engine are the same, else at least +-50 %, and the figures are
    `unvalidated`. Raises ValueError where no run of the model is shipped.
    """
    known = [p for p in stage_profiles() if p.task == task and p.points and _is_model(row["model"], p.model)]
    if not known:
        raise ValueError(f"no measured run of {row['model'][:60]}")
    profile = max(known, key=lambda p: _likeness(row, p, device))
    speed, here = _speed(profile, device)
    engine = _words(row.get("engine", "")) & _words(profile.engine)
    same = here and bool(engine) and _is_model(profile.model, row["model"])
    error = REPEAT_ERROR if same else max(OTHER_ACCELERATOR_ERROR, _OTHER_SERVER_ERROR if not engine else 0.0)
    trust: Provenance = "measured" if same else "unvalidated"
    streams = float(row.get("concurrency_or_batch") or 0.0)

    def at(name: str, factor: float) -> Metric | None:
        points = [(p.streams, getattr(p, name)) for p in profile.points if getattr(p, name) is not None]
        if not points:
            return None
        most = streams or max(n for n, _ in points)
        counts, values = np.array(sorted(points), dtype=np.float64).T
        value = float(np.interp(most, counts, values)) * factor
        return _metric(value, error, trust)

    rate = speed * accelerators
    rtfx = at("audio_s_per_s", rate)
    requests = at("requests_per_s", rate) or (_times(rtfx, 1.0 / _WINDOW_S) if rtfx else None)
    return StagePrediction(
        ttft_ms=at("first_audio_mean_ms", 1.0 / speed),
        e2e_ms=at("latency_mean_ms", 1.0 / speed),
        requests_per_s=requests,
        rtfx=rtfx,
        output_tokens_per_s=_times(requests, float(row["osl"])) if requests and row.get("osl") else None,
        cell=f"stage/{profile.model}/{profile.accelerator or 'unstated'}",
        provenance=trust,
    )


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _is_model(asked: str, known: str) -> bool:
    """The words of the shipped name begin the asked one or the other way round: `FastPitch-HifiGAN`, `-en-us`."""
    one, other = (re.sub(r"[^a-z0-9]", "", text.casefold()) for text in (asked, known))
    return one.startswith(other) or other.startswith(one)


def _likeness(row: Mapping[str, str], profile: StageProfile, device: Device) -> tuple[int, ...]:
    asked = _words(" ".join(row.get(name, "") for name in ("model", "engine", "precision")))
    asked |= {word for word in _words(row.get("notes", "")) if len(word) > 3}
    asked |= {"batch", row["concurrency_or_batch"]} if row.get("load") == "static_batch" else set()
    exact = _is_model(row["model"], profile.model) and _is_model(profile.model, row["model"])
    streams = float(row.get("concurrency_or_batch") or 0.0)
    return (
        int(len(_words(row["model"]) ^ _words(profile.model)) == 0 or exact),
        int(profile.accelerator == device.accelerator.name),
        int(device.name.endswith(profile.partition) if device.sliced else profile.partition == "whole"),
        len(asked & _words(f"{profile.mode} {profile.engine}")),
        int(any(point.streams == streams for point in profile.points)),
        len(profile.points),
    )


def _speed(profile: StageProfile, device: Device) -> tuple[float, bool]:
    """FLOP/s of the device over those of the run, and whether it is the very same device or slice."""
    from rightslice.catalogue.accelerators import accelerator, resolve_accelerator  # noqa: PLC0415

    if profile.accelerator == device.accelerator.name:
        same = device.name.endswith(profile.partition) if device.sliced else profile.partition == "whole"
        return (1.0 if same or profile.partition != "whole" else device.sm_share), same
    name = resolve_accelerator(profile.accelerator) if profile.accelerator else None
    if name is None:
        raise ValueError(f"no measured run of {profile.model} on a known accelerator")
    return sixteen_bit_flops(device.accelerator) * device.sm_share / sixteen_bit_flops(accelerator(name)), False


def _metric(value: float, error: float, trust: Provenance) -> Metric:
    bound = (1.0 + error) ** _ONE_SIDED
    return Metric(value, value, value, value, value / (1.0 + error), value * (1.0 + error), value * bound, trust)


def _times(metric: Metric, factor: float) -> Metric:
    mean, low, high, bound = (value * factor for value in (metric.mean, metric.low, metric.high, metric.high95))
    return Metric(mean, mean, mean, mean, low, high, bound, metric.provenance)
