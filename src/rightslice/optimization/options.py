"""One way to run one replica of one model, ready to be packed."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.core.plan import Memory, Rejection
from rightslice.performance.costs import StageCosts, StepCosts


@dataclass(frozen=True, slots=True)
class Option:
    """`device` is what each of the replica's `gpus` engine ranks sees; `node_gpus` of them must share a node (0: all).

    `costs` is None when no request reaches it. They are of one data-parallel rank (`engines` of them in a replica).
    """

    key: str
    model: str
    device: Device
    gpus: int
    engine: str
    engine_version: str
    settings: EngineSettings | None
    memory: Memory
    costs: StepCosts | StageCosts | None
    precision_lowered: bool = False
    node_gpus: int = 0

    @property
    def accelerator(self) -> str:
        """Canonical accelerator name."""
        return self.device.accelerator.name

    @property
    def partition(self) -> str:
        """`whole` or a MIG profile."""
        return self.device.partition

    @property
    def engines(self) -> int:
        """Schedulers with a cache of their own in one replica: its data-parallel ranks."""
        return self.settings.data_parallel_size if self.settings else 1

    @property
    def caches_prefixes(self) -> bool:
        """Whether its engine finds the beginning of a prompt again."""
        return self.settings is not None and self.settings.prefix_caching

    @property
    def relative_error(self) -> float:
        """Half width of the 80 % band of its times; 0 without a load."""
        return self.costs.relative_error if self.costs else 0.0

    @property
    def provenance(self) -> str:
        """Where its times come from."""
        return self.costs.provenance if self.costs else "measured"


@dataclass(frozen=True, slots=True)
class Candidates:
    """Every option of every model, and why others are none."""

    options: tuple[Option, ...]
    rejections: tuple[Rejection, ...]

    def of(self, model: str) -> tuple[Option, ...]:
        """The options of one model."""
        return tuple(option for option in self.options if option.model == model)
