"""`rightslice emit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import write_json, write_line, write_note


def emit(
    plan: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), negative=())] = None,
    registry_prefix: str = "",
    hub_endpoint: str = "",
    verify: Flag = False,
    json: Flag = False,
) -> int:
    """Write the Kubernetes manifests of a plan. Exit code 1 when a check fails.

    Parameters
    ----------
    plan
        plan.json, or its folder.
    output
        Folder for the Kustomize tree and all.yaml. Without it nothing is written.
    registry_prefix
        In front of every image in place of its registry: a mirror of your own.
    hub_endpoint
        Address of a mirror of the Hugging Face hub.
    verify
        Build every overlay with kubectl, and check the alerts with promtool.
    json
        Print one JSON document.
    """
    from rightslice.app.emitting import emit as emitted  # noqa: PLC0415 - heavy
    from rightslice.manifests.mirrors import Mirrors  # noqa: PLC0415 - heavy

    found = emitted(plan, output, Mirrors(registry_prefix, hub_endpoint), verify=verify)
    if json:
        write_json(found)
    else:
        for check in found.checks:
            state = {True: "ok     ", False: "FAILED ", None: "skipped"}[check.passed]
            write_line(f"{state}  {check.tool}  {check.what}" + (f"  {check.said}" if check.said else ""))
        if output is not None:
            write_line(f"Wrote {len(found.files)} files in {output}; start with {output / 'README.md'}")
        elif not verify:
            write_note(f"{len(found.files)} files; -o DIR writes them")
    return 1 if any(check.passed is False for check in found.checks) else 0
