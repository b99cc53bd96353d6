"""What weight files add to a configuration: exact bytes where both describe the same model, a remark where not."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rightslice.catalogue.architecture import Architecture, WeightGroup
from rightslice.catalogue.architectures.reader import Stored
from rightslice.core.quantities import format_bytes

SAME: Final = 0.001
"""Differences up to here are not told: buffers such as position ids, rounding of scales."""
TOLERANCE: Final = 0.10
"""Up to here the files and the configuration describe the same model, and the bytes of the files count."""
_SMALLEST: Final = 1 / 12
_LARGEST: Final = 2.2
"""Files / configuration that another precision explains: from 32 bit to 2 or 3, from 16 bit to 32."""


def with_stored(found: Architecture, stored: Stored) -> Architecture:
    """`found` with the bytes that its weight files hold, or with the reason why they are not believed.

    The files count where they are whole and hold as many elements as the configuration describes (or, where elements
    are packed, as many bytes), give or take `TOLERANCE`; also where the configuration is only approximated and a
    precision explains the difference. Otherwise the configuration counts, and the answer says so.
    """
    described = found.published_weights_bytes
    ratio = stored.total_bytes / described if described else 1.0
    shown = f"{format_bytes(stored.total_bytes)} in the safetensors {stored.source}"
    if stored.remark:
        note = f"weights: by the configuration alone; the weight files are not whole ({stored.remark})"
        return replace(found, notes=(*found.notes, note))
    if not _same_model(found, stored, ratio):
        note = (
            f"weights: {format_bytes(described)} by the configuration; {shown} ({ratio - 1:+.1%}) are not counted, "
            "for they belong to another model or to a part of this one"
        )
        return replace(found, approximations=(*found.approximations, note))
    return _measured(found, stored, ratio)


def _same_model(found: Architecture, stored: Stored, ratio: float) -> bool:
    if abs(ratio - 1.0) <= TOLERANCE:
        return True
    if stored.elements is not None:
        close = abs(stored.elements / max(1, found.parameters) - 1.0) <= TOLERANCE
        return close or bool(found.approximations and _SMALLEST <= ratio <= _LARGEST)
    return _SMALLEST <= ratio <= _LARGEST and (bool(found.approximations) or not found.quantisation)


def _measured(found: Architecture, stored: Stored, ratio: float) -> Architecture:
    notes = [*found.notes, f"weights: {format_bytes(stored.total_bytes)} from the safetensors {stored.source}"]
    if stored.extra_bytes:
        notes.append(f"{format_bytes(stored.extra_bytes)} of multi-token-prediction weights on top are not counted")
    if abs(ratio - 1.0) > SAME:
        told = f"the configuration alone gives {format_bytes(found.published_weights_bytes)} ({1 / ratio - 1:+.1%})"
        notes.append(f"{told}: the files count")
    if stored.elements is not None and stored.elements != found.parameters:
        notes.append(
            f"the weight files hold {stored.elements:,} elements, the configuration gives {found.parameters:,}"
        )
    dtype = found.published_dtype if found.quantisation else stored.main_dtype or found.published_dtype
    return replace(
        found,
        published_weights_bytes=stored.total_bytes,
        published_dtype=dtype,
        weights=_scaled(found.weights, ratio, stored.total_bytes),
        notes=tuple(notes),
    )


def _scaled(groups: tuple[WeightGroup, ...], factor: float, total: int) -> tuple[WeightGroup, ...]:
    """Every group's bytes times `factor`; what rounding leaves of `total` goes to the largest."""
    if not groups:
        return ()
    sizes = [round(group.published_bytes * factor) for group in groups]
    largest = max(range(len(sizes)), key=lambda i: sizes[i])
    sizes[largest] += total - sum(sizes)
    return tuple(replace(group, published_bytes=size) for group, size in zip(groups, sizes, strict=True))
