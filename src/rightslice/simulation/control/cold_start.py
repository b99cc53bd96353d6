"""How long one replica takes from the request to its first answer, phase by phase."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from rightslice.catalogue.cold_start import (
    engine_phases,
    image_bytes,
    image_pull,
    node_provisioning,
    phase,
    weight_load,
)
from rightslice.catalogue.platforms import platforms
from rightslice.core.spread import Spread

PhaseName = Literal["node", "driver", "mig", "mig_reboot", "image_pull", "weights", "init", "compile", "graphs"]

ON_NODE: Final[frozenset[PhaseName]] = frozenset({"node", "driver", "mig", "mig_reboot"})
"""Phases that a replica skips on a node that is there already."""
PULL: Final[frozenset[PhaseName]] = frozenset({"image_pull"})
"""What it skips where the image is on the node."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase. `seconds` None: nobody published it, so it counts 0 and is named in `unknown`."""

    name: PhaseName
    seconds: Spread | None
    sources: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """One drawn start: seconds per phase in order, and the phases that count 0 because nothing is known."""

    phases: tuple[tuple[PhaseName, float], ...]
    unknown: tuple[PhaseName, ...]

    @property
    def total_s(self) -> float:
        """Request to ready."""
        return sum(seconds for _, seconds in self.phases)

    @property
    def until_running_s(self) -> float:
        """Request to a running container, that is node and image. Until then the pod's phase is Pending."""
        return sum(seconds for name, seconds in self.phases if name in ON_NODE or name in PULL)


@dataclass(frozen=True, slots=True)
class ColdStart:
    """The phases of a start, in order. Change one with `with_phase`."""

    phases: tuple[Phase, ...]

    def with_phase(self, name: PhaseName, seconds: Spread) -> ColdStart:
        """The same with another duration of one phase. Raises KeyError where there is no such phase."""
        if all(known.name != name for known in self.phases):
            raise KeyError(name)
        return ColdStart(
            tuple(
                replace(known, seconds=seconds, sources=(), note="given") if known.name == name else known
                for known in self.phases
            )
        )

    @property
    def unknown(self) -> tuple[PhaseName, ...]:
        """Phases without a published figure."""
        return tuple(known.name for known in self.phases if known.seconds is None)

    @property
    def node_s(self) -> Spread:
        """Request to usable accelerators: all phases of the node, for `nodes.NodePool.provision_s`."""
        whole = NOTHING
        for known in self.phases:
            if known.name in ON_NODE and known.seconds is not None:
                whole = whole.plus(known.seconds)
        return whole

    def draw(self, rng: np.random.Generator, skip: Collection[PhaseName] = frozenset()) -> Breakdown:
        """One start. Takes one number per phase, skipped or not, so that the rest of the run stays the same."""
        drawn = [(known.name, (known.seconds or NOTHING).draw(rng)) for known in self.phases]
        return Breakdown(
            phases=tuple((name, 0.0 if name in skip else seconds) for name, seconds in drawn),
            unknown=tuple(name for name in self.unknown if name not in skip),
        )

    def typical(self, skip: Collection[PhaseName] = frozenset()) -> Breakdown:
        """The start with every phase at its typical value."""
        return Breakdown(
            phases=tuple(
                (known.name, 0.0 if known.name in skip or known.seconds is None else known.seconds.typical)
                for known in self.phases
            ),
            unknown=tuple(name for name in self.unknown if name not in skip),
        )


NOTHING: Final = Spread.fixed(0.0)


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What a replica starts from.

    `weights_bytes` are the whole replica's. `image_bytes` 0: the engine's published size. `weights_from` and `pull` as
    the catalogue knows them. `mig`: the node is cut into slices. `kernel_cache`: compiled kernels are at hand.
    """

    platform: str
    engine: str
    weights_bytes: float
    weights_from: str = "shared-volume"
    pull: str = "default"
    image_bytes: float = 0.0
    mig: bool = False
    kernel_cache: bool = False


def cold_start(request: StartRequest) -> ColdStart:
    """Every phase from the catalogue. Raises KeyError for a platform, pull or source of weights it does not know."""
    return ColdStart((*_node(request), _image(request), _weights(request), *_engine(request)))


def _node(request: StartRequest) -> list[Phase]:
    platform = platforms()[request.platform]
    node, driver = node_provisioning(request.platform), phase("driver")
    phases = [
        Phase("node", node.spread, node.sources, node.note),
        Phase("driver", NOTHING, (), driver.note),
    ]
    if not request.mig:
        return phases
    if platform.mig == "uniform-per-pool":
        return [*phases, Phase("mig", NOTHING, (), "a property of the node pool: made with the node")]
    applied = phase("mig_apply")
    phases.append(Phase("mig", applied.spread, applied.sources, applied.note))
    if platform.mig_needs_reboot:
        reboot = phase("mig_reboot")
        phases.append(Phase("mig_reboot", reboot.spread, reboot.sources, reboot.note))
    return phases


def _image(request: StartRequest) -> Phase:
    transfer = image_pull(request.pull)
    size = request.image_bytes
    if not size:
        known = image_bytes(request.engine).spread
        if known is None and transfer.fixed_s is None:
            return Phase("image_pull", None, (), "size of the image unknown")
        size = 0.0 if known is None else known.typical
    return Phase("image_pull", transfer.seconds(size), transfer.sources, transfer.note)


def _weights(request: StartRequest) -> Phase:
    transfer = weight_load(request.weights_from)
    return Phase("weights", transfer.seconds(request.weights_bytes), transfer.sources, transfer.note)


def _engine(request: StartRequest) -> list[Phase]:
    figures, assumed = engine_phases(request.engine, kernel_cache=request.kernel_cache)
    names: tuple[PhaseName, ...] = ("init", "compile", "graphs")
    note = "vLLM's, assumed" if assumed else ""
    return [Phase(name, figures[name].spread, figures[name].sources, note or figures[name].note) for name in names]
