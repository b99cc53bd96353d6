"""Quantities given on a command line: what cannot be read names its option."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.quantities import QuantityError

T = TypeVar("T")


def quantity_of(option: str, parse: Callable[[object], T], text: str) -> T:
    """`text` by one of the parsers of `quantities`. Raises BadInputError RS0501."""
    try:
        return parse(text)
    except QuantityError as error:
        raise BadInputError(Diagnostic("RS0501", f"{option}: {error}")) from None
