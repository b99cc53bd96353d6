"""`rightslice cost …`: reserve or not, own or rent, machines or an API."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.ui.cli.options import Flag
from rightslice.ui.cli.output import terminal, write_json, write_text

MAX_GPUS_PER_MACHINE: Final = 1024
_SHARES: Final = ("network_share", "residual_share", "capital_cost", "load_share", "maintenance_share", "availability")
_NOT_ZERO: Final = ("server_usd", "years", "availability")


def _figure(text: str) -> Parameter:
    return Parameter(show_default=False, help=text)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Figures:
    """Your own figures; what is left out is taken from the published ones."""

    server_usd: Annotated[float | None, _figure("One server with its accelerators, USD.")] = None
    network_share: Annotated[float | None, _figure("Network and racks, as a share of the server price.")] = None
    years: Annotated[float | None, _figure("Depreciation in years.")] = None
    residual_share: Annotated[float | None, _figure("Residual value, as a share of the purchase.")] = None
    capital_cost: Annotated[float | None, _figure("Cost of capital a year: 0.08.")] = None
    power_kw: Annotated[float | None, _figure("Largest power of one node, kW.")] = None
    load_share: Annotated[float | None, _figure("Mean electrical load, as a share of the largest power.")] = None
    pue: Annotated[float | None, _figure("Power usage effectiveness.")] = None
    energy_usd_per_kwh: Annotated[float | None, _figure("Energy, USD per kWh.")] = None
    space_usd_per_kw_month: Annotated[float | None, _figure("Rented space, USD per kW and month.")] = None
    maintenance_share: Annotated[float | None, _figure("Maintenance a year, as a share of the server price.")] = None
    engineers: Annotated[float | None, _figure("Persons per node.")] = None
    engineer_usd_per_year: Annotated[float | None, _figure("One engineer with overhead, USD a year.")] = None
    availability: Annotated[float | None, _figure("Share of the hours in which it can be used.")] = None


_PUBLISHED: Final = Figures()


def build() -> App:
    """The group with one command per question."""
    app = App(name="cost", help="How much to reserve; own or rent; machines or an API.")
    app.command(reserve)
    app.command(own)
    app.command(compare)
    return app


def reserve(
    *, demand: Path, reserved_usd: float, alternative_usd: float, gpus_per_machine: int = 1, json: Flag = False
) -> int:
    """How many GPUs to reserve for an hourly demand, and what more assurance would cost.

    Parameters
    ----------
    demand
        CSV with one row per hour: column gpus, and pool where there are several.
    reserved_usd
        USD per reserved GPU-hour, paid every hour.
    alternative_usd
        USD per GPU-hour of what would be bought otherwise: on demand, or your mix of spot.
    gpus_per_machine
        Reserve whole machines of so many GPUs.
    json
        Print one JSON document.
    """
    wrong = [
        Diagnostic("RS0501", f"--{name} {value:g} is no price", hint="USD per GPU-hour, above 0")
        for name, value in (("reserved-usd", reserved_usd), ("alternative-usd", alternative_usd))
        if not (math.isfinite(value) and 0.0 < value <= 1e6)
    ]
    if not 1 <= gpus_per_machine <= MAX_GPUS_PER_MACHINE:
        message = f"--gpus-per-machine {str(gpus_per_machine)[:20]} is out of range"
        wrong.append(Diagnostic("RS0501", message, hint=f"1 to {MAX_GPUS_PER_MACHINE}"))
    if wrong:
        raise BadInputError(wrong)
    from rightslice.app.costing import reserve as reserved  # noqa: PLC0415 - numpy
    from rightslice.procurement.reserve import Prices  # noqa: PLC0415 - numpy

    report = reserved(demand, Prices(reserved_usd, alternative_usd), gpus_per_machine=gpus_per_machine)
    if json:
        write_json(report)
        return 0
    from rightslice.reporting.canvas import Style  # noqa: PLC0415 - rich
    from rightslice.reporting.cost_text import reserve_text  # noqa: PLC0415 - rich

    seen = terminal()
    prices = Prices(reserved_usd, alternative_usd)
    style = Style(seen.width, seen.color, seen.ascii_only)
    write_text(reserve_text(report.file, prices, report.pools, report.notes, style))
    return 0


def own(accelerator: str = "", /, *, gpus: int | None = None, figures: Figures = _PUBLISHED, json: Flag = False) -> int:
    """What an owned GPU-hour costs, and above which use it is cheaper than rent. No options: an 8 x H100 node.

    Parameters
    ----------
    accelerator
        What is in the node; another than the published one needs --server-usd and --power-kw.
    gpus
        Accelerators in the node.
    json
        Print one JSON document.
    """
    given = {f.name: value for f in fields(figures) if (value := getattr(figures, f.name)) is not None}
    wrong = [problem for name, value in given.items() if (problem := _problem(name, value))]
    if gpus is not None and not 1 <= gpus <= MAX_GPUS_PER_MACHINE:
        wrong.append(Diagnostic("RS0501", f"--gpus {str(gpus)[:20]} is out of range", hint="1 to 1024"))
    if wrong:
        raise BadInputError(wrong)
    from rightslice.app.costing import own as owned  # noqa: PLC0415 - numpy

    report = owned(accelerator, given, gpus=gpus)
    if json:
        write_json(report)
        return 0
    from rightslice.reporting.canvas import Style  # noqa: PLC0415 - rich
    from rightslice.reporting.cost_text import own_text  # noqa: PLC0415 - rich

    seen = terminal()
    write_text(
        own_text(report.answer, report.figures_date, report.notes, Style(seen.width, seen.color, seen.ascii_only))
    )
    return 0


def _problem(name: str, value: float) -> Diagnostic | None:
    option = f"--{name.replace('_', '-')}"
    top = 1.0 if name in _SHARES else 1e9
    if name == "pue" and not 1.0 <= value <= 10.0:
        return Diagnostic("RS0501", f"{option} {value:g} is out of range", hint="1 to 10")
    if not (math.isfinite(value) and 0.0 <= value <= top) or (name in _NOT_ZERO and value == 0.0):
        low = "above 0" if name in _NOT_ZERO else "0"
        return Diagnostic("RS0501", f"{option} {value:g} is out of range", hint=f"{low} to {top:g}")
    return None


def compare(plan: Path, /, *, api: Path, json: Flag = False) -> int:
    """A plan beside hosted APIs at its own traffic, and the traffic at which both cost the same.

    Parameters
    ----------
    plan
        plan.json, or its folder.
    api
        File of prices, kind: ApiPrices; docs/cost.md has one.
    json
        Print one JSON document.
    """
    from rightslice.app.comparing import compare as compared  # noqa: PLC0415 - heavy

    found = compared(plan, api)
    if json:
        write_json(found)
        return 0
    from rightslice.reporting.canvas import Style  # noqa: PLC0415 - rich
    from rightslice.reporting.compare_text import compare_text  # noqa: PLC0415 - rich

    seen = terminal()
    write_text(compare_text(found, Style(seen.width, seen.color, seen.ascii_only)))
    return 0
