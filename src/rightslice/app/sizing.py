"""`rightslice size`: does it fit, on what, with how many sequences?"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rightslice.app.models import find_model
from rightslice.catalogue.accelerators import accelerators, device, resolve_device
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.machines import machines
from rightslice.catalogue.mig import geometry
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.memory.sizing import SizeReport, SizeRequest, size
from rightslice.memory.startup import StartupReport, startup

VENDOR = "nvidia"
"""The ladder shows accelerators of the vendor whose engine images are emitted; any other can be asked for by name."""


def size_model(source: str, *, accelerator: str | None = None, **asked: Any) -> SizeReport:
    """Size one model. `asked` are the fields of SizeRequest. Raises BadInputError for unknown names and values."""
    known = {field.name for field in fields(SizeRequest)}
    if unknown := sorted(set(asked) - known):
        raise TypeError(f"unknown argument {unknown[0]}")
    request = SizeRequest(accelerator=accelerator, **asked)
    return size(find_model(source), request, asked_about(accelerator))


def asked_about(accelerator: str | None) -> tuple[Device, ...]:
    """The device of that name, or all of the ladder. Raises BadInputError for an unknown one."""
    return (_named(accelerator),) if accelerator else ladder()


def start_up(source: str, accelerator: str | None, engine: str, version: str, arguments: str) -> StartupReport:
    """Whether `engine` would start on one rank of `accelerator` with these arguments.

    Raises BadInputError for unknown names, arguments that are not understood, and when no accelerator is named.
    """
    if accelerator is None:
        hint = "for example --accelerator A100-SXM-80GB"
        raise BadInputError(Diagnostic("RS0502", "--engine needs --accelerator", hint=hint))
    return startup(find_model(source), _named(accelerator), engine_name=engine, version=version, arguments=arguments)


def ladder() -> tuple[Device, ...]:
    """Every whole accelerator that some machine of the catalogue has, smallest memory first."""
    sold = {machine.accelerator for machine in machines() if machine.accelerator_count >= 1}
    whole = [device(name) for name in sold if accelerators()[name].vendor == VENDOR]
    return tuple(sorted(whole, key=lambda seen: (seen.memory_bytes, seen.name)))


def _named(text: str) -> Device:
    found = resolve_device(text)
    try:
        if found is not None:
            return device(*found)
    except KeyError:
        table = geometry(found[0]) if found else None
        names = [profile.name for profile in table.profiles] if table else []
        hint = f"its profiles are {', '.join(names)}" if names else "it cannot be cut into MIG slices"
        raise BadInputError(
            Diagnostic("RS0317", f'unknown partition in "{text[:80]}"', hint=hint), "rightslice catalog mig"
        ) from None
    hint = did_you_mean(text, accelerators())
    message = f'unknown accelerator "{text[:80]}"'
    raise BadInputError(Diagnostic("RS0312", message, hint=hint), "rightslice catalog accelerators")
