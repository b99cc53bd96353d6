"""`kind: ModelScores`: how good models are, by benchmarks and by the user's own evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rightslice.spec.fields import Known, Problem
from rightslice.spec.loader import NOTHING_KNOWN, parse_document, read_document
from rightslice.spec.sections import Section

Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Date = Annotated[str, StringConstraints(pattern=r"^\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?$")]


class Score(Section):
    """One result: higher is better. `model`: the source as it is named in a workload."""

    model: Text
    name: Text
    value: Annotated[float, Field(allow_inf_nan=False)]
    date: Date
    source: Text


class ModelScores(Section):
    """The whole document; the first name is the one of the frontier."""

    api_version: Literal["rightslice/v1"] = Field(alias="apiVersion")
    kind: Literal["ModelScores"]
    scores: Annotated[tuple[Score, ...], Field(min_length=1, max_length=1000)]


def load_scores(path: Path | str, known: Known = NOTHING_KNOWN) -> ModelScores:
    """Read and check a file of at most 2 MB. Raises BadInputError with every mistake, in file order."""
    return parse_document(read_document(path), ModelScores, _no_problems, file=str(path), known=known)[0]


def _no_problems(_document: object) -> list[Problem]:
    return []
