"""Trace files: both formats, and one diagnostic with its line for whatever is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.core.errors import BadInputError
from rightslice.traffic import traces
from rightslice.traffic.traces import read_trace

HEADER = "t_s,input_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_recorded_trace() -> None:
    """A row as in the file, and the sums of its columns."""
    trace = read_trace(Path(__file__).parents[2] / "data" / "traces" / "azure_llm_2023_conv_head.csv")
    assert (len(trace), trace.input_tokens.sum(), trace.output_tokens.sum()) == (2000, 2_209_565, 529_807)
    assert (trace.arrival_s[1], trace.input_tokens[1], trace.output_tokens[1]) == (4.3146, 396, 109)
    assert trace.requests_per_s == pytest.approx(1999 / trace.arrival_s[-1])


def test_azure_timestamps_packed_and_unsorted(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv.gz"
    rows = "2023-11-16 18:15:46.6805900,374,44\n2024-05-10 00:00:00.009930+00:00,5,6\n2023-11-16 18:15:46.5805900,1,2\n"
    path.write_bytes(gzip.compress((AZURE + rows).encode()))
    trace = read_trace(path)
    assert trace.arrival_s[:2].tolist() == [0.0, 0.1]
    assert trace.arrival_s[2] == pytest.approx(176 * 86_400 - (18 * 3600 + 15 * 60 + 46.58059) + 0.00993, abs=1e-6)
    assert trace.input_tokens.tolist() == [1, 374, 5]
    assert trace.output_tokens.tolist() == [2, 44, 6]


def test_columns_in_any_order_blank_lines_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeffmodel,output_tokens, t_s ,input_tokens\r\nm,2,1.5,3\r\n\r\nm,4,2.5,5\r\n")
    trace = read_trace(path)
    assert trace.arrival_s.tolist() == [1.5, 2.5]
    assert trace.input_tokens.tolist() == [3, 5]


@pytest.mark.parametrize(
    ("content", "rule", "line"),
    [
        (b"", "RS0405", 0),
        (HEADER.encode(), "RS0405", 0),
        (b"time,in,out\n1,2,3\n", "RS0202", 1),
        ((HEADER + "0,1,1\n1,2\n").encode(), "RS0105", 3),
        ((HEADER + "0,1,1\n\n1,x,3\n").encode(), "RS0105", 4),
        ((HEADER + "0,1,1.5\n").encode(), "RS0105", 2),
        ((HEADER + "0,0,1\n").encode(), "RS0106", 2),
        ((HEADER + "0,1,-4\n").encode(), "RS0106", 2),
        ((HEADER + "0,1,99999999999\n").encode(), "RS0106", 2),
        ((HEADER + "soon,1,1\n").encode(), "RS0105", 2),
        ((HEADER + "nan,1,1\n").encode(), "RS0106", 2),
        ((HEADER + "-1,1,1\n").encode(), "RS0106", 2),
        ((AZURE + "16 November,1,1\n").encode(), "RS0105", 2),
        ((AZURE + "2023-11-16 18:15:46 noon,1,1\n").encode(), "RS0105", 2),
        (b"\xff\xfe\x00\x01" * 20, "RS0403", 0),
        (HEADER.encode() + b"0" * 200_000, "RS0403", 2),
        (b"\x1f\x8b broken", "RS0406", 0),
        (gzip.compress((HEADER + "0,1,1\n" * 999).encode())[:-20], "RS0406", 0),
    ],
)
def test_one_diagnostic_with_its_line(tmp_path: Path, content: bytes, rule: str, line: int) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(BadInputError) as caught:
        read_trace(path)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.location is not None
    assert (diagnostic.rule, diagnostic.location.line) == (rule, line)
    assert diagnostic.location.file == str(path)


def test_missing_and_folder(tmp_path: Path) -> None:
    for path, rule in ((tmp_path / "no.csv", "RS0401"), (tmp_path, "RS0402"), (Path("a\0b"), "RS0401")):
        with pytest.raises(BadInputError) as caught:
            read_trace(path)
        assert caught.value.code == rule


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.csv"
    path.write_text(HEADER + "1,2,3\n" * 20)
    monkeypatch.setattr(traces, "MAX_ROWS", 20)
    assert len(read_trace(path)) == 20
    monkeypatch.setattr(traces, "MAX_ROWS", 10)
    with pytest.raises(BadInputError, match="more than 10 rows") as caught:
        read_trace(path)
    assert caught.value.location is not None
    assert caught.value.location.line == 12
    monkeypatch.setattr(traces, "MAX_FILE_BYTES", 40)
    with pytest.raises(BadInputError, match="too large"):
        read_trace(path)
    packed = tmp_path / "bomb.csv.gz"
    packed.write_bytes(gzip.compress(HEADER.encode() + b"\n" * 10_000, mtime=0))
    monkeypatch.setattr(traces, "MAX_FILE_BYTES", 100)
    with pytest.raises(BadInputError, match="more than"):
        read_trace(packed)


@settings(max_examples=150)
@given(st.binary(max_size=200), st.booleans(), st.sampled_from([b"", HEADER.encode(), AZURE.encode()]))
def test_any_bytes_give_a_trace_or_a_diagnostic(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, packed: bool, header: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(gzip.compress(header + data) if packed else header + data)
    try:
        assert len(read_trace(path)) > 0
    except BadInputError as error:
        assert len(error.diagnostics) == 1
