"""Whole trees, byte for byte. RIGHTSLICE_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from plans import GOLDEN
from rightslice.manifests.render import render

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_tree(name: str) -> None:
    files = render(GOLDEN[name]())
    folder = HERE / name
    if os.environ.get("RIGHTSLICE_UPDATE_GOLDEN") == "1":
        shutil.rmtree(folder, ignore_errors=True)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    kept = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    assert sorted(kept) == sorted(files)
    for path, text in files.items():
        assert text == kept[path], path
