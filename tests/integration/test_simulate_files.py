"""What `rightslice simulate -o` leaves: every file or none, figures that add up, nothing of others written over."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rightslice.ui.cli.main import main

WORKLOAD = """
apiVersion: rightslice/v1
kind: Workload
metadata: {name: day}
models:
  - name: llm
    source: meta-llama/Llama-3.1-8B-Instruct
    traffic:
      rate: {mean: 2/s, peak: 6/s}
      shape: diurnal
      input_tokens: {mean: 1500, p95: 4000}
      output_tokens: {mean: 200}
      slo: {ttft_p95: 4s, tpot_p95: 120ms}
fleet: {providers: [aws], regions: [us-east-1], accelerators: {allow: [A10G]}}
"""


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("day")
    (folder / "w.yaml").write_text(WORKLOAD)
    assert main(["plan", str(folder / "w.yaml"), "-o", str(folder / "plan"), "--quiet"]) == 0
    return folder / "plan"


Written = Callable[..., tuple[dict[str, Any], list[dict[str, str]], str]]


@pytest.fixture
def written(day: Path, tmp_path: Path) -> Written:
    """Options -> (replay.json, rows of timeline.csv, report.html)."""

    def run(*options: str) -> tuple[dict[str, Any], list[dict[str, str]], str]:
        folder = tmp_path / "out"
        assert main(["simulate", str(day), *options, "-o", str(folder)]) in {0, 1}
        assert sorted(path.name for path in folder.iterdir()) == ["replay.json", "report.html", "timeline.csv"]
        with (folder / "timeline.csv").open(newline="") as handle:
            rows = list(csv.DictReader(handle))
        return json.loads((folder / "replay.json").read_text()), rows, (folder / "report.html").read_text()

    return run


def adds_up(record: dict[str, Any], rows: list[dict[str, str]]) -> bool:
    """The bins of the table hold every request of the record."""
    sums = {
        name: sum(int(row[name] or 0) for row in rows) for name in ("offered", "completed", "failed", "lost", "shed")
    }
    assert sums["offered"] == record["requests"]
    assert sums["completed"] == record["answered"]
    assert sums["failed"] == record["failed"] == sum(record["failed_why"].values())
    assert sums["lost"] == record["lost"]
    assert sums["shed"] == record["shed"] == sum(found["shed"] for found in record["per_model"])
    assert record["requests"] == record["completed"] + record["failed"] + record["shed"] + record["unfinished"]
    return all(int(row["in_flight"]) >= 0 for row in rows if row["in_flight"])


def test_a_day_with_an_autoscaler_and_a_lost_zone(written: Written, day: Path) -> None:
    record, rows, page = written("--autoscaler", "hpa", "--fault", "zone@20h")
    assert adds_up(record, rows)
    assert record["schema"] == "rightslice.replay/v1"
    assert record["asked"] == {"autoscaler": "hpa", "faults": ["zone@20h"]}
    assert len(rows) == 288
    assert float(rows[-1]["usd"]) == pytest.approx(record["usd"], rel=1e-6)
    ready = [float(row["replicas_ready"]) for row in rows]
    assert max(ready) > min(ready) >= 0.0
    assert any(float(row["replicas_starting"]) for row in rows)
    (bound,) = record["bounds"]
    planned = json.loads((day / "plan.json").read_text())["bound"]
    assert bound["perfect"] < bound["peak"]
    assert bound["perfect"] == pytest.approx(planned["perfect_autoscaler_gpu_hours"])
    assert bound["peak"] == pytest.approx(planned["peak_gpu_hours"])
    intervals = {(c["metric"], c["statistic"]): c for c in record["confidence"]}
    (found,) = record["per_model"]
    for metric in ("ttft_ms", "e2e_ms"):
        for statistic in ("mean", "p50", "p95", "p99"):
            interval = intervals[metric, statistic]
            assert interval["low"] <= found[metric][statistic] <= interval["high"]
    for title in ("Load", "SLO attainment", "Queue", "KV cache in use", "Replicas", "Nodes", "Cost so far"):
        assert f"<b>{title}</b>" in page


def test_what_a_gateway_sheds_is_counted_apart(written: Written) -> None:
    """One replica at twice its load: as a sheddable class part of the traffic is refused and nothing fails."""
    busy = ("--set", "models.llm.traffic.rate=8/s", "--set", "models.llm.replicas=1", "--horizon", "20min")
    record, rows, page = written(*busy, "--set", "models.llm.traffic.priority=-1")
    assert adds_up(record, rows)
    assert record["shed"] > 0.2 * record["requests"]
    assert record["failed"] == 0
    assert not record["holds"]
    assert f"<td>{record['shed']:,}</td>" in page or f"{record['shed']:,}" in page
    kept, *_ = written(*busy, "--set", "models.llm.gateway.queue_depth=2")
    assert kept["shed"] == 0
    assert kept["unfinished"] > record["unfinished"]


def test_the_same_question_leaves_the_same_bytes(day: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        main(["simulate", str(day), "--autoscaler", "keda", "--horizon", "2h", "-o", str(tmp_path / name)])
    for name in ("replay.json", "timeline.csv", "report.html"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_as_planned(written: Written, day: Path) -> None:
    record, rows, _ = written()
    assert adds_up(record, rows)
    verified = json.loads((day / "plan.json").read_text())["verification"]
    assert record["requests"] == verified["requests"]
    assert len({row["replicas_ready"] for row in rows}) == 1


def test_a_week_has_few_bins(written: Written) -> None:
    record, rows, _ = written("--set", "models.llm.traffic.rate=60/h", "--horizon", "7d")
    assert adds_up(record, rows)
    assert 100 < len(rows) <= 400


@pytest.mark.parametrize("rate", ["0.0001/h", "1/h"])
def test_hardly_any_request(written: Written, rate: str) -> None:
    record, rows, page = written("--autoscaler", "fixed", "--set", f"models.llm.traffic.rate={rate}", "--horizon", "1h")
    assert record["requests"] <= 3
    assert adds_up(record, rows)
    assert record["confidence"] == []
    assert "<b>Load</b>" in page


def test_a_tuning_leaves_its_settings(day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tuned"
    code = main(["simulate", str(day), "--autoscaler", "hpa", "--tune", "--horizon", "1h", "-o", str(folder)])
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "trials.csv"]
    with (folder / "trials.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) >= 8
    assert any(row["on_frontier"] == "yes" for row in rows)
    assert (code == 0) == (rows[0]["holds"] == "yes")
    assert "Wrote  trials.csv   report.html" in capsys.readouterr().out


def test_json_and_files_together(day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    main(["simulate", str(day), "--json", "-o", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    assert json.loads(out)["requests"] == json.loads((tmp_path / "out" / "replay.json").read_text())["requests"]
    assert "Wrote  replay.json" in err


def test_what_no_simulation_wrote_is_not_written_over(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan's own folder has a report.html, which is the plan's."""
    before = {path: path.read_bytes() for path in day.rglob("*") if path.is_file()}
    assert main(["simulate", str(day), "-o", str(day)]) == 2
    said = capsys.readouterr().err
    assert "RS0407" in said
    assert "report.html" in said
    assert {path: path.read_bytes() for path in day.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["replay.json", "timeline.csv", "report.html"])
def test_nor_a_file_of_the_same_name(day: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    assert main(["simulate", str(day), "-o", str(tmp_path)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_file_in_place_of_the_folder(day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("mine")
    assert main(["simulate", str(day), "-o", str(tmp_path / "out")]) == 2
    assert "RS0407" in capsys.readouterr().err


def test_an_interrupted_run_leaves_nothing(day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("rightslice.app.replay_files.replay_html", interrupted)
    assert main(["simulate", str(day), "-o", str(tmp_path / "out")]) == 130
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_files_of_before(day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    main(["simulate", str(day), "--seed", "1", "-o", str(folder)])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rightslice.core.files.os.fsync", full)
    assert main(["simulate", str(day), "--seed", "2", "-o", str(folder)]) == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_plan_tells_what_an_autoscaler_could_save(day: Path) -> None:
    bound = json.loads((day / "plan.json").read_text())["bound"]
    assert 0.0 < bound["perfect_autoscaler_gpu_hours"] < bound["peak_gpu_hours"] <= bound["planned_gpu_hours"]
    page = (day / "report.html").read_text()
    assert "GPU-hours of a day:" in page
    assert "That simulation over time" in page
