"""Errors, estimates, randomness, documents and atomic files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from rightslice.core.documents import to_json, to_jsonable
from rightslice.core.errors import BadInputError, Diagnostic, Location, did_you_mean, nearest
from rightslice.core.estimate import Estimate, least_trusted
from rightslice.core.files import write_atomically
from rightslice.core.rng import generator
from rightslice.core.rules import RULES
from rightslice.core.slo import Slo

ACCELERATORS = ("A100-SXM-40GB", "A100-SXM-80GB", "H100-SXM-80GB", "H100-PCIe-80GB", "H100-NVL-94GB", "L4")


def test_nearest_prefers_what_contains_the_word() -> None:
    assert nearest("H100", ACCELERATORS) == ("H100-NVL-94GB", "H100-PCIe-80GB", "H100-SXM-80GB")
    assert did_you_mean("A100-SXM-80", ACCELERATORS).startswith("did you mean A100-SXM-80GB")
    assert did_you_mean("zzzzzz", ACCELERATORS) == ""


def test_diagnostic_in_one_line() -> None:
    found = Diagnostic("RS0312", 'unknown accelerator "H100"', Location("w.yaml", 12, 28), "did you mean L4?")
    assert found.one_line() == 'error[RS0312] w.yaml:12:28: unknown accelerator "H100" (did you mean L4?)'
    assert found.slug == "accelerator.unknown"


def test_every_rule_has_an_area_and_a_name_of_its_own() -> None:
    assert len(set(RULES.values())) == len(RULES)
    assert all("." in slug for slug in RULES.values())


def test_estimates_are_ordered_and_weakest_provenance_wins() -> None:
    assert Estimate.within(100.0, 0.25, "measured") == Estimate(100.0, 80.0, 125.0, "measured")
    assert least_trusted("measured", "unvalidated", "calibrated") == "unvalidated"
    with pytest.raises(ValueError, match="out of order"):
        Estimate(1.0, 2.0, 3.0, "measured")


def test_randomness_depends_on_seed_and_purpose_only() -> None:
    first = generator(7, "arrivals", "llm").random(4)
    assert np.array_equal(first, generator(7, "arrivals", "llm").random(4))
    assert not np.array_equal(first, generator(8, "arrivals", "llm").random(4))
    assert not np.array_equal(first, generator(7, "arrivals", "tts").random(4))
    assert not np.array_equal(generator(7, "ab", "c").random(4), generator(7, "a", "bc").random(4))


def test_documents_are_plain_and_stable() -> None:
    value = {"slo": Slo("ttft", 0.1 + 0.2), "n": np.int64(3), "x": np.float64(0.5), "bad": math.inf, "s": {"b", "a"}}
    assert to_jsonable(value) == {
        "slo": {"metric": "ttft", "at_most_s": 0.3, "share": 0.95},
        "n": 3,
        "x": 0.5,
        "bad": None,
        "s": ["a", "b"],
    }
    assert to_json(value) == to_json(value)
    with pytest.raises(TypeError):
        to_jsonable(object())


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    write_atomically(target, "old")
    blocked = tmp_path / "file" / "plan.json"
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInputError) as caught:
        write_atomically(blocked, "new")
    assert caught.value.code == "RS0407"
    assert target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "plan.json"]
