"""`rightslice size`: does it fit, on what, with how many sequences?"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from rightslice.app.models import find_model
from rightslice.catalogue.accelerators import accelerators, device, resolve_device
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.machines import machines
from rightslice.catalogue.mig import geometry
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.quantities import format_bytes
from rightslice.memory.arguments import AS_PUBLISHED, Formats
from rightslice.memory.sizing import SizeReport, SizeRequest, size
from rightslice.memory.startup import StartupReport, command_line, startup

VENDOR = "nvidia"
"""The ladder shows accelerators of the vendor whose engine images are emitted; any other can be asked for by name."""


@dataclass(frozen=True, slots=True)
class Start:
    """An engine about to start on one rank of `accelerator`; memories in bytes, None: the catalogue's, and all free."""

    accelerator: str
    engine: str
    version: str = ""
    arguments: str = ""
    device_memory_bytes: int | None = None
    free_memory_bytes: int | None = None
    formats: Formats = AS_PUBLISHED

    @property
    def device(self) -> Device:
        """Raises BadInputError for an unknown one."""
        return _named(self.accelerator, self.device_memory_bytes)

    @property
    def asked(self) -> dict[str, Any]:
        """The rest, as `startup` takes it. Raises BadInputError RS0501 when more is free than the device has."""
        free, whole = self.free_memory_bytes, self.device.memory_bytes
        if free is not None and free > whole:
            have = format_bytes(whole, binary=True)
            message = f"--free-memory is more than the {have} of {self.device.name}"
            hint = f"at most {have}, or say --device-memory if it shows more"
            raise BadInputError(Diagnostic("RS0501", message, None, hint))
        return {
            "engine_name": self.engine,
            "version": self.version,
            "arguments": self.arguments,
            "free_bytes": free,
            "formats": self.formats,
        }


def start_up(source: str, start: Start) -> StartupReport:
    """Whether the engine would start. Raises BadInputError for unknown names and arguments that are not understood."""
    return startup(find_model(source), start.device, **start.asked)


def size_model(
    source: str,
    *,
    accelerator: str | None = None,
    device_memory_bytes: int | None = None,
    start: Start | None = None,
    **asked: Any,
) -> SizeReport:
    """Size one model. `asked` are the fields of SizeRequest; `device_memory_bytes` is what the named accelerator shows;
    `start`: an engine whose settings hold throughout.

    Raises BadInputError for unknown names and values.
    """
    known = {field.name for field in fields(SizeRequest)} - {"line", "free_bytes"}
    if unknown := sorted(set(asked) - known):
        raise TypeError(f"unknown argument {unknown[0]}")
    architecture = find_model(source)
    line = command_line(architecture, start.device, **start.asked) if start else None
    free_bytes = start.free_memory_bytes if start else None
    request = SizeRequest(accelerator=accelerator, line=line, free_bytes=free_bytes, **asked)
    return size(architecture, request, asked_about(accelerator, device_memory_bytes))


def asked_about(accelerator: str | None, device_memory_bytes: int | None = None) -> tuple[Device, ...]:
    """The device of that name, or all of the ladder. Raises BadInputError for an unknown one."""
    return (_named(accelerator, device_memory_bytes),) if accelerator else ladder()


def ladder() -> tuple[Device, ...]:
    """Every whole accelerator that some machine of the catalogue has, smallest memory first."""
    sold = {machine.accelerator for machine in machines() if machine.accelerator_count >= 1}
    whole = [device(name) for name in sold if accelerators()[name].vendor == VENDOR]
    return tuple(sorted(whole, key=lambda seen: (seen.memory_bytes, seen.name)))


def _named(text: str, memory_bytes: int | None) -> Device:
    found = resolve_device(text)
    try:
        if found is not None:
            seen = device(*found)
            return replace(seen, memory_bytes=memory_bytes) if memory_bytes else seen
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
