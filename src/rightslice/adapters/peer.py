"""Another load tester that is installed here, run on the same load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rightslice.core.errors import OutsideError
from rightslice.loadtesting.imports import Measured, UnknownFormatError, imported
from rightslice.loadtesting.peers import PROGRAMS, RESULTS, PeerName, Shape, command

MISSING: Final = "RS0609"
FAILED: Final = "RS0610"
LIMIT_S: Final = 3600.0
_MAX_RESULT: Final = 256_000_000


def check_installed(peer: PeerName) -> None:
    """Raises OutsideError RS0609 where the program is not there."""
    program = PROGRAMS[peer]
    if shutil.which(program) is None:
        raise OutsideError(MISSING, f"{program} is not installed", None, f"pip install {program}, in its own venv")


def run_peer(peer: PeerName, shape: Shape) -> Measured:
    """What the tool measures at the load. Raises OutsideError RS0610 where it fails or its result cannot be read."""
    with tempfile.TemporaryDirectory(prefix="rightslice-") as folder:
        asked = [_filled(word, os.environ) for word in command(peer, shape, folder)]
        try:
            done = subprocess.run(asked, capture_output=True, timeout=LIMIT_S, check=False, cwd=folder)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OutsideError(FAILED, f"{peer} did not run: {type(error).__name__}", None) from None
        path = Path(folder) / RESULTS[peer]
        if done.returncode or not path.is_file() or path.stat().st_size > _MAX_RESULT:
            said = done.stdout[-300:].decode("utf-8", "replace").strip() if done.stdout else ""
            raise OutsideError(FAILED, f"{peer} failed with exit code {done.returncode}: {said}"[:400], None)
        try:
            _, found, _ = imported(json.loads(path.read_text("utf-8")), peer)
            return found[0]
        except (ValueError, UnknownFormatError, IndexError):
            raise OutsideError(FAILED, f"the result of {peer} cannot be read", None) from None


def _filled(word: str, environment: Mapping[str, str]) -> str:
    """`$NAME` of a key becomes its value, at the last moment."""
    return environment.get(word[1:], word) if word.startswith("$") else word
