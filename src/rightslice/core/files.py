"""Atomic writing: a file is either whole or not there."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rightslice.core.errors import BadInputError, Diagnostic, Location


def check_folder(path: Path) -> None:
    """Raises BadInputError when `path` cannot become or is not a folder to write to."""
    try:
        blocked = path.exists() and not path.is_dir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInputError(Diagnostic("RS0407", reason, Location(str(path)[:200]), "name a folder after -o")) from None
    if blocked:
        hint = "name a folder after -o"
        raise BadInputError(Diagnostic("RS0407", "exists and is not a folder", Location(str(path)), hint))


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write `data` to `path` through a temporary file beside it. Raises BadInputError when it cannot be written."""
    write_together(path.parent, {path.name: data})


def write_together(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files by their paths within `folder`: all through temporary files that take their places at the end.

    Raises BadInputError when one cannot be written; then none has changed.
    """
    waiting: dict[Path, Path] = {}
    path = folder
    try:
        for name, data in files.items():
            path = folder / name
            _write_beside(path, data.encode() if isinstance(data, str) else data, waiting)
        for path, temporary in waiting.items():
            temporary.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInputError(
            Diagnostic("RS0407", f"cannot write: {reason}", Location(str(path)), "choose another -o folder")
        ) from None
    finally:
        for temporary in waiting.values():
            temporary.unlink(missing_ok=True)


def _write_beside(path: Path, data: bytes, waiting: dict[Path, Path]) -> None:
    """The whole content in a temporary file next to `path`, entered in `waiting` from the start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".part")
    waiting[path] = Path(temporary)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    mask = os.umask(0)
    os.umask(mask)
    Path(temporary).chmod(0o666 & ~mask)
