"""Every rule finds its planted fault, and has no word about the good twin."""

from __future__ import annotations

import pytest

from lint_faults import FAULTS
from lint_objects import codes, found, server
from rightslice.kube.lint.rules.every import rules


def test_every_rule_has_twins() -> None:
    assert sorted(FAULTS) == [rule.code for rule in rules()]
    assert len(FAULTS) >= 35


def test_a_server_without_fault_has_no_findings() -> None:
    assert found(server()) == ()


@pytest.mark.parametrize("code", sorted(FAULTS))
def test_a_fault_is_found_and_its_good_twin_is_not(code: str) -> None:
    bad, good = FAULTS[code]
    assert code in codes(*bad)
    assert code not in codes(*good)


@pytest.mark.parametrize("code", sorted(FAULTS))
def test_findings_say_where_and_what_to_do(code: str) -> None:
    for finding in found(*FAULTS[code][0]):
        assert finding.file == "manifests.yaml"
        assert finding.line >= 1
        assert finding.message
        assert finding.fix
        assert finding.object.count("/") >= 2
