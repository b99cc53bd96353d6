"""Reads configuration files and safetensors headers: bounded in size and depth, never the tensors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, NoReturn, cast

from rightslice.catalogue.architectures.config import Json, Object
from rightslice.core.errors import BadInputError, Diagnostic, Location

MAX_CONFIG_BYTES: Final = 16 << 20
MAX_HEADER_BYTES: Final = 32 << 20
"""Published headers hold a few MB; the format's own limit of 100 MB would take seconds to read."""
MAX_SHARDS: Final = 4096
INDEX: Final = "model.safetensors.index.json"
_HINT: Final = "give a model's config.json or the folder that holds it"


def read_object(path: Path, *, limit: int = MAX_CONFIG_BYTES) -> Object:
    """One JSON object of at most `limit` bytes. Raises BadInputError RS0401 to RS0408 and RS0104."""
    return parse_object(_bytes(path, limit), str(path))


def _bytes(path: Path, limit: int) -> bytes:
    try:
        if not path.exists():
            _refuse("RS0401", "no such file", str(path), _HINT)
        if not path.is_file():
            _refuse("RS0402", "not a file", str(path), _HINT)
        size = path.stat().st_size
        if size > limit:
            _refuse("RS0404", f"{size} bytes; a configuration has at most {limit}", str(path), _HINT)
        with path.open("rb") as handle:
            return handle.read(limit + 1)
    except OSError as error:
        _refuse("RS0406", f"cannot read: {error.strerror or error}", str(path))


def parse_object(data: bytes, where: str) -> Object:
    """A JSON object; NaN, infinities, endless numbers and nesting beyond the parser's depth are refused."""
    if not data.strip():
        _refuse("RS0405", "the file is empty", where, _HINT)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        _refuse("RS0403", "not a text file", where, _HINT)
    try:
        value = json.loads(text, parse_constant=_not_a_number)
    except RecursionError:
        _refuse("RS0408", "nested too deeply", where, _HINT)
    except json.JSONDecodeError as error:
        raise BadInputError(
            Diagnostic("RS0408", f"not JSON: {error.msg}", Location(where, error.lineno, error.colno), _HINT)
        ) from None
    except ValueError as error:
        _refuse("RS0408", f"not JSON: {str(error)[:80]}", where, _HINT)
    if not isinstance(value, dict):
        _refuse("RS0104", "expected a JSON object", where, _HINT)
    return cast("Object", value)


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _refuse(rule: str, message: str, where: str, hint: str = "") -> NoReturn:
    raise BadInputError(Diagnostic(rule, message, Location(where), hint))


Tensor = tuple[str, str, int, int]
"""Name, dtype, elements and bytes."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a folder's weight files hold, multi-token-prediction layers apart. `elements` is None for packed weights.

    `remark`: why the files are not the whole model; empty when nothing is missing.
    """

    total_bytes: int
    extra_bytes: int
    elements: int | None
    main_dtype: str
    source: Literal["headers", "index"]
    remark: str = ""


_ELEMENT_BITS: Final[Mapping[str, int]] = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I64": 64, "I32": 32,
    "I16": 16, "I8": 8, "U8": 8, "U16": 16, "U32": 32, "U64": 64, "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_NAMES: Final[Mapping[str, str]] = {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "F8_E4M3": "fp8", "F8_E5M2": "fp8"}
_PACKED: Final = frozenset({"I32", "U8", "I8", "U32", "F4"})


def stored_weights(folder: Path, layers: int) -> Stored | None:
    """Bytes and elements of the safetensors files in `folder`, from their headers (or from the index alone).

    Tensors of layers beyond `layers` and of `mtp` modules count as extra. Where files are missing (named by the index,
    by "-of-N" in the others' names, or pointers of Git LFS) the total of the index counts, and without it the remark
    says what is missing. None when there is nothing. Raises BadInputError RS2007 for a header that is truncated, too
    long or contradicts its file.
    """
    shards = [shard for shard in _shards(folder) if not _is_pointer(shard)]
    index = folder / INDEX
    listed = read_object(index, limit=MAX_HEADER_BYTES) if index.is_file() else None
    missing = sorted(_expected(folder, listed) - {shard.name for shard in shards})
    if listed is not None and (missing or not shards):
        total = _total_size(listed, index)
        if total is not None:
            return Stored(total, 0, None, "", "index")
        return Stored(0, 0, None, "", "index", "their index gives no total_size, and files that it names are missing")
    if not shards and not missing:
        return None
    found = stored_tensors((tensor for shard in shards for tensor in _tensors(shard)), layers)
    cut = [shard.name for shard in shards if _is_cut(shard)]
    remark = ""
    if missing:
        remark = f"{len(missing)} of {len(missing) + len(shards)} are missing, such as {missing[0][:60]}"
    elif cut:
        remark = f"{cut[0][:60]} ends before its last tensor"
    return replace(found, remark=remark)


def _expected(folder: Path, index: Object | None) -> set[str]:
    """The files that the index or their numbers promise; one without either."""
    if index is not None:
        listed = index.get("weight_map")
        return {str(name) for name in listed.values()} if isinstance(listed, Mapping) else set()
    found: set[str] = set()
    for shard in _shards(folder):
        found.add(shard.name)
        if (match := _NUMBERED.fullmatch(shard.name)) and 0 < int(match[3]) <= MAX_SHARDS:
            width = len(match[2])
            found |= {f"{match[1]}{i:0{width}d}-of-{match[3]}{match[4]}" for i in range(1, int(match[3]) + 1)}
    return found


_NUMBERED: Final = re.compile(r"(.*?)(\d{1,6})-of-(\d{1,6})(\.safetensors)")
_POINTER: Final = b"version https://git-lfs"


def _is_pointer(path: Path) -> bool:
    """Whether Git LFS left a pointer of three lines where the file belongs."""
    try:
        with path.open("rb") as handle:
            return handle.read(len(_POINTER)) == _POINTER
    except OSError as error:
        _refuse("RS0406", f"cannot read: {error.strerror or error}", str(path))


def stored_tensors(tensors: Iterable[Tensor], layers: int) -> Stored:
    """What those tensors hold; see `stored_weights`."""
    total = extra = elements = 0
    by_dtype: dict[str, int] = {}
    packed = False
    for name, dtype, count, size in tensors:
        if _is_extra(name, layers):
            extra += size
            continue
        total += size
        elements += count
        packed = packed or dtype in _PACKED
        by_dtype[dtype] = by_dtype.get(dtype, 0) + size
    main = max(sorted(by_dtype), key=lambda d: by_dtype[d], default="")
    return Stored(total, extra, None if packed else elements, _NAMES.get(main, ""), "headers")


def _shards(folder: Path) -> list[Path]:
    """The weight files; where a repository keeps two sets, those called `model…`."""
    found = sorted(path for path in folder.glob("*.safetensors") if not path.is_fifo())
    named = [shard for shard in found if shard.name.startswith("model")]
    shards = named or found
    if len(shards) > MAX_SHARDS:
        _refuse("RS2007", f"{len(shards)} weight files", str(folder))
    return shards


def _is_extra(name: str, layers: int) -> bool:
    parts = name.split(".")
    if "mtp" in parts or any(p.startswith("mtp_") for p in parts):
        return True
    if "layers" not in parts[:-1] or "vision" in name or "visual" in name:
        return False
    number = parts[parts.index("layers") + 1]
    return number.isdigit() and len(number) < 9 and int(number) >= layers > 0


def _total_size(index: Object, path: Path) -> int | None:
    """Bytes of all tensors as the index gives them; None where it does not."""
    metadata = index.get("metadata")
    if metadata is None or (isinstance(metadata, Mapping) and "total_size" not in metadata):
        return None
    size = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(size, float) and math.isfinite(size) and size == int(size):
        size = int(size)
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 1 << 50:
        _refuse("RS2007", "metadata.total_size is not a number of bytes", str(path))
    return size


def _tensors(path: Path) -> list[Tensor]:
    """Every tensor of one file."""
    header = _header(path)
    found = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = entry.get("shape") if isinstance(entry, Mapping) else None
        dtype = entry.get("dtype") if isinstance(entry, Mapping) else None
        if not isinstance(shape, list) or not isinstance(dtype, str) or dtype not in _ELEMENT_BITS:
            _refuse("RS2007", f'tensor "{name[:60]}" has no usable shape and dtype', str(path))
        if any(isinstance(side, bool) or not isinstance(side, int) or not 0 <= side < 1 << 48 for side in shape):
            _refuse("RS2007", f'tensor "{name[:60]}" has an impossible shape', str(path))
        elements = math.prod(cast("list[int]", shape))
        size = elements * _ELEMENT_BITS[dtype] // 8
        if (span := _span(entry)) is not None and span[1] - span[0] != size:
            _refuse(
                "RS2007", f'tensor "{name[:60]}" spans {span[1] - span[0]} bytes, its shape takes {size}', str(path)
            )
        found.append((name, dtype, elements, size))
    return found


def _span(entry: Json) -> tuple[int, int] | None:
    """First and last byte of a tensor; None when they are not given."""
    span = entry.get("data_offsets") if isinstance(entry, Mapping) else None
    if not isinstance(span, list) or len(span) != 2 or not all(type(side) is int for side in span):
        return None
    return span[0], span[1]


def _is_cut(path: Path) -> bool:
    """Whether the file is shorter than the tensors that its header places in it: a download that broke off."""
    header = _header(path)
    last = max((span[1] for entry in header.values() if (span := _span(entry)) is not None), default=0)
    with path.open("rb") as handle:
        begin = 8 + int.from_bytes(handle.read(8), "little")
    return path.stat().st_size < begin + last


def _header(path: Path) -> Object:
    try:
        size = path.stat().st_size
        with path.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if size < 8 or length > MAX_HEADER_BYTES or length > size - 8:
                _refuse("RS2007", f"the header claims {length} bytes, the file has {size}", str(path))
            data = handle.read(length)
    except OSError as error:
        _refuse("RS0406", f"cannot read: {error.strerror or error}", str(path))
    return parse_object(data, str(path))
