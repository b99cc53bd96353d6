"""Manifests of public repositories: every stated error, most warnings, and silence where nothing is wrong."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rightslice.kube.lint.documents import parse
from rightslice.kube.lint.finding import Finding
from rightslice.kube.lint.run import lint

DATA = Path(__file__).parents[2] / "data" / "lint"
CASES: list[dict[str, Any]] = yaml.safe_load((DATA / "field_cases.yaml").read_text(encoding="utf-8"))
every_case = pytest.mark.parametrize("case", CASES, ids=[case["file"].partition("_")[0] for case in CASES])


@cache
def found(file: str) -> tuple[Finding, ...]:
    read = parse((DATA / "field_cases" / file).read_text(encoding="utf-8"), file)
    return (*(Finding.of_diagnostic(problem) for problem in read.problems), *lint(read.documents))


def slugs(file: str, severity: str) -> set[str]:
    return {finding.slug for finding in found(file) if finding.severity == severity}


@every_case
def test_every_stated_error_is_found(case: dict[str, Any]) -> None:
    assert set(case["errors"]) <= slugs(case["file"], "error")


@every_case
def test_stated_warnings_are_found(case: dict[str, Any]) -> None:
    assert set(case["warnings"]) <= slugs(case["file"], "warn") | slugs(case["file"], "error")


@every_case
def test_nothing_is_said_where_nothing_is_wrong(case: dict[str, Any]) -> None:
    said = {finding.slug for finding in found(case["file"])}
    areas = {slug.partition(".")[0] for slug in said}
    assert not (said | areas) & set(case.get("silent", ()))


@every_case
def test_errors_beyond_those_stated_are_few(case: dict[str, Any]) -> None:
    assert slugs(case["file"], "error") <= set(case["errors"])


FIGURES = {
    "d01_mistral7b_on_11gb.yaml": ("13.5 GiB", "330 s", "about 3.9 GiB"),
    "d02_kserve_probe_and_maxreplicas.yaml": ("90 to 120 s", "77 s"),
    "d03_timeslice_vram_oversubscribed.yaml": ("1.17", "300 s"),
    "d09_keda_averages_twice.yaml": ("8 each",),
    "d10_dcgm_alert_units_and_hpa.yaml": ("488 GiB",),
    "d14_llama70b_tp2.yaml": ("65.7 GiB each",),
    "d16_mps_request_of_three.yaml": ("4.0 GiB", "160 s"),
    "d19_timeslicing_replicas_below_two.yaml": ("5 GB each",),
    "d22_karpenter_open_gpu_pool.yaml": ("up to 5 x", "30 s"),
    "d25_aks_8xa100_spot.yaml": ("28.5 GiB each", "57.1 GiB each"),
}


@pytest.mark.parametrize("file", sorted(FIGURES))
def test_figures_are_those_of_the_case(file: str) -> None:
    text = "\n".join(f"{finding.message} {finding.fix}" for finding in found(file))
    for figure in FIGURES[file]:
        assert figure in text
