"""Results of other tools, and laws that are found again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightslice.app.calibrate import calibrate, read_results, simulated
from rightslice.core.calibrated import StepLaw
from rightslice.core.errors import BadInputError
from rightslice.loadtesting.calibration import Engine
from rightslice.loadtesting.imports import Measured, UnknownFormatError, imported
from rightslice.loadtesting.step_fit import fit, non_negative, repeat_spread

DATA = Path(__file__).parents[2] / "data" / "loadtest"
VLLM_CPU = DATA / "vllm-cpu"
TRUE = StepLaw(step_ms=9.0, token_ms=0.3, context_token_ms=0.0005, attention_ms=0.00004, request_ms=3.0)
SHAPES = ((1, 128, 64), (8, 128, 64), (32, 128, 64), (8, 32, 128), (4, 1024, 16), (16, 512, 32))


def measured(law: StepLaw, streams: int, inputs: int, outputs: int, noise: float = 1.0) -> Measured:
    """A load test of an engine with that law."""
    point = Measured("true", streams, inputs, outputs, 1.0, 1.0, 1.0, 1.0)
    found = simulated(law, point, Engine())
    assert found is not None
    assert found.tpot_ms is not None
    times = (found.ttft_ms.mean * noise, found.tpot_ms.mean * noise, found.e2e_ms.mean * noise)
    return Measured("true", streams, inputs, outputs, found.requests_per_s, *times)


@pytest.mark.parametrize(
    ("file", "tool", "prompt", "ttft", "tpot"),
    [
        ("guidellm-0.8.1.json", "guidellm", 80.9, 139.5, 20.17),
        ("vllm-bench-serve-0.32.json", "vllm bench serve", 104.0, None, 21.01),
        ("aiperf-0.13-profile_export_aiperf.json", "aiperf", 67.9, 151.2, 20.52),
        ("inference-perf-0.7-summary_lifecycle_metrics.json", "inference-perf", 89.9, 114.1, 20.10),
    ],
)
def test_results_of_other_tools_of_a_server_with_100_and_20_ms(
    file: str, tool: str, prompt: float, ttft: float | None, tpot: float
) -> None:
    found, (point,), _ = imported(json.loads((DATA / file).read_text("utf-8")), file)
    assert found == tool
    assert point.streams == pytest.approx(64, rel=0.1)
    assert point.output_tokens == 100
    assert point.input_tokens == pytest.approx(prompt, abs=0.1)
    assert point.tpot_ms == pytest.approx(tpot, abs=0.01)
    assert point.ttft_ms == (None if ttft is None else pytest.approx(ttft, abs=0.1))


@pytest.mark.parametrize("document", [[], {}, {"points": 1}, {"benchmarks": [{}], "metadata": {}}, "text", None])
def test_what_is_no_result_is_refused(document: object) -> None:
    with pytest.raises(UnknownFormatError):
        imported(document, "x")


def test_files_that_cannot_be_used_name_themselves(tmp_path: Path) -> None:
    wrong = {"none.json": "{", "other.json": "{}", "cut.json": '{"points": [{}], "api": "chat", "client": {}}'}
    for name, text in wrong.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(BadInputError) as caught:
            read_results([tmp_path / name])
        assert caught.value.location is not None
        assert name in caught.value.location.file


def test_a_law_is_found_again_through_the_scheduler() -> None:
    points = [measured(TRUE, *shape) for shape in SHAPES]
    found = calibrate(points, Engine())
    assert found.accepted
    assert found.after.tpot < 0.01
    assert found.after.e2e < 0.01
    assert found.coefficients.step_ms == pytest.approx(TRUE.step_ms, rel=0.05)
    assert found.coefficients.token_ms == pytest.approx(TRUE.token_ms, rel=0.05)
    assert found.leave_one_out.tpot < 0.05


def test_repeats_that_differ_are_not_accepted() -> None:
    points = [measured(TRUE, *shape) for shape in SHAPES]
    found = calibrate([*points, measured(TRUE, 8, 128, 64, noise=1.3)], Engine())
    assert not found.accepted
    assert "repeats of one load differ by 30%" in found.reasons[0]
    assert repeat_spread(points) is None


def test_few_points_are_not_enough() -> None:
    with pytest.raises(BadInputError, match="at least 5"):
        calibrate([measured(TRUE, *SHAPES[0])] * 4, Engine())
    with pytest.raises(ValueError, match="at least 5"):
        fit([])


def test_a_real_engine() -> None:
    """vLLM 0.32.0 on two cores: each point within reach of a law that has not seen it."""
    points, notes = read_results([VLLM_CPU / f"{name}.json" for name in ("32x128", "128x64", "1024x32", "rep")])
    found = calibrate(points, Engine(64, 2048), notes=notes)
    assert found.accepted, found.reasons
    assert found.repeat_spread is not None
    assert found.repeat_spread < 0.05
    assert found.leave_one_out.tpot < 0.10
    assert found.leave_one_out.e2e < 0.10
    unseen, _ = read_results([VLLM_CPU / f"unseen-{name}.json" for name in ("512x64", "64x32", "2048x48")])
    for point in unseen:
        predicted = simulated(found.coefficients, point, Engine(64, 2048))
        assert predicted is not None
        assert predicted.e2e_ms.mean == pytest.approx(point.e2e_ms, rel=0.25)


@given(st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.0, 100.0), st.floats(0.1, 50.0)), min_size=3, max_size=12))
def test_coefficients_are_not_negative_and_no_worse_than_a_constant(rows: list[tuple[float, float, float]]) -> None:
    table = np.array([(1.0, a, b) for a, b, _ in rows])
    values = np.array([value for _, _, value in rows])
    found = non_negative(table, values)
    assert (found >= 0.0).all()
    constant = float((1.0 / values).sum() / (1.0 / values**2).sum())
    residual = float(((table @ found / values - 1.0) ** 2).sum())
    assert residual <= float(((constant / values - 1.0) ** 2).sum()) + 1e-9
