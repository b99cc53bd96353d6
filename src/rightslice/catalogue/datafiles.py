"""Reads the data files of the catalogue."""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


@lru_cache(maxsize=32)
def read_json(name: str) -> dict[str, Any]:
    """The parsed JSON data file of that name, shared: read only. Its values are checked by the tests of the data."""
    document: dict[str, Any] = json.loads((DATA / name).read_bytes())
    return document


def read_gzip(name: str) -> str:
    """The text of a gzip-compressed data file."""
    return gzip.decompress((DATA / name).read_bytes()).decode()
