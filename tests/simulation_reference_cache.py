"""The prefix cache of the plain reference, block by block, as rightslice.simulation.prefix states it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(eq=False)
class Copy:
    """A block of a prefix, as some job computed it, and how many use it."""

    block: int
    users: int = 1


class Cached(Hashable, Protocol):
    """What the cache knows of a job: ids of its prefix, tokens that must be in the cache, copies that it uses."""

    prefix: tuple[int, ...]
    copies: list[Copy]

    @property
    def known(self) -> int: ...


@dataclass
class PrefixCache:
    """`weight` KV blocks of `block` tokens make one block of a prefix; 0: there is no cache."""

    block: int
    weight: int = 0
    copies: dict[int, list[Copy]] = field(default_factory=dict)
    """By id; the oldest one is found."""
    idle: list[Copy | Cached | None] = field(default_factory=list)
    """What nobody uses, left longest ago first; an evicted job stands for one of its own blocks, None for a block that
    nobody can find."""

    @property
    def tokens(self) -> int:
        return self.block * self.weight

    @property
    def idle_blocks(self) -> int:
        return sum(self.weight if isinstance(entry, Copy) else 1 for entry in self.idle)

    @property
    def saved(self) -> int:
        """Blocks that jobs need not have of their own, because others use them too."""
        used = [copy.users for copies in self.copies.values() for copy in copies]
        return sum(max(users - 1, 0) for users in used) * self.weight

    def in_use(self, job: Cached, shared: int) -> int:
        """KV blocks of its first `shared` prefix blocks that others use."""
        return sum(self.copies[block][0].users > 0 for block in job.prefix[:shared]) * self.weight

    def find(self, job: Cached) -> tuple[int, int]:
        """Blocks of its prefix and own blocks that are known, but for at least one token."""
        if not self.weight:
            return 0, 0
        found = 0
        while found < len(job.prefix) and job.prefix[found] in self.copies:
            found += 1
        shared, own = min(found, (job.known - 1) // self.tokens), 0
        if shared == len(job.prefix):
            own = min(self.idle.count(job), (job.known - 1) // self.block - shared * self.weight)
        return shared, own

    def adopt(self, job: Cached, shared: int, own: int) -> None:
        """The job uses what it has found; of its own blocks the last ones were left first."""
        mine = [at for at, entry in enumerate(self.idle) if entry is job]
        lost = len(mine) - own
        for at in mine[:lost]:
            self.idle[at] = None
        for at in reversed(mine[lost:]):
            del self.idle[at]
        job.copies = [self.copies[block][0] for block in job.prefix[:shared]]
        for copy in job.copies:
            if copy.users == 0:
                self.idle.remove(copy)
            copy.users += 1

    def compute(self, job: Cached, tokens: int) -> None:
        """The job's first `tokens` tokens are in its blocks: those of its prefix become known."""
        for block in job.prefix[len(job.copies) : tokens // self.tokens] if self.weight else ():
            job.copies.append(Copy(block))
            self.copies.setdefault(block, []).append(job.copies[-1])

    def leave(self, job: Cached, tokens: int, *, again: bool) -> None:
        """A job with so many tokens in its blocks goes, its last block first; `again`: it will come back."""
        if not self.weight:
            return
        own = tokens // self.block - len(job.copies) * self.weight
        self.idle += [job if again and len(job.copies) == len(job.prefix) else None] * own
        for copy in reversed(job.copies):
            copy.users -= 1
            if copy.users == 0:
                self.idle.append(copy)
        job.copies = []

    def trim(self, free: int) -> None:
        """Others have taken the place of what was left longest ago."""
        while self.idle_blocks > free:
            entry = self.idle.pop(0)
            if isinstance(entry, Copy):
                self.copies[entry.block].remove(entry)
                if not self.copies[entry.block]:
                    del self.copies[entry.block]

    def clear(self) -> None:
        self.copies.clear()
        self.idle.clear()
