"""`rightslice catalog`: look things up."""

from __future__ import annotations

from rightslice.catalogue.tables import CatalogueTable, Filters, kinds, table
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean


def catalogue_table(
    kind: str, *, provider: str = "", region: str = "", accelerator: str = "", search: str = ""
) -> CatalogueTable:
    """Rows of one table of the catalogue. Raises BadInputError for an unknown table or filter."""
    if kind not in kinds():
        hint = did_you_mean(kind, kinds()) or f"one of {', '.join(kinds())}"
        raise BadInputError(Diagnostic("RS0501", f'unknown catalogue "{kind[:60]}"', hint=hint))
    return table(kind, filters=Filters(provider, region, accelerator, 0, search))
