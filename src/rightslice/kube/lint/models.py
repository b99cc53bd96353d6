"""The model that a server loads, by what is written: the catalogue's where it is known, else the size in its name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.models import advertised_parameters_b, model_names, resolve_model
from rightslice.kube.lint.servers import Server
from rightslice.memory.arguments import AS_PUBLISHED, Formats
from rightslice.memory.weights import weights_bytes

GIB: Final = 2**30
_PRECISION: Final = re.compile(
    r"[-_.](?:(?P<int4>awq(?:[-_]?int4)?|gptq(?:[-_]int4)?|int4|w4a16|4bit|bnb[-_]4bit|autoround)|"
    r"(?P<int8>gptq[-_]int8|int8|w8a8|w8a16|8bit)|(?P<fp8>fp8(?:[-_](?:dynamic|static|pertensor|block))*)|"
    r"(?P<nvfp4>nvfp4|fp4|mxfp4)|(?P<bf16>bf16|fp16))(?=$|[-_.])", re.IGNORECASE
)  # fmt: skip
_GGUF: Final = re.compile(r"[-_.](?:ud[-_])?i?q(\d)(?:_\w+)*(?:\.gguf)?$", re.IGNORECASE)
_BYTES: Final[Mapping[str, float]] = {"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.56, "nvfp4": 0.56}
"""Per parameter; 4-bit formats with their scales in groups of 64 to 128."""
_QUANTISED: Final = {"awq": "int4", "gptq": "int4", "awq_marlin": "int4", "gptq_marlin": "int4", "fp8": "fp8",
                     "bitsandbytes": "int4", "modelopt": "fp8", "modelopt_fp4": "nvfp4", "w8a8_fp8": "fp8"}  # fmt: skip
_NATIVE_FP8: Final = ("deepseek-v3", "deepseek-r1", "deepseek-v4")
"""Families that are published in FP8; others have a 16-bit original beside what somebody quantised."""
_MILLIONS: Final = re.compile(r"(?<![A-Za-z0-9.])(\d{2,3})[mM](?![A-Za-z0-9])")
_TUNED: Final = re.compile(r"[-_](?:instruct|chat|it|base|hf)(?=$|[-_.])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Model:
    """`weights_bytes`: as stored on the device, over all ranks; None where nothing says. `exact`: from its own
    configuration and not from the size in its name. `precision`: of the weights.
    """

    name: str
    architecture: Architecture | None
    formats: Formats
    precision: str
    parameters_b: float | None
    weights_bytes: float | None

    @property
    def exact(self) -> bool:
        """Whether its dimensions are known."""
        return self.architecture is not None

    @property
    def about(self) -> str:
        """`13.5 GiB of bf16 weights`."""
        if self.weights_bytes is None:
            return "weights of unknown size"
        roughly = "" if self.exact else "about "
        return f"{roughly}{self.weights_bytes / GIB:.1f} GiB of {self.precision} weights"

    def in_precision(self, precision: str) -> float:
        """Bytes of the weights in another precision; 0.0 where nothing says."""
        if self.architecture is not None:
            return float(weights_bytes(self.architecture, precision))
        return (self.parameters_b or 0.0) * 1e9 * _BYTES.get(precision, 2.0)


def model_of(server: Server) -> Model | None:
    """The model of a server; None where it names none."""
    return _described(server.model, server.flags.get("--quantization", "")) if server.model else None


def named_model(name: str) -> Model | None:
    """A model by its name alone."""
    return _described(name, "")


@cache
def _described(source: str, method: str) -> Model | None:
    tail = source.rstrip("/").rpartition("/")[2]
    if not tail or "$" in source or "{" in source or len(source) > 400:
        return None
    stated = _stated(tail) or _QUANTISED.get(method.casefold(), "")
    known = _known(source)
    if known is not None:
        precision = stated if stated and stated != known.published_dtype else known.published_dtype
        borrowed = known.published_dtype != "bf16" and _PRECISION.search(known.name) is not None
        if not stated and borrowed and not tail.casefold().startswith(_NATIVE_FP8):
            precision = "bf16"
        formats = AS_PUBLISHED if precision == known.published_dtype else Formats(precision)
        amount = weights_bytes(known, "" if formats is AS_PUBLISHED else precision)
        return Model(source, known, formats, precision, known.parameters / 1e9, float(amount))
    small = _MILLIONS.search(tail)
    billions = advertised_parameters_b(tail) or (int(small[1]) / 1000 if small else _size_of(tail))
    gguf = _GGUF.search(tail)
    precision = f"{gguf[1]}-bit" if gguf else stated or "bf16"
    each = int(gguf[1]) / 8 * 1.15 if gguf else _BYTES.get(precision, 2.0)
    return Model(source, None, AS_PUBLISHED, precision, billions, billions * 1e9 * each if billions else None)


def _stated(tail: str) -> str:
    match = _PRECISION.search(tail)
    return next((name for name, found in match.groupdict().items() if found), "") if match else ""


def _known(source: str) -> Architecture | None:
    """The catalogue's model of that name; a folder counts by its last one or two parts."""
    index = _index()
    for key in _keys(source):
        if key in index:
            return resolve_model(index[key])
    return None


def _keys(source: str) -> Iterator[str]:
    parts = [part for part in source.casefold().split("/") if part]
    if len(parts) >= 2:
        yield "/".join(parts[-2:])
    last = parts[-1] if parts else ""
    yield last
    last = last.removeprefix("meta-")
    plain = _PRECISION.sub("", last)
    yield f"~{plain}"
    yield f"~{_TUNED.sub('', plain)}"


@cache
def _index() -> Mapping[str, str]:
    """Spelling -> catalogue name. Behind `~`: without precision; the plain checkpoint before quantised ones."""
    found: dict[str, str] = {}
    names = sorted(model_names(), key=lambda name: (_rank(name), name))
    for name in names:
        last = name.casefold().rpartition("/")[2]
        plain = _PRECISION.sub("", last.removeprefix("meta-"))
        for key in (name.casefold(), last, f"~{plain}", f"~{_TUNED.sub('', plain)}"):
            found.setdefault(key, name)
    return found


def _rank(name: str) -> int:
    """Plain checkpoints first, then those in FP8, as some are published in."""
    match = _PRECISION.search(name)
    return 0 if match is None or match["bf16"] else 1 if match["fp8"] else 2


@cache
def _sizes() -> Mapping[str, float]:
    text = (files("rightslice.kube") / "data" / "model_sizes.json").read_text(encoding="utf-8")
    return {str(name): float(size) for name, size in json.loads(text)["billions"].items()}


def _size_of(tail: str) -> float | None:
    """By the longest known name in it."""
    held = [name for name in _sizes() if name in tail.casefold()]
    return _sizes()[max(held, key=len)] if held else None
