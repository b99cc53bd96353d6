"""Events, however their bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightslice.loadtesting import sse
from rightslice.loadtesting.sse import EventTooLargeError, SseReader


def read(*pieces: bytes) -> list[bytes]:
    reader = SseReader()
    return [data for piece in pieces for data in reader.feed(piece)] + reader.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard(end: bytes) -> None:
    assert read(end.join([b"data: a", b"", b"data:b", b"", b""])) == [b"a", b"b"]


def test_comments_names_and_several_data_lines() -> None:
    text = b": keep-alive\n\nevent: delta\ndata: {\ndata: }\nid: 4\n\nretry: 10\n\ndata: end\n\n"
    assert read(text) == [b"{\n}", b"end"]


def test_an_event_without_its_blank_line_is_read_at_the_end() -> None:
    assert read(b"data: a\n\ndata: [DONE]") == [b"a", b"[DONE]"]


@given(
    events=st.lists(st.text(alphabet="aé漢 {}:", min_size=1, max_size=12), min_size=1, max_size=6),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(0, 200), max_size=12),
)
def test_cuts_change_nothing(events: list[str], end: bytes, cuts: list[int]) -> None:
    encoded = [event.encode() for event in events]
    whole = b"".join(b"data: " + event + end + end for event in encoded)
    edges = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    assert read(*(whole[a:b] for a, b in pairwise(edges))) == encoded


def test_an_event_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    with pytest.raises(EventTooLargeError):
        read(b"data: " + b"x" * 200)
