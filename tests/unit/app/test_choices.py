"""Several sources: each is planned as if it stood alone, the cheapest is taken, the others are told with prices."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightslice.app.planning import plan_workload
from rightslice.core.errors import BadInputError
from rightslice.core.plan import Plan
from workloads import CHAT

LARGE, SMALL = "nvidia/Llama-3.1-70B-Instruct-FP8", "meta-llama/Llama-3.1-8B-Instruct"


def planned(tmp_path: Path, source: str) -> Plan:
    text = CHAT.replace("EXTRA", "min_replicas: 1").replace("ENVIRONMENT", "development").replace("FLEET", "")
    path = tmp_path / "w.yaml"
    path.write_text(text.replace("source: meta-llama/Llama-3.1-8B-Instruct", f"source: {source}"))
    return plan_workload(path).plan


def test_the_cheapest_source_is_taken_and_the_other_is_told(tmp_path: Path) -> None:
    large, small, both = (planned(tmp_path, source) for source in (LARGE, SMALL, f"[{LARGE}, {SMALL}]"))
    assert large.monthly_usd
    assert small.monthly_usd
    assert both.monthly_usd
    assert both.monthly_usd.value == small.monthly_usd.value < large.monthly_usd.value
    assert [model.source for model in both.models] == [SMALL]
    told = next(r for r in both.rejected if r.option == f"llm as {LARGE}")
    assert told.code == "RS4003"
    assert told.monthly_usd == pytest.approx(large.monthly_usd.value)
    assert SMALL in told.reason


def test_a_source_that_cannot_work_says_why(tmp_path: Path) -> None:
    both = planned(tmp_path, f"[deepseek-ai/DeepSeek-R1, {SMALL}]")
    assert both.feasible
    told = next(r for r in both.rejected if r.option == "llm as deepseek-ai/DeepSeek-R1")
    assert told.code == "RS4001"
    assert "fits nothing" in told.reason


def test_too_many_combinations_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="9 combinations"):
        planned(tmp_path, f"[{', '.join([SMALL] * 9)}]")
