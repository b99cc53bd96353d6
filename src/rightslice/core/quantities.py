"""Quantities with units: what a person writes -> base units (seconds, bytes, USD, per second), and back.

A bare number is refused where a unit matters, because `80` may mean GB or GiB, and the difference is a GPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

HOURS_PER_MONTH: Final = 730.0
"""Hours that clouds bill as a month (8,760 / 12)."""

_BYTES: Final = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
                 "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # fmt: skip
_SECONDS: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PER: Final = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}
_NUMBER: Final = r"([+-]?(?:\d[\d_]*)(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_AMOUNT: Final = re.compile(_NUMBER + r"\s*([A-Za-zµ]+)?")
_RATE: Final = re.compile(_NUMBER + r"\s*(?:req|requests|r)?\s*/\s*([A-Za-z]+)")
_USD: Final = re.compile(
    r"(?:\$\s*(\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)|(\d[\d,_]*(?:\.\d+)?)\s*(?:USD|usd|\$))(?:\s*/\s*[A-Za-z]+)?"
)


class QuantityError(ValueError):
    """The text is not a quantity of that kind. `unit_missing` tells a bare number from nonsense."""

    def __init__(self, message: str, *, unit_missing: bool = False) -> None:
        super().__init__(message)
        self.unit_missing = unit_missing


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _short(text: str) -> str:
    """The text without spaces around it; nothing when it is too long for any quantity."""
    text = text.strip()
    return text if len(text) <= 60 else ""


def _finite(number: float, shown: str) -> float:
    if not math.isfinite(number):
        raise QuantityError(f'"{shown}" is not a finite number')
    return number


def _parse(value: object, units: Mapping[str, float], what: str, examples: tuple[str, str]) -> float:
    shown = _shown(value)
    hint = f"try {examples[0]} or {examples[1]}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(f"expected a quantity of {what} ({hint})")
    if isinstance(value, int | float):
        tries = " or ".join(f"{shown}{unit}" for unit in _likely(units))
        raise QuantityError(f"{shown} needs a unit of {what} (try {tries})", unit_missing=True)
    match = _AMOUNT.fullmatch(_short(value))
    if not match or (match[2] and match[2] not in units):
        tries = (
            " or ".join(f"{match[1]}{unit}" for unit in _likely(units, match[2])) if match else " or ".join(examples)
        )
        raise QuantityError(f'"{shown}" is not a quantity of {what} (try {tries})')
    if not match[2]:
        tries = " or ".join(f"{match[1]}{unit}" for unit in _likely(units))
        raise QuantityError(f'"{shown}" needs a unit of {what} (try {tries})', unit_missing=True)
    return _finite(float(match[1].replace("_", "")) * units[match[2]], shown)


def _likely(units: Mapping[str, float], written: str = "") -> tuple[str, str]:
    """The two units that `written` may have meant: `GBs` -> GB, GiB."""
    if "GiB" not in units:
        return ("ms", "s")
    prefix = written[:1].upper() if written[:1].upper() in set("KMGT") else "G"
    return (f"{prefix}B", f"{prefix}iB")


def parse_bytes(value: object) -> int:
    """`80GB` -> 80_000_000_000, `80GiB` -> 85_899_345_920. Raises QuantityError."""
    return round(_parse(value, _BYTES, "bytes", ("80GB", "80GiB")))


def parse_seconds(value: object) -> float:
    """`800ms` -> 0.8, `6h` -> 21600.0. Raises QuantityError."""
    return _parse(value, _SECONDS, "time", ("800ms", "12s"))


def parse_rate(value: object) -> float:
    """`12/s` -> 12.0 per second, `90/min` -> 1.5. Raises QuantityError."""
    shown = _shown(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise QuantityError(f"{shown} needs a unit of rate (try {shown}/s or {shown}/min)", unit_missing=True)
    match = _RATE.fullmatch(_short(value)) if isinstance(value, str) else None
    if not match or match[2] not in _PER:
        raise QuantityError(f'"{shown}" is not a rate (try 12/s or 90/min)')
    return _finite(float(match[1].replace("_", "")) / _PER[match[2]], shown)


def parse_usd(value: object) -> float:
    """`$20,000` -> 20000.0; `$0.10`. Raises QuantityError."""
    shown = _shown(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise QuantityError(f"{shown} needs a currency (try ${shown})", unit_missing=True)
    match = _USD.fullmatch(_short(value)) if isinstance(value, str) else None
    if not match:
        raise QuantityError(f'"{shown}" is not an amount in US dollars (try $20000 or $0.10)')
    return _finite(float((match[1] or match[2]).replace(",", "").replace("_", "")), shown)


def parse_count(value: object) -> int:
    """A whole number of things: `1500`, `2e9`, `128k`. Raises QuantityError."""
    shown = _shown(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError("expected a whole number")
    text = _short(str(value)).replace(",", "")
    scale = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}.get(text[-1:], 1.0)
    try:
        number = float((text[:-1] if scale != 1.0 else text).replace("_", "")) * scale
    except ValueError:
        raise QuantityError(f'"{shown}" is not a whole number (try 1500 or 2e9)') from None
    if not math.isfinite(number) or number != round(number):
        raise QuantityError(f'"{shown}" is not a whole number (try 1500 or 2e9)')
    return round(number)


def format_bytes(amount_bytes: float, *, binary: bool = False) -> str:
    """`54.9 GB`, or `51.1 GiB` with `binary`."""
    step, units = (1024, ("B", "KiB", "MiB", "GiB", "TiB")) if binary else (1000, ("B", "kB", "MB", "GB", "TB"))
    amount = float(amount_bytes)
    for unit in units:
        if abs(amount) < step or unit == units[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= step
    raise AssertionError("unreachable")


def format_usd(amount_usd: float) -> str:
    """`$7,401`, `$5.07`, `$0.10`."""
    return f"${amount_usd:,.0f}" if abs(amount_usd) >= 100 else f"${amount_usd:,.2f}"


def format_seconds(amount_s: float) -> str:
    """`40 µs`, `612 ms`, `2.31 s`, `4 min 40 s`."""
    if 0.0 < amount_s < 9.5e-5:
        return f"{amount_s * 1e6:.3g} µs"
    if amount_s < 1.0:
        return f"{amount_s * 1e3:.0f} ms" if amount_s >= 0.0095 else f"{amount_s * 1e3:.1f} ms"
    if amount_s < 120.0:
        return f"{amount_s:.2f} s" if amount_s < 20 else f"{amount_s:.0f} s"
    if amount_s < 7200.0:
        return f"{int(amount_s // 60)} min {int(amount_s % 60)} s"
    return f"{amount_s / 3600:.1f} h"
