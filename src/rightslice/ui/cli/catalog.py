"""`rightslice catalog …`: look things up."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import terminal, write_json, write_text

Json = Annotated[Flag, Parameter(help="Print one JSON document.")]
Search = Annotated[str, Parameter(show_default=False, help="Only rows in which this text occurs.")]
Provider = Annotated[str, Parameter(show_default=False, help="Only this provider: gcp, aws, azure, …")]
Region = Annotated[str, Parameter(show_default=False, help="Only this region.")]
Accelerator = Annotated[str, Parameter(show_default=False, help="Only this accelerator.")]


def build() -> App:
    """The group with one command per table."""
    app = App(name="catalog", help="What hardware, machines, models, engines and platforms are known.")
    for command in (accelerators, machines, models, engines, platforms, mig):
        app.command(command)
    return app


def accelerators(*, search: Search = "", json: Json = False) -> int:
    """Accelerators: memory, bandwidth, compute, links."""
    return _table("accelerators", search=search, json=json)


def machines(
    *,
    provider: Provider = "",
    region: Region = "",
    accelerator: Accelerator = "",
    search: Search = "",
    json: Json = False,
) -> int:
    """Machine types with their accelerators and prices."""
    return _table("machines", provider=provider, region=region, accelerator=accelerator, search=search, json=json)


def models(*, search: Search = "", json: Json = False) -> int:
    """Models whose architecture is known without asking a hub."""
    return _table("models", search=search, json=json)


def engines(*, search: Search = "", json: Json = False) -> int:
    """Inference engines and their defaults."""
    return _table("engines", search=search, json=json)


def platforms(*, provider: Provider = "", search: Search = "", json: Json = False) -> int:
    """Kubernetes platforms: which sharing and which layouts each can make."""
    return _table("platforms", provider=provider, search=search, json=json)


def mig(*, accelerator: Accelerator = "", search: Search = "", json: Json = False) -> int:
    """MIG profiles: what an accelerator can be cut into."""
    return _table("mig", accelerator=accelerator, search=search, json=json)


def _table(
    kind: str,
    *,
    provider: str = "",
    region: str = "",
    accelerator: str = "",
    search: str = "",
    json: bool,
) -> int:
    from rightslice.app.catalogue import catalogue_table  # noqa: PLC0415 - heavy

    table = catalogue_table(kind, provider=provider, region=region, accelerator=accelerator, search=search)
    if json:
        write_json({"table": kind, "rows": table.rows, "notes": table.notes})
        return 0
    from rightslice.reporting.catalogue_text import table_text  # noqa: PLC0415 - rich

    seen = terminal()
    write_text(table_text(table, width=seen.width, color=seen.color, ascii_only=seen.ascii_only))
    return 0
