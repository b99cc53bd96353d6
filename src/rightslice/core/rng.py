"""Seeded randomness: one generator per purpose, so that adding a consumer never shifts another's numbers."""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A PCG64 generator that depends on `seed` and on the purpose's words only."""
    digest = hashlib.sha256("\x1f".join(str(word) for word in purpose).encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words])))
