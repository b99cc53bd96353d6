"""Start-up reports from the field through `rightslice size --engine … --engine-args …`: the verdict and the figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rightslice.ui.cli.main import main

GIB = 1 << 30
REPORTS = json.loads((Path(__file__).parents[1] / "data" / "field_reports" / "memory.json").read_text())["reports"]
FIGURES = {
    "weights_gib": lambda found: found["weights_bytes"] / GIB,
    "kv_needed_gib": lambda found: found["kv_bytes_needed"] / GIB,
    "kv_needed_whole_model_gib": lambda found: found["kv_bytes_needed"] / GIB,  # what that version asks of one stage
    "max_model_len_engine": lambda found: found["max_model_len_that_fits"],
}


@pytest.mark.parametrize("report", REPORTS, ids=[report["id"] for report in REPORTS])
def test_the_engine_said_so(report: dict[str, Any], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    source: str = report.get("model", "")
    if "config" in report:
        source = str(tmp_path / "config.json")
        Path(source).write_text(json.dumps(report["config"]))
    options = [word for name, value in report["options"].items() for word in (f"--{name}", value)]
    code = main(["size", source, *options, "--json"])
    found = json.loads(capfdbinary.readouterr().out)
    expected = report["expect"]
    assert found["verdict"] == expected["verdict"], found["reason"]
    assert code == (0 if found["verdict"] in ("starts", "uncertain") else 1)
    for name, value in expected.items():
        if name == "verdict":
            continue
        if isinstance(value, str):
            assert value in (found[name] if isinstance(found[name], str) else "; ".join(found[name])), name
            continue
        figure, tolerance = value
        seen = FIGURES[name](found) if name in FIGURES else found[name]
        assert seen == pytest.approx(figure, rel=tolerance, abs=0), name
