"""How the event loop is compiled: its parts are inlined into one function, whose machine code is kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def _part(function: Function, *, inlined: bool) -> Function:
    """A part of the loop, called from compiled code only.

    `_nrt=False`: parts never allocate, so numba need not count references to the arrays they are given. Without
    wrappers for calls from Python, compilation takes a third less time.
    """
    result: Function = numba.njit(
        nogil=True,
        error_model="numpy",
        _nrt=False,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        forceinline=inlined,
    )(function)
    return result


def compiled(function: Function) -> Function:
    """Compile a part, always inlined: the arrays of the state then stay in registers between parts."""
    return _part(function, inlined=True)


def compiled_apart(function: Function) -> Function:
    """Compile a part that is rare or used in several places."""
    return _part(function, inlined=False)


def compiled_and_cached(function: Function) -> Function:
    """Compile the whole loop, its parts included, and keep the machine code on disk where some folder is writable."""
    result: Function
    try:
        result = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function)
    except RuntimeError:  # "no locator available": a read-only installation
        result = numba.njit(nogil=True, error_model="numpy", _nrt=False)(function)
    return result


def source_digest() -> int:
    """A number that changes with any module of this package.

    The compiler keeps machine code by the file that holds the loop and by the loop's free variables; this number is
    one of them, so that a change in a part of the loop is compiled too. 0 where the sources cannot be read.
    """
    digest = hashlib.blake2b(digest_size=7)
    try:
        for path in sorted(Path(__file__).parent.glob("*.py")):
            digest.update(path.read_bytes())
    except OSError:
        return 0
    return int.from_bytes(digest.digest(), "big")
