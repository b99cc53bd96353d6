"""CPU seconds by stage, for `timings`; never part of a plan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Books CPU time under names; nested bookings of different names each count their own span."""

    def __init__(self) -> None:
        self._start = time.process_time()
        self._spent_s: dict[str, float] = {}

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Book the CPU time of the block."""
        before = time.process_time()
        try:
            yield
        finally:
            self._spent_s[name] = self._spent_s.get(name, 0.0) + time.process_time() - before

    def timings(self) -> dict[str, float]:
        """Seconds by name, and `total_cpu_s` since the clock was made."""
        return {**self._spent_s, "total_cpu_s": time.process_time() - self._start}
