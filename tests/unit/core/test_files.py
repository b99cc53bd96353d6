"""Files are whole or untouched, all of a folder together."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightslice.core.errors import BadInputError
from rightslice.core.files import check_folder, write_together


def everything(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_one_that_cannot_be_written_leaves_all_as_they_were(tmp_path: Path) -> None:
    write_together(tmp_path, {"a.txt": "old", "b/c.txt": "old"})
    (tmp_path / "blocked").write_text("a file where a folder is needed")
    before = everything(tmp_path)
    with pytest.raises(BadInputError, match="cannot write") as caught:
        write_together(tmp_path, {"a.txt": "new", "b/c.txt": "new", "blocked/d.txt": "new"})
    assert caught.value.location
    assert caught.value.location.file.endswith("blocked/d.txt")
    assert everything(tmp_path) == before


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(BadInputError, match="cannot write"):
        write_together(tmp_path, {"b.txt": "new", "a.txt": "new"})
    assert everything(tmp_path) == {}


def test_an_impossible_folder_name_is_told() -> None:
    with pytest.raises(BadInputError, match="name too long"):
        check_folder(Path("x" * 300))
