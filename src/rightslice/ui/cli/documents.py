"""`rightslice init` and `rightslice schema`: the documents that people write and read."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import Parameter

from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import write_json, write_note, write_text


def init(
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)] = Path("workload.yaml"),
    /,
    *,
    name: str = "my-service",
    force: Flag = False,
) -> int:
    """Write a commented workload file to start from.

    Parameters
    ----------
    file
        Where to; `-` prints it.
    name
        Name of the workload, and of the Kubernetes objects made from it.
    force
        Overwrite an existing file.
    """
    from rightslice.core.files import write_atomically  # noqa: PLC0415 - not needed for `--help`
    from rightslice.spec.starter import starter_workload  # noqa: PLC0415 - heavy

    text = starter_workload(name)
    if str(file) == "-":
        write_text(text)
        return 0
    if file.exists() and not force:
        hint = "add --force to overwrite it, or name another file"
        raise BadInputError(Diagnostic("RS0407", "exists already", Location(str(file)), hint))
    write_atomically(file, text)
    write_note(f"Wrote {file}. Next: rightslice plan {quote(str(file))} -o out")
    return 0


def schema(*, plan: Flag = False, json: Flag = False) -> int:
    """Print the JSON Schema of the workload file, for editors and CI.

    Parameters
    ----------
    plan
        Of plan.json instead.
    json
        Changes nothing: the schema is JSON.
    """
    from rightslice.spec.plan_document import plan_schema  # noqa: PLC0415 - heavy
    from rightslice.spec.schema import workload_schema  # noqa: PLC0415 - heavy

    del json
    write_json(plan_schema() if plan else workload_schema())
    return 0
