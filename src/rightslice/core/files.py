"""Atomic writing: a file is either whole or not there."""

from __future__ import annotations

import os
import tempfile
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
    payload = data.encode() if isinstance(data, str) else data
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".part")
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(payload)
            handle.flush()
            os.fsync(handle.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInputError(
            Diagnostic("RS0407", f"cannot write: {reason}", Location(str(path)), "choose another -o folder")
        ) from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
