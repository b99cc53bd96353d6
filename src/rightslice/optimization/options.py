"""One way to run one replica of one model, ready to be packed."""

from __future__ import annotations

from dataclasses import dataclass

from rightslice.catalogue.hardware import Device
from rightslice.core.engine import EngineSettings
from rightslice.core.plan import Memory, Rejection
from rightslice.performance.costs import StageCosts, StepCosts
from rightslice.performance.sharing import Mode, Tenant, shared


@dataclass(frozen=True, slots=True)
class Share:
    """Who is on the GPU of a replica: its own profile, and those of the other slots. `each`: replicas of one model.

    `label`: the workload's name for the group. `anywhere`: any of its replicas may meet on a GPU, as on a node with
    several, where the device plugin and not the plan chooses.
    """

    mode: Mode
    label: str
    tenant: Tenant
    neighbours: tuple[Tenant, ...]
    each: int
    anywhere: bool

    @property
    def slots(self) -> int:
        """Replicas on one GPU."""
        return 1 + len(self.neighbours)

    @property
    def thread_share(self) -> float:
        """Of the SMs: the device plugin limits every MPS client to its part (k8s-device-plugin, MPS daemon)."""
        return 1.0 / self.slots if self.mode == "mps" else 1.0


@dataclass(frozen=True, slots=True)
class Option:
    """`device` is what each of the replica's `gpus` engine ranks sees; `node_gpus` of them must share a node (0: all).

    `costs` is None when no request reaches it. They are of one data-parallel rank (`engines` of them in a replica), and
    alone on the GPU where others `share` it, but with a band that holds beside them.
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
    cache_overridden: bool = False
    node_gpus: int = 0
    share: Share | None = None

    @property
    def accelerator(self) -> str:
        """Canonical accelerator name."""
        return self.device.accelerator.name

    @property
    def partition(self) -> str:
        """`whole`, a MIG profile, or how the GPU is shared."""
        return self.device.partition

    @property
    def slot(self) -> str:
        """What it takes up in a packing: on a shared GPU a place of its model's own."""
        return f"{self.partition} {self.share.label}/{self.model}" if self.share else self.partition

    @property
    def crowding(self) -> float:
        """Slowdown while everybody else on its GPU is busy."""
        if self.share is None:
            return 1.0
        return shared(self.share.mode, self.share.tenant, self.share.neighbours, self.share.thread_share)

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
