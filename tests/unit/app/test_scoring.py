"""Scores of predictions on measurements, and the bar."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rightslice.app.accuracy import exceeded, read_bar, score_table
from rightslice.app.scoring import Point, measured, score
from rightslice.core.errors import BadInputError

ROW = {
    "isl": "300",
    "osl": "100",
    "load": "closed",
    "tokens_s_total": "4000",
    "tpot_ms_mean": "10",
    "ttft_ms_mean": "50",
}
POINT = Point("1", "a", "cell", "tpot", 10.0, 11.0, 9.0, 12.0)


def test_total_tokens_count_by_the_share_of_the_answer() -> None:
    assert measured(ROW) == {"throughput": 1000.0, "tpot": 10.0, "ttft": 50.0}


def test_an_open_load_has_no_throughput_a_burst_no_ttft_and_short_answers_no_tpot() -> None:
    assert "throughput" not in measured({**ROW, "load": "open"})
    assert "ttft" not in measured({**ROW, "load": "burst"})
    assert "tpot" not in measured({**ROW, "osl": "19"})


def test_medians_over_rows_and_over_groups() -> None:
    far = replace(POINT, group="b", predicted=20.0)
    found = score([POINT, POINT, POINT, far])
    assert found is not None
    assert (found.rows, found.groups) == (4, 2)
    assert found.median_ape == pytest.approx(0.1)
    assert found.macro_median_ape == pytest.approx((0.1 + 1.0) / 2)
    assert found.within_20pct == pytest.approx(0.75)
    assert found.interval_coverage == 1.0
    assert score([]) is None


def table(path: Path, *lines: str) -> Path:
    head = "id,model,hw,isl,osl,load,concurrency_or_batch,tpot_ms_mean,quality,group,task"
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def test_a_table_is_predicted_and_scored(tmp_path: Path) -> None:
    path = table(
        tmp_path / "t.csv",
        "1,Llama-3.1-8B,H100-SXM-80GB,500,100,closed,4,8,A,g,llm",
        "2,Llama-3.1-8B,Abacus,500,100,closed,4,8,A,g,llm",
        "3,Llama-3.1-8B,H100-SXM-80GB,500,100,closed,4,8,D,g,llm",
        "4,whisper,H100-SXM-80GB,500,100,closed,4,8,A,g,asr",
    )
    found = score_table(path)
    assert (found.rows, found.coverage) == (2, 0.5)
    assert found.tpot is not None
    assert found.tpot.rows == 1
    assert found.throughput is None
    assert [g["group"] for g in found.by_group] == ["g"]
    bar = tmp_path / "bar.json"
    bar.write_text(json.dumps({"coverage": 0.9, "tpot": {"median_ape": 1e-9}, "e2e": {"within_20pct": 0.1}}))
    missed = exceeded(found, read_bar(bar))
    assert [miss.split()[0] for miss in missed] == ["coverage", "tpot", "e2e"]
    bar.write_text(json.dumps({"coverage": 0.4, "tpot": {"median_ape": 9.0}}))
    assert exceeded(found, read_bar(bar)) == ()


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"speed": {}}', '{"tpot": 1}', '{"tpot": {"p99": 1}}', '{"tpot": {"median_ape": "x"}}']
)
def test_a_bar_that_is_not_understood(tmp_path: Path, text: str) -> None:
    (tmp_path / "bar.json").write_text(text)
    with pytest.raises(BadInputError):
        read_bar(tmp_path / "bar.json")


def test_text_where_a_number_should_be(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no number"):
        score_table(table(tmp_path / "t.csv", "1,Llama-3.1-8B,H100-SXM-80GB,500,100,closed,4,fast,A,g,llm"))
