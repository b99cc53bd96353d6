"""What changes between the GPUs that run today and those of a plan, node by node, in the order in which to do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["add", "cut", "remove"]


@dataclass(frozen=True, slots=True)
class GpuChange:
    """One GPU of a node that has to be cut or shared anew: MIG profile or way of sharing -> places, `{}` for whole."""

    gpu: int
    before: dict[str, int]
    after: dict[str, int]


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """One node to add, to drain and cut anew, or to remove. `node` is its name today, empty for a new one.

    `evicts`: model -> replicas on it today. `stops`: models that nothing else serves until the step is done.
    """

    action: Action
    pool: str
    machine_type: str
    node: str
    gpus: tuple[GpuChange, ...]
    evicts: dict[str, int]
    stops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """From today's GPUs to the plan's. `gpus_kept`: they stay as they are; `steps` in the order in which to do them."""

    gpus_today: int
    gpus_kept: int
    gpus_cut: int
    gpus_added: int
    gpus_removed: int
    steps: tuple[ChangeStep, ...]
