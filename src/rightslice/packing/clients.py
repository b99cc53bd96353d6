"""Who may share one GPU: every multiset of clients that fits its memory, its time and its isolation class.

Whether the clients keep their objectives beside each other is not decided here: the caller knows what each gives inside
a group, and makes a `SharingGroup` of those that are worth it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MOST_CLIENTS: Final = 4
MOST_DUTY: Final = 0.7
"""Share of the GPU's time that all clients together may keep it busy."""
CONTEXT_BYTES: Final = 644_245_094
"""CUDA context and framework of one process: 0.6 GiB, beside what it asks for."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A replica of a model that may share a GPU. `duty`: share of the GPU's time that it is busy when alone.

    Only tenants of one `isolation` class meet; a model that has to be isolated is no tenant at all.
    """

    option: str
    model: str
    memory_bytes: float
    duty: float
    isolation: str = ""


def legal_groups(
    tenants: Sequence[Tenant], usable_bytes: float, most_clients: int = MOST_CLIENTS
) -> Iterator[tuple[Tenant, ...]]:
    """Every multiset of 2 to `most_clients` tenants that one GPU holds, in a fixed order.

    Memory: all clients with a context each within `usable_bytes`; time: duties of `MOST_DUTY` together.
    """
    ranked = sorted(tenants, key=lambda t: (t.isolation, t.memory_bytes, t.option))

    def extend(chosen: tuple[Tenant, ...], first: int, room: float, time: float) -> Iterator[tuple[Tenant, ...]]:
        if len(chosen) > 1:
            yield chosen
        if len(chosen) == most_clients:
            return
        for place in range(first, len(ranked)):
            tenant = ranked[place]
            if chosen and tenant.isolation != chosen[0].isolation:
                return
            left = room - tenant.memory_bytes - CONTEXT_BYTES
            if left < 0:
                if chosen:
                    return  # of one class the rest is larger still
                continue
            if tenant.duty <= time + 1e-12:
                yield from extend((*chosen, tenant), place, left, time - tenant.duty)

    yield from extend((), 0, usable_bytes, MOST_DUTY)
