"""Seeded randomness: one generator per purpose, so that adding a consumer never shifts another's numbers."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from rightslice.core.errors import BadInputError, Diagnostic

MAX_SEED: Final = 2**53 - 1
"""The largest whole number that every reader of JSON keeps."""


def checked_seed(seed: int) -> int:
    """The seed. Raises BadInputError RS0501 for one outside 0 to MAX_SEED."""
    if not 0 <= seed <= MAX_SEED:
        message = f"--seed {str(seed)[:40]} is out of range"
        raise BadInputError(Diagnostic("RS0501", message, hint=f"from 0 to {MAX_SEED}"))
    return seed


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A PCG64 generator that depends on `seed` and on the purpose's words only."""
    digest = hashlib.sha256("\x1f".join(str(word) for word in purpose).encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words])))
