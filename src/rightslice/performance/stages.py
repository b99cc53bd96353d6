"""Measured stages (speech, embeddings, rerankers): latency by concurrency, carried over to a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rightslice.catalogue.accelerators import accelerator
from rightslice.catalogue.hardware import Device
from rightslice.core.estimate import Provenance
from rightslice.performance.coefficients import sixteen_bit_flops
from rightslice.performance.costs import PS_PER_S, StageCosts

if TYPE_CHECKING:
    from rightslice.spec.workload import Profile

REPEAT_ERROR = 0.20
"""Two equal slices under the same load differ by up to 18 %, a slice and the whole GPU by up to 12 % where the stage
does not fill the slice: published NIM measurements of Parakeet CTC 1.1B on an H100, 30-50 requests a level."""
SLICE_ERROR = 1.0
"""YOLOS-small on a 1g.10gb of an A100 (14 of 108 SMs) is 3.9 times slower than on the whole GPU (nos sharing
benchmark); taken to fill the GPU, the law below says 7.7."""
OTHER_ACCELERATOR_ERROR = 0.5
"""Parakeet 0.6B on an A100 takes 1.06 (batch 1) to 1.34 times (batch 16) what it takes on an H200 (fast-gpu-asr
benchmarks), where the law below says 1.0; from batch 64 on, where it fills the GPU, 1.6 to 1.9."""


def stage_costs(profile: Profile, device: Device) -> StageCosts:
    """Latency of a measured stage on a device, by concurrency.

    Between measured points the latency is linear in the streams, below the first it is the first's, and the last point
    is the most that run at once: more wait.

    The stage keeps sm_demand x FLOP/s(measured_on) busy. A device or slice with less 16-bit FLOP/s than that is slower
    in proportion; one with more is not faster. The true factor lies between 1 and that ratio, which is the band; the
    published cases above bound it. Without `measured_on` the user vouches for the profile on every accelerator that
    the workload allows. KeyError for an unknown `measured_on`.
    """
    streams = np.arange(1, profile.streams[-1] + 1)
    seconds = np.interp(streams, profile.streams, profile.latency)
    here = profile.measured_on in (None, device.accelerator.name)
    slowdown = max(1.0, demand(profile, device))
    error, provenance = _trust(device, slowdown, here=here)
    latency_ps = np.concatenate(([0], np.rint(seconds * slowdown * PS_PER_S).astype(np.int64)))
    return StageCosts(latency_ps, error, provenance)


def demand(profile: Profile, device: Device) -> float:
    """16-bit FLOP/s that the stage keeps busy over those of the device; above 1 it is slower there."""
    here = profile.measured_on in (None, device.accelerator.name)
    measured_on = device.accelerator if here else accelerator(str(profile.measured_on))
    available = sixteen_bit_flops(device.accelerator) * device.sm_share
    return profile.sm_demand * sixteen_bit_flops(measured_on) / available


def _trust(device: Device, slowdown: float, *, here: bool) -> tuple[float, Provenance]:
    known = REPEAT_ERROR if here else OTHER_ACCELERATOR_ERROR
    error = max(known, min(slowdown - 1.0, SLICE_ERROR))
    if not here:
        return error, "unvalidated"
    if not device.sliced:
        return error, "measured"
    return error, "interpolated" if slowdown == 1.0 else "first-principles"
