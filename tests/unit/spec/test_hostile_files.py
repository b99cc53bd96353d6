"""Files that nobody should trust: each ends in one clear diagnostic, without blocking and without a traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.spec.loader import load_workload, parse_workload
from rightslice.spec.starter import starter_workload

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)
MERGE_BOMB = "a: &a {" + ",".join(f"k{i}: 1" for i in range(20_000)) + "}\nb:\n" + "  <<: *a\n" * 20_000
CHAIN = "- &a0 [x]\n" + "".join(f"- &a{i + 1} [*a{i}]\n" for i in range(5_000))

TEXTS = {
    "empty": ("", "RS0405", "empty"),
    "blank": (" \n\n", "RS0405", "empty"),
    "comments": ("# nothing\n# more\n", "RS0405", "only comments"),
    "null": ("---\n", "RS0405", "empty"),
    "list": ("- a\n- b\n", "RS0104", "this is a list"),
    "scalar": ("hello", "RS0104", "this is a single value"),
    "deployment": ("apiVersion: apps/v1\nkind: Deployment\nspec: {}\n", "RS0203", "this is Deployment"),
    "plan": ('{"name": "x", "schema": "rightslice.plan/v1"}', "RS0203", 'this is "rightslice.plan/v1"'),
    "syntax": ("a: [1, 2\n", "RS0101", "is not closed"),
    "unclosed mapping": ("a: {b: 1\n", "RS0101", "is not closed"),
    "unclosed quote": ('a: "b\nc: d\n', "RS0101", "a quote is not closed"),
    "two colons": ("a: b: c\n", "RS0101", "where no key can stand"),
    "indentation": ("a: 1\n b: 2\n", "RS0101", "check the indentation"),
    "tab": ("a:\n\tb: 1\n", "RS0101", "indent with spaces"),
    "at sign": ("a: @b\n", "RS0101", 'may not start with "@"'),
    "percent": ("a: %b\n", "RS0101", 'may not start with "%"'),
    "two documents": ("a: 1\n---\nb: 2\n", "RS0101", "a second document"),
    "python tag": ("!!python/object/apply:os.system ['true']", "RS0101", 'tag "!!python/object/apply:os.system"'),
    "own tag": ("a: !secret b\n", "RS0101", 'tag "!secret"'),
    "binary tag": ("a: !!binary aGk=\n", "RS0101", 'tag "!!binary"'),
    "unknown alias": ("a: *b\n", "RS0101", 'alias "*b" refers to no anchor'),
    "bomb": (BOMB, "RS0103", "expand to more than 100,000 values"),
    "merge bomb": (MERGE_BOMB, "RS0103", "expand to more than 100,000 values"),
    "cycle": ("a: &a [*a]\n", "RS0103", "contains itself"),
    "chain of aliases": (CHAIN, "RS0103", "nest more than 64 levels"),
    "deep flow": ("a: " + "[" * 5000, "RS0101", "deep"),
    "deep mapping": ("{a: " * 5000, "RS0101", "deep"),
    "deep block": ("- " * 5000, "RS0101", "deep"),
    "too many values": ("a: [" + "1," * 150_000 + "]", "RS0404", "more than 100,000 values"),
    "control character": ("a: b\x07c\n", "RS0403", "U+0007"),
    "lone surrogate": ("a: \ud800\n", "RS0403", "U+D800"),
    "escape sequence": ("a: \x1b[31mred\n", "RS0403", "U+001B"),
}


def only(load: Callable[[], object]) -> Diagnostic:
    with pytest.raises(BadInputError) as caught:
        load()
    (found,) = caught.value.diagnostics
    assert caught.value.next_command
    return found


@pytest.mark.parametrize(("text", "rule", "words"), TEXTS.values(), ids=TEXTS)
def test_text(text: str, rule: str, words: str) -> None:
    found = only(lambda: parse_workload(text, file="w.yaml"))
    assert found.rule == rule
    assert words in f"{found.message} {found.hint}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nb: [1,\n  2\n", (2, 4)),
        ("a: 1\nb: 'x\n\n", (2, 4)),
        ("a:\n\tb: 1\n", (2, 1)),
        ("a: 1\r\nb: \x07\r\n", (2, 4)),
        ("é: 1\nb: c: d\n", (2, 5)),
        ("# a\u2028x: 1\n\x85b: c: d\n", (4, 5)),
    ],
)
def test_place_of_syntax_mistakes(text: str, place: tuple[int, int]) -> None:
    location = only(lambda: parse_workload(text, file="w.yaml")).location
    assert location is not None
    assert (location.line, location.column) == place


def _unreadable(folder: Path) -> str:
    path = folder / "secret.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    return str(path)


def _bytes(data: bytes) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        (folder / "w.yaml").write_bytes(data)
        return str(folder / "w.yaml")

    return write


def _fifo(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


def _misspelt(folder: Path) -> str:
    (folder / "workload.yaml").write_text("a: 1")
    return str(folder / "worklod.yaml")


def _loop(folder: Path) -> str:
    (folder / "loop").symlink_to(folder / "loop")
    return str(folder / "loop")


def _large(folder: Path) -> str:
    with (folder / "large.yaml").open("wb") as handle:
        handle.truncate(50_000_000_000)
    return str(folder / "large.yaml")


FILES: dict[str, tuple[Callable[[Path], str], str, str]] = {
    "missing": (lambda folder: str(folder / "none.yaml"), "RS0401", "no such file"),
    "misspelt": (_misspelt, "RS0401", "did you mean workload.yaml?"),
    "missing folder": (lambda folder: str(folder / "no" / "w.yaml"), "RS0401", "there is no folder"),
    "below a file": (lambda folder: str(_misspelt(folder)).replace("worklod", "workload") + "/x", "RS0401", "a file"),
    "nul in the name": (lambda folder: f"{folder}/a\0b", "RS0401", "not a usable path"),
    "empty name": (lambda _: "", "RS0401", "no such file"),
    "long name": (lambda _: "x" * 5000, "RS0406", "File name too long"),
    "folder": (str, "RS0402", "name the file in it"),
    "pipe": (_fifo, "RS0402", "a pipe or a device"),
    "device": (lambda _: "/dev/zero", "RS0402", "a pipe or a device"),
    "loop of links": (_loop, "RS0406", "cannot be read"),
    "too large": (_large, "RS0404", "the limit is 2 MB (put recorded requests into a file of their own"),
    "binary": (_bytes(b"\x7fELF\0\0\0"), "RS0403", "binary"),
    "not UTF-8": (_bytes("a: 1\nü: caf".encode() + b"\xe9\n"), "RS0403", "byte 0xE9 is not UTF-8"),
    "UTF-16": (_bytes(starter_workload().encode("utf-16")), "RS0403", "UTF-16"),
    "no bytes": (_bytes(b""), "RS0405", "empty"),
}


@pytest.mark.parametrize(("make", "rule", "words"), FILES.values(), ids=FILES)
def test_file(tmp_path: Path, make: Callable[[Path], str], rule: str, words: str) -> None:
    path = make(tmp_path)
    found = only(lambda: load_workload(path))
    assert found.rule == rule
    assert found.location is not None
    assert found.location.file == path
    assert words in found.one_line()


def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root reads everything, so the refusal is the system's words put in its place."""
    path = _unreadable(tmp_path)

    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert only(lambda: load_workload(path)).rule == "RS0406"


def test_a_byte_that_is_not_text_is_shown_at_its_place(tmp_path: Path) -> None:
    path = FILES["not UTF-8"][0](tmp_path)
    location = only(lambda: load_workload(path)).location
    assert location is not None
    assert (location.line, location.column) == (2, 7)


def test_what_is_harmless_loads(tmp_path: Path) -> None:
    text = starter_workload()
    for data in (
        b"\xef\xbb\xbf" + text.encode(),
        text.replace("\n", "\r\n").encode(),
        f"%YAML 1.2\n---\n{text}...".encode(),
    ):
        (tmp_path / "w.yaml").write_bytes(data)
        assert load_workload(tmp_path / "w.yaml").workload.metadata.name == "my-service"
    plain = parse_workload(text, file="w.yaml").plain
    assert parse_workload(json.dumps(plain), file="w.json").workload == parse_workload(text, file="w.yaml").workload
    assert parse_workload(text.replace("llm", "!!str 12"), file="w.yaml").workload.models[0].name == "12"
