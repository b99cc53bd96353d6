"""Which entity acts next: a binary heap by time, then index, that knows where each entity is."""

from __future__ import annotations

from rightslice.simulation.compiling import compiled
from rightslice.simulation.layout import DUE, HEAP, PLACE, Ints


@compiled
def reschedule(entity: int, when_ps: int, agenda: Ints) -> None:
    """Let `entity` act at `when_ps`."""
    agenda[DUE, entity] = when_ps
    at = agenda[PLACE, entity]
    while at > 0:
        above = agenda[HEAP, (at - 1) // 2]
        if agenda[DUE, above] < when_ps or (agenda[DUE, above] == when_ps and above < entity):
            break
        agenda[HEAP, at] = above
        agenda[PLACE, above] = at
        at = (at - 1) // 2
    size = agenda.shape[1]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        below = agenda[HEAP, child]
        due = agenda[DUE, below]
        if child + 1 < size:
            other = agenda[HEAP, child + 1]
            if agenda[DUE, other] < due or (agenda[DUE, other] == due and other < below):
                child, below, due = child + 1, other, agenda[DUE, other]
        if when_ps < due or (when_ps == due and entity < below):
            break
        agenda[HEAP, at] = below
        agenda[PLACE, below] = at
        at = child
    agenda[HEAP, at] = entity
    agenda[PLACE, entity] = at
