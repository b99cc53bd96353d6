"""Shipped configurations with one thing wrong: a diagnostic, the same answer, or a remark that names the key.

Changes: a key left out, null, of another type, in another spelling; the whole inside a `text_config`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache as kept
from importlib.resources import files
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.catalogue.architectures.config import ALIASES
from rightslice.core.errors import BadInputError
from rightslice.memory import cache

FOLDER: Final = files("rightslice.catalogue") / "data" / "architectures"
TOKENS: Final = 8192
LIMIT: Final = 0.01
WRONG: Final[dict[str, Any]] = {
    "null": None, "word": "x", "negative": -1, "object": {}, "huge": 10**18, "half": 0.5, "yes": True,
}  # fmt: skip
OPTIONAL: Final = frozenset({
    "quantization_config",  # without it the weights are as they are
    "quant_method",  # told by the other keys
    "ignore",  # without it every layer is converted
    "expert_dtype",  # without it experts are as the rest
    "moe_latent_size",  # none is the default of the class
    "hf_quant_config",
})  # fmt: skip
"""Keys that may be left out with another, equally valid answer."""
VALID: Final = frozenset({
    ("group_size", "negative"),  # -1: one scale per row
    ("feed_forward_proj", "word"),  # any activation that is not gated
    ("mamba_expand", "half"),
    ("sliding_window", "null"),  # no window, the default of Phi-3
    ("sliding_window", "left out"),
})  # fmt: skip
"""Changed values that mean something."""

Site = tuple[str, tuple[str, ...]]


@kept
def raw_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / name).read_text())
    found.pop("hf_quant_config", None)
    found.pop("_source", None)
    return found


def places(part: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in part.items():
        yield (*path, key)
        if isinstance(value, dict) and key.endswith("_config"):
            yield from places(value, (*path, key))


def read(raw: dict[str, Any]) -> Architecture:
    return read_architecture(raw, "model", where="config.json")


def measures(found: Architecture) -> tuple[float, ...]:
    return found.parameters, found.published_weights_bytes, cache.sequence_bytes(found, TOKENS, "bf16")


@kept
def usual(name: str) -> tuple[float, ...]:
    return measures(read(raw_of(name)))


NAMES: Final = sorted(item.name for item in FOLDER.iterdir())
SITES: Final[list[Site]] = [(name, path) for name in NAMES for path in places(raw_of(name))]
SIZES: Final[list[Site]] = [site for site in SITES if any(site[1][-1] in names for names in ALIASES.values())]


def changed(name: str, path: tuple[str, ...], change: str) -> dict[str, Any]:
    raw = copy.deepcopy(raw_of(name))
    part = raw
    for key in path[:-1]:
        part = part[key]
    if change == "left out":
        del part[path[-1]]
    else:
        part[path[-1]] = [part[path[-1]]] if change == "in a list" else WRONG[change]
    return raw


def value_at(name: str, path: tuple[str, ...]) -> Any:
    part: Any = raw_of(name)
    for key in path:
        part = part[key]
    return part


def never_silent(name: str, path: tuple[str, ...], change: str) -> None:
    """The property, for one change of one file."""
    try:
        found = read(changed(name, path, change))
    except BadInputError as error:
        assert error.message
        return
    key = path[-1]
    if key in OPTIONAL and change in ("left out", "null", "object"):
        return
    if (key, change) in VALID or (change == "yes" and value_at(name, path) in (False, True)):
        return
    if all(abs(a - b) <= LIMIT * max(a, b, 1.0) for a, b in zip(measures(found), usual(name), strict=True)):
        return
    told = " ".join((*found.notes, *found.approximations))
    assert key in told, f"{name}: {'.'.join(path)} {change}: {usual(name)} became {measures(found)}: {told}"


@given(site=st.sampled_from(SITES), change=st.sampled_from(["left out", "in a list", *WRONG]))
@settings(max_examples=1500)
def test_any_key_changed_anyhow(site: Site, change: str) -> None:
    never_silent(*site, change)


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith(("meta", "google", "nvidia", "deepseek", "openai"))])
def test_every_key_left_out(name: str) -> None:
    for path in places(raw_of(name)):
        never_silent(name, path, "left out")
        never_silent(name, path, "null")


@given(site=st.sampled_from(SIZES), data=st.data())
@settings(max_examples=400)
def test_another_spelling_of_a_size(site: Site, data: st.DataObject) -> None:
    """The spellings of one quantity mean the same, or the answer says what was taken in its place."""
    name, path = site
    spellings = sorted({s for names in ALIASES.values() if path[-1] in names for s in names} - {path[-1]})
    raw = copy.deepcopy(raw_of(name))
    part = raw
    for key in path[:-1]:
        part = part[key]
    other = data.draw(st.sampled_from(spellings))
    if other in part:
        return
    part[other] = part.pop(path[-1])
    try:
        found = read(raw)
    except BadInputError:
        return
    if measures(found) != pytest.approx(usual(name), rel=LIMIT):
        told = " ".join((*found.notes, *found.approximations))
        assert path[-1] in told or other in told, f"{name}: {path[-1]} as {other}: {measures(found)}: {told}"


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_inside_a_text_config(name: str) -> None:
    """The same language model; where the outer class is not known, that is said."""
    raw = raw_of(name)
    wrapped: dict[str, Any] = {"model_type": "made_up_for_conditional_generation", "text_config": raw}
    try:
        found = read(wrapped)
    except BadInputError:
        assert read(raw).kind != "decoder" or "text_config" in raw or "llm_config" in raw
        return
    same = measures(found)[2] == usual(name)[2] and found.parameters == usual(name)[0]
    assert same or found.approximations, name
