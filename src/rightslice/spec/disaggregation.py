"""A model whose prompts and answers are computed on replicas of their own, as `simulate --set` writes it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationError

from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.spec.nodes import compose
from rightslice.spec.sections import Section

MAX_REPLICAS = 10_000


class Disaggregation(Section):
    """Replicas of either kind. `link_gbps`: rate of one prefill replica in Gbit/s; None: its machine's network."""

    prefill: Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
    decode: Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
    link_gbps: Annotated[float, Field(gt=0.0, le=1e6)] | None = None


def parse_disaggregation(text: str, option: str) -> Disaggregation:
    """A YAML mapping. Raises BadInputError RS0501 with the first mistake."""
    value = compose(text, option).root.plain
    try:
        return Disaggregation.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = tuple(Disaggregation.model_fields)
        hint = did_you_mean(where, known) if where not in known else "for example {prefill: 2, decode: 3}"
        message = f"{option}: {where or 'value'}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        raise BadInputError(Diagnostic("RS0501", message, hint=hint)) from None
