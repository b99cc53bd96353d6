"""Client laws of ServeGen: both forms, what is drawn from them, and mistakes in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rightslice.core.errors import BadInputError
from rightslice.core.rng import generator
from rightslice.traffic.describe import gap_cv
from rightslice.traffic.servegen import drawn, is_client_laws, read_client_laws

DATA = Path(__file__).parents[2] / "data" / "traces"
TABLE, LENGTHS = DATA / "servegen_clients_r1_2h.csv", DATA / "servegen_lengths_r1.csv"


def published(folder: Path) -> Path:
    """Two clients after the layout in ServeGen's README; the second is silent from 600 s on."""
    folder.mkdir()
    (folder / "chunk-0-trace.csv").write_text("0,10.0,4.0,Gamma,0.0625,1.6\n600,20.0,1.0,Gamma,1.0,0.05\n")
    (folder / "chunk-0-dataset.json").write_text(
        '{"0": {"input_tokens": "{100: 0.25, 300: 0.75}", "output_tokens": "{10: 1.0}"},'
        ' "600": {"input_tokens": "{7: 1.0}", "output_tokens": "{20: 0.5, 40: 0.5}"}}'
    )
    (folder / "chunk-1-trace.csv").write_text("0,5.0,1.2,Weibull,0.8,0.2\n600,0.0,0.0,,0.0,0.0\n")
    (folder / "chunk-1-dataset.json").write_text('{"0": {"input_tokens": "{50: 1}", "output_tokens": "{5: 1}"}}')
    return folder


def test_as_published(tmp_path: Path) -> None:
    """Rates, lengths and burstiness per client and window, within four standard errors."""
    folder = published(tmp_path / "m-large")
    assert is_client_laws(folder)
    assert is_client_laws(folder / "chunk-0-trace.csv")
    laws = read_client_laws(folder)
    assert len(laws.windows) == 3
    traces = [drawn(laws, 0.0, 1200.0, generator(seed, "t")) for seed in range(40)]
    early = [trace.arrival_s < 600.0 for trace in traces]
    first = [trace.input_tokens >= 100 for trace in traces]
    counts = np.array([mask.sum() for mask in first])
    assert abs(counts.mean() - 6000) < 4 * 4.0 * (6000 / 40) ** 0.5
    assert np.mean(
        [trace.input_tokens[mask].mean() for trace, mask in zip(traces, first, strict=True)]
    ) == pytest.approx(250.0, rel=0.01)
    assert np.mean([gap_cv(t.arrival_s[m]) for t, m in zip(traces, first, strict=True)]) == pytest.approx(4.0, rel=0.05)
    late = np.array([(trace.input_tokens == 7).sum() for trace in traces])
    assert abs(late.mean() - 12_000) < 4 * (12_000 / 40) ** 0.5
    second = np.array([(trace.input_tokens == 50).sum() for trace in traces])
    assert abs(second.mean() - 3000) < 4 * 1.3 * (3000 / 40) ** 0.5
    for trace, mask in zip(traces, early, strict=True):
        assert set(trace.output_tokens[~mask].tolist()) == {20, 40}
        assert (np.diff(trace.arrival_s) >= 0.0).all()
    assert traces[0].model is not None
    assert traces[0].model.names == ("m-large",)


def test_recorded_laws() -> None:
    """Two hours of deepseek-r1: as many requests as the published rates add up to, and the lengths of the histogram."""
    laws = read_client_laws(TABLE, LENGTHS)
    expected = sum(window.per_s * (window.end_s - window.start_s) for window in laws.windows)
    trace = drawn(laws, 0.0, 7200.0, generator(1, "t"))
    assert len(trace) == pytest.approx(expected, rel=0.01)
    law = laws.length_law(laws.windows[0], "output_tokens")
    assert law is not None
    assert trace.output_tokens.mean() == pytest.approx(law.mean, rel=0.02)
    again = drawn(laws, 0.0, 7200.0, generator(1, "t"))
    assert again.arrival_s.tobytes() == trace.arrival_s.tobytes()
    part = drawn(laws, 1800.0, 600.0, generator(1, "t"))
    assert part.arrival_s.max() < 600.0


@pytest.mark.parametrize(
    ("name", "text", "rule", "line"),
    [
        ("chunk-0-trace.csv", "0,1,1,Gamma,0.5,1\n600,1,1,Pareto,0.5,1\n", "RS0105", 2),
        ("chunk-0-trace.csv", "0,1,1,Gamma,0.5\n", "RS0105", 1),
        ("chunk-0-trace.csv", "0,-1,1,Gamma,0.5,1\n", "RS0105", 1),
        ("chunk-0-trace.csv", "0,1,1,Gamma,0,1\n", "RS0105", 1),
        ("chunk-0-trace.csv", "0,nan,1,Gamma,1,1\n", "RS0105", 1),
        ("chunk-0-dataset.json", "{", "RS0105", 1),
        ("chunk-0-dataset.json", '{"0": {"input_tokens": "{1: -0.5, 2: 1}"}}', "RS0105", 1),
        ("chunk-0-dataset.json", '{"0": {"input_tokens": "__import__"}}', "RS0105", 1),
        ("chunk-0-dataset.json", '{"0": []}', "RS0105", 1),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, name: str, text: str, rule: str, line: int) -> None:
    folder = published(tmp_path / "m")
    (folder / name).write_text(text)
    with pytest.raises(BadInputError) as caught:
        read_client_laws(folder)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.location is not None
    assert (diagnostic.rule, diagnostic.location.file, diagnostic.location.line) == (rule, str(folder / name), line)


def test_a_silent_service_and_too_much(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "chunk-0-trace.csv").write_text("0,0,0,,0,0\n")
    with pytest.raises(BadInputError, match="no client is active"):
        read_client_laws(folder)
    (folder / "chunk-0-trace.csv").write_text("0,1e6,1,Exponential,0,0\n")
    with pytest.raises(BadInputError, match="requests in one draw"):
        drawn(read_client_laws(folder), 0.0, 600.0, generator(1, "t"))
