"""The bytes of a user's file, guarded: only a regular, readable, not too large file is read at all."""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import NoReturn

from rightslice.core.errors import BadInputError, Diagnostic, Location, did_you_mean

MAX_BYTES = 2_000_000
_SIBLINGS = 1000


def read_text(path: Path | str, *, max_bytes: int = MAX_BYTES, too_large_hint: str = "") -> str:
    """The text of a file without its byte order mark. Raises BadInputError with one diagnostic (RS0401-RS0406)."""
    return _decoded(str(path), read_bytes(path, max_bytes=max_bytes, too_large_hint=too_large_hint))


def read_bytes(path: Path | str, *, max_bytes: int = MAX_BYTES, too_large_hint: str = "") -> bytes:
    """The bytes of a file. Raises BadInputError with one diagnostic (RS0401, RS0402, RS0404, RS0406)."""
    name = str(path)
    try:
        _refuse_special(name, max_bytes, too_large_hint)
        with Path(name).open("rb") as handle:
            data = handle.read(max_bytes + 1)
    except FileNotFoundError:
        _refuse(name, "RS0401", "there is no such file", _similar(name))
    except NotADirectoryError:
        _refuse(name, "RS0401", "a part of this path is a file, not a folder")
    except OSError as error:
        _refuse(name, "RS0406", f"cannot be read: {error.strerror or error}")
    except ValueError:
        _refuse(name, "RS0401", "this is not a usable path")
    if len(data) > max_bytes:
        _refuse(name, "RS0404", f"larger than {max_bytes / 1e6:g} MB", too_large_hint)
    return data


def _refuse(name: str, rule: str, message: str, hint: str = "") -> NoReturn:
    raise BadInputError(Diagnostic(rule, message, Location(name), hint))


def _refuse_special(name: str, max_bytes: int, too_large_hint: str) -> None:
    status = os.stat(name)  # noqa: PTH116 - Path("") is the folder, os.stat("") is an error
    if stat.S_ISDIR(status.st_mode):
        _refuse(name, "RS0402", "this is a folder", "name the file in it")
    if not stat.S_ISREG(status.st_mode):
        _refuse(name, "RS0402", "this is a pipe or a device", "write it to a regular file first")
    if status.st_size > max_bytes:
        _refuse(name, "RS0404", f"{status.st_size / 1e6:,.1f} MB; the limit is {max_bytes / 1e6:g} MB", too_large_hint)


def _similar(name: str) -> str:
    """`did you mean …?` with files of the same folder."""
    folder = Path(name).parent
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _SIBLINGS)]
    except OSError:
        return f"there is no folder {folder}"
    return did_you_mean(Path(name).name, names)


def _decoded(name: str, data: bytes) -> str:
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        _refuse(name, "RS0403", "this is UTF-16 text", "save it as UTF-8")
    if b"\0" in data:
        _refuse(name, "RS0403", "this is a binary file, not text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode("utf-8-sig")) + 1
        message = f"byte 0x{data[error.start]:02X} is not UTF-8"
        raise BadInputError(Diagnostic("RS0403", message, Location(name, line, column), "save it as UTF-8")) from None
