"""Why a plan is as it is, in numbers: what each model runs on, and what would change the choice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionReason:
    """Why a model runs on whole GPUs, slices or shared GPUs.

    Shares are of one whole GPU of `accelerator`: of its SMs and its bandwidth while it works (`sm_demand`,
    `bandwidth_demand`), of the time in which its planned load keeps the GPU busy (`duty`; 1 means that it fills one or
    more). `slowdowns`: partition -> mean time over that alone on a whole GPU; the shared ones beside `neighbours`, the
    models that are on its GPUs.
    """

    model: str
    accelerator: str
    partition: str
    isolation: str
    sm_demand: float | None
    bandwidth_demand: float | None
    duty: float | None
    memory_bytes: int
    neighbours: tuple[str, ...]
    slowdowns: dict[str, float]
    reason: str


@dataclass(frozen=True, slots=True)
class Saving:
    """What one more GPU of a limit saves a month, by the linear relaxation of the packing."""

    limit: str
    monthly_usd: float


@dataclass(frozen=True, slots=True)
class PlatformCost:
    """What the limits of a platform cost: with `instead` of it the workload costs `monthly_usd`, so much less.

    What has to be installed for `instead` pays while running it costs less than the difference.
    """

    provider: str
    platform: str
    instead: str
    monthly_usd: float
    difference_usd: float


@dataclass(frozen=True, slots=True)
class Flip:
    """The input whose change alone makes `rival` as cheap as the plan: `factor` on its present value.

    `factor` None: no change of that input within the range that was tried does.
    """

    rival: str
    input: str
    factor: float | None
    text: str
