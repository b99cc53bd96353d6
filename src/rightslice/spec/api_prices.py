"""`kind: ApiPrices`: price lists of hosted APIs, as the user has read them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rightslice.spec.fields import Known, Name, Problem, Usd
from rightslice.spec.loader import NOTHING_KNOWN, parse_document, read_document
from rightslice.spec.sections import Section

Date = Annotated[str, StringConstraints(pattern=r"^\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?$")]


class ListedPrice(Section):
    """One model of one API; USD per million tokens. `for`: the model of the workload that it would replace."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    model: Name | None = Field(default=None, alias="for")
    input: Usd
    output: Usd
    cached: Usd | None = None
    date: Date
    source: Annotated[str, StringConstraints(max_length=300)] = ""


class ApiPrices(Section):
    """The whole document."""

    api_version: Literal["rightslice/v1"] = Field(alias="apiVersion")
    kind: Literal["ApiPrices"]
    prices: Annotated[tuple[ListedPrice, ...], Field(min_length=1, max_length=100)]


def load_api_prices(path: Path | str, known: Known = NOTHING_KNOWN) -> ApiPrices:
    """Read and check a file of at most 2 MB. Raises BadInputError with every mistake, in file order."""
    return parse_document(read_document(path), ApiPrices, _no_problems, file=str(path), known=known)[0]


def _no_problems(_document: object) -> list[Problem]:
    return []
