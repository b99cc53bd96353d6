"""The engine's plan of its cache: groups of layers that share a block table, and the pool of their blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rightslice.memory.cache_rules import CacheRules

Keeps = Literal["all", "window", "chunk", "state", "encoder"]


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that share a block table, on one rank. `layers` are of the whole model.

    `block_bytes`: one block of all its layers on the fullest stage; `page_bytes`: of one layer. `reach_tokens`: window,
    chunk, or tokens of an encoder. A block of a `state` group is one state, of the whole sequence unless prefixes are
    cached; `states` of them are kept.
    """

    keeps: Keeps
    layers: int
    block_tokens: int
    page_bytes: int
    block_bytes: int
    reach_tokens: int = 0
    states: int = 1

    def blocks(self, tokens: int, in_flight_tokens: int | None) -> int:
        """Blocks that a request of at most `tokens` tokens reserves; `in_flight_tokens` None: a window keeps itself.

        A window may begin inside a block, hence one more.
        """
        if self.keeps == "state":
            return self.states
        kept, more = tokens, 0
        if self.keeps == "encoder":
            kept = self.reach_tokens
        elif self.keeps != "all" and in_flight_tokens is None:
            kept = min(self.reach_tokens, tokens)
        elif self.keeps == "window":
            kept, more = min(self.reach_tokens - 1 + in_flight_tokens, tokens), 1  # type: ignore[operator]
        elif self.keeps == "chunk":
            kept = min(self.reach_tokens + in_flight_tokens, tokens)  # type: ignore[operator]
        return -(-kept // self.block_tokens) + more


@dataclass(frozen=True, slots=True)
class CachePlan:
    """What one rank does with its room. Lengths are the longest allowed (`max_model_len`). Bytes are of one rank.

    `shared`: one pool whose block is as wide as the widest group. Otherwise every group has its own, and blocks of the
    pool, concurrency in blocks and the log line are not known.
    """

    groups: tuple[LayerGroup, ...]
    rules: CacheRules
    in_flight_tokens: int | None
    shared: bool

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of the pool."""
        return max((g.block_bytes for g in self.groups), default=0)

    def blocks_per_request(self, tokens: int) -> int:
        """Blocks that one request reserves over all groups."""
        return sum(g.blocks(tokens, self.in_flight_tokens) for g in self.groups)

    def bytes_per_request(self, tokens: int) -> int:
        """Bytes that one request reserves."""
        if self.shared:
            return self.blocks_per_request(tokens) * self.block_bytes
        return self._unpadded(tokens)

    @property
    def held_back_bytes(self) -> int:
        """Bytes of the blocks that the start-up check leaves out."""
        return self.rules.held_back_blocks * self.block_bytes if self.shared else 0

    def least_room_bytes(self, tokens: int) -> int:
        """The smallest room in which the engine starts with that longest length."""
        return self.held_back_bytes + (
            self._unpadded(tokens) if self.rules.check == "layers" else self.bytes_per_request(tokens)
        )

    def _unpadded(self, tokens: int) -> int:
        return sum(g.blocks(tokens, self.in_flight_tokens) * g.block_bytes for g in self.groups)

    def pool_blocks(self, room_bytes: int) -> int:
        """Blocks of the pool, the one that is held back included; 0 when there is no pool."""
        return max(0, room_bytes) // self.block_bytes if self.shared and self.block_bytes else 0

    def concurrency(self, room_bytes: int, tokens: int) -> float:
        """Requests of the longest length at once, as the engine prints it; 0 without a cache."""
        each = self.bytes_per_request(tokens)
        if not each:
            return 0.0
        if self.shared:
            return self.pool_blocks(room_bytes) / self.blocks_per_request(tokens)
        return max(0, room_bytes) / each

    def logged_tokens(self, room_bytes: int, tokens: int) -> int:
        """N of the log line "GPU KV cache size: N tokens"; 0 where no such line is known."""
        if not self.shared or not self.groups:
            return 0
        if self.rules.log == "concurrency":
            return int(self.concurrency(room_bytes, tokens) * tokens)
        smallest = min(g.block_tokens for g in self.groups)
        return self.pool_blocks(room_bytes) // len(self.groups) * smallest

    def longest_tokens(self, room_bytes: int, limit: int) -> int:
        """The longest length up to `limit` with which the engine starts; 0 when not even one token fits."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.least_room_bytes(middle) <= room_bytes else (low, middle - 1)
        return low
