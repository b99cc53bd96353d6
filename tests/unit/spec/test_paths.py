"""Values changed by path."""

from __future__ import annotations

from typing import Any

import pytest

from rightslice.core.errors import BadInputError
from rightslice.spec.paths import changed, split_change

DOCUMENT: dict[str, Any] = {
    "models": [
        {"name": "chat", "traffic": {"rate": "12/s"}},
        {"name": "rag", "traffic": [{"class": "short", "rate": "1/s"}, {"class": "long", "rate": "2/s"}]},
    ],
    "pipelines": [{"name": "voice", "users": {"heavy": {"concurrent": 30}}}],
}


def _heavy(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["pipelines"][0]["users"]["heavy"]
    return found


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("models.chat.traffic.rate", "20/s", lambda d: d["models"][0]["traffic"]["rate"] == "20/s"),
        ("models.rag.traffic.long.rate", "9/s", lambda d: d["models"][1]["traffic"][1]["rate"] == "9/s"),
        ("pipelines.voice.users.heavy.concurrent", "60", lambda d: _heavy(d)["concurrent"] == 60),
        ("pipelines.users.heavy.think_time", "5s", lambda d: _heavy(d)["think_time"] == "5s"),
        ("models.chat.engine.prefix_caching", "no", lambda d: d["models"][0]["engine"] == {"prefix_caching": "no"}),
        ("budget", "{monthly: $9}", lambda d: d["budget"] == {"monthly": "$9"}),
    ],
)  # fmt: skip
def test_a_value_is_changed_where_the_path_leads(path: str, value: str, read: Any) -> None:
    before = str(DOCUMENT)
    assert read(changed(DOCUMENT, path.split("."), value))
    assert str(DOCUMENT) == before


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("models.chta.traffic.rate", "did you mean chat?"),
        ("models.rag.traffic.rate", "long, short"),
        ("modles.chat.rate", "did you mean models?"),
        ("models.chat.traffic.rate.mean", ""),
    ],
)
def test_a_path_that_leads_nowhere_says_what_is_there(path: str, said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        changed(DOCUMENT, path.split("."), "1")
    assert caught.value.code == "RS0501"
    assert said in str(caught.value.diagnostics[0].hint)


@pytest.mark.parametrize("text", ["", "x", "=3", "a..b=3", "a.b="])
def test_what_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        split_change(text)


def test_the_first_equals_sign_divides() -> None:
    assert split_change("models.chat.source = org/a=b ") == (("models", "chat", "source"), "org/a=b")
