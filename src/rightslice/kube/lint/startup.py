"""Whether a server can start: the verdict of `size --engine` on every device where it may land."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.cold_start import engine_phases, startup_budget, weight_load
from rightslice.catalogue.engines import engines
from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import version_key
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.kube.lint.models import Model
from rightslice.kube.lint.servers import Server
from rightslice.kube.lint.values import fields
from rightslice.memory.computation import computation_problem
from rightslice.memory.legality import legal_parallelism
from rightslice.memory.startup import StartupReport, command_line, startup

JUDGED: Final = frozenset({"vllm", "sglang", "tensorrt-llm"})
"""Engines whose command line is the one that `size` reads."""
_PLACEHOLDER: Final = re.compile(r"\$|\{\{|<[A-Za-z_-]+>")
_FIRST_COMPILING: Final = "0.8.0"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the engine would say on one device. `refusal`: its arguments cannot be read as they stand."""

    device: Device
    report: StartupReport | None = None
    dtype_problem: str = ""
    parallel_problem: str = ""
    refusal: Diagnostic | None = None

    @property
    def starts(self) -> bool:
        """Whether it may."""
        return self.report is not None and self.report.verdict in ("starts", "uncertain")


def arguments_of(server: Server, *, converted: bool = False) -> str:
    """Its command line without the model and without what depends on variables that are not known; `converted`: nor
    with a method of quantisation, for the checkpoint stands in for the one that is quantised so."""
    kept: list[str] = []
    words = [word for word in server.words if word != server.model or word.startswith("-")]
    for word in words:
        if not _PLACEHOLDER.search(word):
            kept.append(word)
        elif not word.startswith("-") and kept and kept[-1].startswith("-") and "=" not in kept[-1]:
            kept.pop()  # the flag whose value it is
    dropped = {
        "--model",
        "--model-path",
        "--model_id",
        "--model_name",
        "--model-id",
        *(("--quantization", "-q") if converted else ()),
    }
    return shlex.join(_without(kept, dropped))


def _without(words: list[str], flags: set[str]) -> Iterator[str]:
    """The words without some flags and their values."""
    skip = False
    for word in words:
        flag, given, _ = word.partition("=")
        if flag in flags:
            skip = not given
        elif skip and not word.startswith("-"):
            skip = False
        else:
            skip = False
            yield word


def verdicts(server: Server, model: Model, devices: tuple[Device, ...]) -> tuple[Verdict, ...]:
    """One for each device; none for engines and models whose memory is not known."""
    if server.engine not in JUDGED or model.architecture is None or server.opaque:
        return ()
    return tuple(_verdict(server, model, model.architecture, device) for device in devices)


def _verdict(server: Server, model: Model, architecture: Architecture, device: Device) -> Verdict:
    arguments, version = arguments_of(server, converted=model.formats.weights is not None), server.version
    try:
        line = command_line(
            architecture, device, engine_name=server.engine, version=version, arguments=arguments, formats=model.formats
        )
        report = startup(
            architecture, device, engine_name=server.engine, version=version, arguments=arguments, formats=model.formats
        )
    except BadInputError as error:
        return Verdict(device, refusal=error.diagnostics[0])
    settings = line.settings
    dtype = computation_problem(
        architecture, device, settings.engine, settings.version, line.compute, line.quantization
    )
    return Verdict(device, report, dtype.reason if dtype else "", legal_parallelism(architecture, settings))


def too_old_for(server: Server) -> str:
    """The model's family, where the engine's version is older than it."""
    bounds = _older().get(server.engine, {})
    tail = server.model.rstrip("/").rpartition("/")[2].casefold()
    family = max((name for name in bounds if tail.startswith(name)), key=len, default="")
    known = bool(family) and bool(server.version)
    return family if known and version_key(server.version) <= version_key(bounds[family]) else ""


@cache
def _older() -> Mapping[str, Mapping[str, str]]:
    text = (files("rightslice.kube") / "data" / "older_than_models.json").read_text(encoding="utf-8")
    table: dict[str, Mapping[str, str]] = json.loads(text)
    return {name: rows for name, rows in table.items() if name != "about"}


@dataclass(frozen=True, slots=True)
class Load:
    """Seconds until a server answers, by published figures: `weights_s` and `engine_s`. `downloads`: from a hub."""

    weights_s: float
    engine_s: float
    downloads: bool

    @property
    def total_s(self) -> float:
        """Both."""
        return self.weights_s + self.engine_s


def downloads(server: Server) -> bool:
    """Whether each new pod fetches the weights: a hub's name, and no volume that outlives the pod behind its cache."""
    if is_path(server.model) or server.engine not in JUDGED:
        return False
    kept = ("persistentVolumeClaim", "hostPath", "csi", "nfs", "ephemeral", "image")
    pod = server.pod
    return not any(kind in pod.volumes.get(name, {}) for name in server.container.mounts.values() for kind in kept)


def is_path(model: str) -> bool:
    """Whether a model is a folder or a bucket and no hub's name."""
    return model.startswith(("/", ".", "~")) or "://" in model or model.endswith(".gguf")


def load_of(server: Server, model: Model) -> Load | None:
    """Weights from a volume through one loader for each GPU, or from a hub at the rate that probes are planned with;
    then the engine's own start, all typical. None where the weights' size is not known.
    """
    if model.weights_bytes is None or server.engine not in JUDGED:
        return None
    fetched = downloads(server)
    measured = weight_load("shared-volume").bytes_per_s
    if measured is None:
        return None
    rate = startup_budget().weights_bytes_per_s if fetched else measured.typical * server.ranks
    phases, _ = engine_phases(server.engine, kernel_cache=False)
    skipped: set[str] = set()
    if "--enforce-eager" in server.flags:
        skipped = {"compile", "graphs"}
    elif server.engine == "vllm" and server.version and version_key(server.version) < version_key(_FIRST_COMPILING):
        skipped = {"compile"}
    engine_s = sum(f.spread.typical for name, f in phases.items() if f.spread and name not in skipped)
    return Load(model.weights_bytes / rate, engine_s, fetched)


def share_of_device(server: Server) -> float | None:
    """The fraction of the whole device that vLLM takes: as told, or its default."""
    asked = server.number("--gpu-memory-utilization")
    if asked is not None:
        return asked
    if server.engine != "vllm" or "--kv-cache-memory-bytes" in server.flags:
        return None
    return 0.9 if server.version and version_key(server.version) < version_key("0.20.0") else 0.92


def engine_title(name: str) -> str:
    """As its makers write it."""
    return engines()[name].title if name in engines() else name


def memory_volume(server: Server) -> Mapping[str, object] | None:
    """The volume behind /dev/shm; None where the default of 64 MB stays."""
    if server.pod.spec.get("hostIPC") is True:
        return {"hostIPC": {}}
    found = server.pod.mounted(server.container, "/dev/shm")  # noqa: S108 - a mount point, not a temporary file
    return fields(found) if found is not None else None
