"""Trace files: every format, and one diagnostic with its line for whatever is wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightslice.core.errors import BadInputError
from rightslice.traffic import trace_rows, traces
from rightslice.traffic.traces import read_recording, read_trace

HEADER = "t_s,input_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MOONCAKE = '{"timestamp": 1500, "input_length": 600, "output_length": 4, "hash_ids": [7, 8]}\n'
DATA = Path(__file__).parents[2] / "data" / "traces"


def chat(number: int, parent: int, turn: int, time_s: float, blocks: list[int]) -> str:
    """One row after the schema in the README of the Qwen-Bailian traces."""
    row = {
        "chat_id": number, "parent_chat_id": parent, "timestamp": time_s, "input_length": len(blocks) * 16 - 3,
        "output_length": 5, "type": "text" if turn == 1 else "search", "turn": turn, "hash_ids": blocks,
    }  # fmt: skip
    return json.dumps(row) + "\n"


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


def test_mooncake_lines() -> None:
    """Rows as published: the first block is common to all prompts, time in ms."""
    found = read_recording(DATA / "mooncake_fast25_conversation_head.jsonl")
    trace = found.trace
    assert (found.format.name, found.rows, dict(found.skipped), len(trace)) == ("mooncake", 300, {}, 300)
    assert (trace.arrival_s[10], trace.input_tokens[10], trace.output_tokens[10]) == (3.0, 13_544, 71)
    assert trace.prefix is not None
    assert trace.prefix.block_tokens == 512
    assert trace.prefix.of(10).tolist() == [0, *range(219, 245)]
    assert np.array_equal(np.diff(trace.prefix.offsets), -(-trace.input_tokens // 512))


def test_burstgpt_counts_the_calls_that_failed() -> None:
    found = read_recording(DATA / "burstgpt_1_head.csv")
    assert (found.format.name, found.rows, dict(found.skipped)) == ("burstgpt", 22, {"no input tokens": 1})
    trace = found.trace
    assert (trace.arrival_s[1], trace.input_tokens[1], trace.output_tokens[1]) == (40.0, 1087, 230)
    assert trace.model is not None
    assert [trace.model.names[code] for code in trace.model.codes[:3]] == ["ChatGPT", "ChatGPT", "GPT-4"]


def test_burstgpt_sessions_and_late_clock(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    rows = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log",
        "19440161.0,,2,ChatGPT,36,29,65,API log",
        "19440192.0,1722ac82,8,GPT-4,1779,0,1902,Conversation log",
        "19440193.0,1722ac82,8,GPT-4,1779,123,1902,Conversation log",
    )
    path.write_text("\n".join(rows))
    found = read_recording(path)
    assert dict(found.skipped) == {"no output tokens": 1}
    assert found.trace.arrival_s.tolist() == [0.0, 51.0, 83.0]
    assert found.trace.session is not None
    assert found.trace.session.tolist() == [0, -1, 0]
    assert found.trace.traffic_class is not None
    assert found.trace.traffic_class.names == ("Conversation log", "API log")


def test_bailian_turns_join_the_conversation_of_their_root(tmp_path: Path) -> None:
    """Chats 5 <- 9 <- 12 are one conversation, 6 another, 20 goes on from a chat that is not in the file."""
    path = tmp_path / "q.jsonl.gz"
    lines = (
        chat(5, -1, 1, 1.0, [90, 91]), chat(6, -1, 1, 1.5, [90, 7]), chat(9, 5, 2, 2.0, [90, 91, 3]),
        chat(12, 9, 3, 4.25, [90, 91, 3, 4]), chat(20, 2, 2, 5.0, [8]),
    )  # fmt: skip
    path.write_bytes(gzip.compress("".join(lines).encode()))
    found = read_recording(path)
    assert found.format.name == "bailian"
    trace = found.trace
    assert trace.session is not None
    assert trace.session.tolist() == [0, 1, 0, 0, 2]
    assert trace.arrival_s.tolist() == [1.0, 1.5, 2.0, 4.25, 5.0]
    assert trace.prefix is not None
    assert (trace.prefix.block_tokens, trace.prefix.of(3).tolist()) == (16, [0, 1, 3, 4])
    assert trace.prefix.seen_before().tolist() == [0, 1, 2, 3, 0]


def test_optional_columns_and_block_size(tmp_path: Path) -> None:
    """Ids are numbered in the order of time; a block of 32 is what makes 40 tokens two blocks and 32 one."""
    path = tmp_path / "t.csv"
    path.write_text(
        "priority,class,t_s,input_tokens,output_tokens,hash_ids,session,model\n"
        '3,chat,2,40,1,500 -7,b,"a,b"\n,batch,1,32,1,500,a,m\n-1,,3,5,1,,,\n'
    )
    trace = read_trace(path)
    assert trace.priority is not None
    assert trace.session is not None
    assert trace.model is not None
    assert trace.prefix is not None
    assert trace.priority.tolist() == [0, 3, -1]
    assert trace.session.tolist() == [0, 1, -1]
    assert [trace.model.names[code] if code >= 0 else None for code in trace.model.codes] == ["m", "a,b", None]
    assert [trace.prefix.of(i).tolist() for i in range(3)] == [[0], [0, 1], []]
    assert trace.prefix.block_tokens == 32


def test_reading_goes_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATA / "mooncake_fast25_conversation_head.jsonl"
    whole = read_trace(path)
    monkeypatch.setattr(traces, "_LINES_AT_ONCE", 7)
    parts = read_trace(path)
    assert whole.prefix is not None
    assert parts.prefix is not None
    assert whole.prefix.ids.tobytes() == parts.prefix.ids.tobytes()
    assert whole.arrival_s.tobytes() == parts.arrival_s.tobytes()


def test_too_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_rows, "MAX_BLOCKS", 3)
    path = tmp_path / "m.jsonl"
    path.write_text(MOONCAKE * 2)
    with pytest.raises(BadInputError, match="more than 3 prefix blocks") as caught:
        read_trace(path)
    assert caught.value.code == "RS0404"


@pytest.mark.parametrize(
    ("content", "rule", "line"),
    [
        (b"", "RS0405", 0),
        (HEADER.encode(), "RS0405", 0),
        (b"time,in,out\n1,2,3\n", "RS0202", 1),
        (b'"t_s,input_tokens,output_tokens\n1,2,3\n', "RS0202", 1),
        (b"\n \n", "RS0405", 0),
        (b'{"chat_id": 1, "parent_chat_id": [1], "timestamp": 1, "input_length": 2, "output_length": 3}', "RS0105", 1),
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
        ((AZURE + "2023-02-30 18:15:46,1,1\n").encode(), "RS0105", 2),
        ((AZURE + "2023-11-16 18:15:46,0,1\n").encode(), "RS0405", 0),
        ((HEADER + '0,"1\n2",3\n').encode(), "RS0105", 2),
        ((HEADER[:-1] + ",priority\n0,1,1,1\n0,1,1,high\n").encode(), "RS0105", 3),
        ((HEADER[:-1] + ",hash_ids\n0,1,1,1 2\n0,1,1,1 b\n").encode(), "RS0105", 3),
        ((HEADER[:-1] + ",hash_ids\n0,1,1,99999999999999999999\n").encode(), "RS0105", 2),
        (b"Timestamp,Request tokens,Response tokens\n1,2,3\n2,-1,3\n", "RS0106", 3),
        (b'{"timestamp": 0}\n', "RS0202", 1),
        (b'{"timestamp": 0,\n', "RS0202", 1),
        ((MOONCAKE + "[1]\n").encode(), "RS0105", 2),
        ((MOONCAKE + "{\n").encode(), "RS0105", 2),
        ((MOONCAKE + '{"timestamp": 1, "input_length": 5}\n').encode(), "RS0105", 2),
        ((MOONCAKE + MOONCAKE.replace("600", "1.5")).encode(), "RS0105", 2),
        ((MOONCAKE + MOONCAKE.replace("600", "true")).encode(), "RS0105", 2),
        ((MOONCAKE + MOONCAKE.replace("600", "-3")).encode(), "RS0106", 2),
        ((MOONCAKE + MOONCAKE.replace("[7, 8]", "[7, 8.5]")).encode(), "RS0105", 2),
        ((MOONCAKE + MOONCAKE.replace("[7, 8]", "7")).encode(), "RS0105", 2),
        ((MOONCAKE + MOONCAKE.replace("1500", "1e400")).encode(), "RS0106", 2),
        (b"\xff\xfe\x00\x01" * 20, "RS0403", 0),
        (HEADER.encode() + b"0" * 2_000_001, "RS0403", 2),
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
@given(
    st.binary(max_size=200), st.booleans(), st.sampled_from([b"", HEADER.encode(), AZURE.encode(), MOONCAKE.encode()])
)
def test_any_bytes_give_a_trace_or_a_diagnostic(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, packed: bool, header: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(gzip.compress(header + data) if packed else header + data)
    try:
        assert len(read_trace(path)) > 0
    except BadInputError as error:
        assert len(error.diagnostics) == 1
