"""`kind: Reference`: figures that somebody stated of a deployment, to be held against its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rightslice.spec.fields import Known, Problem
from rightslice.spec.loader import NOTHING_KNOWN, parse_document, read_document
from rightslice.spec.sections import Section

Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class StatedFigure(Section):
    """One figure. `part`: read somewhere, computed from what was read, or chosen so that the simulation agrees.

    `of`: what it is of in a simulation: requests_per_s, requests_per_s_per_gpu, success, e2e, or stage:NAME (means);
    None for figures that went in.
    """

    part: Literal["published", "derived", "fitted"]
    what: Text
    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: Literal["requests/s", "s", "ms", "share", "tokens", ""] = ""
    of: Text | None = None


class Reference(Section):
    """The whole document."""

    api_version: Literal["rightslice/v1"] = Field(alias="apiVersion")
    kind: Literal["Reference"]
    source: Text
    figures: Annotated[tuple[StatedFigure, ...], Field(min_length=1, max_length=200)]


def load_reference(path: Path | str, known: Known = NOTHING_KNOWN) -> Reference:
    """Read and check a file of at most 2 MB. Raises BadInputError with every mistake, in file order."""
    return parse_document(read_document(path), Reference, _no_problems, file=str(path), known=known)[0]


def _no_problems(_document: object) -> list[Problem]:
    return []
