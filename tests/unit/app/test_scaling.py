"""Settings of an autoscaler that nobody stated: from the knee of a replica, its cold start, or the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plans import voice
from plans_scaled import scaled
from rightslice.app.scaling import Knee, as_tuned, settings_notes, settled
from rightslice.spec.autoscaler import Autoscaler, parse_autoscaler

CACHE_BOUND = Knee(requests_per_s=2.0, in_flight=40.0, kv_use=0.6, most_sequences=256)
SEQUENCE_BOUND = replace(CACHE_BOUND, in_flight=250.0)
NEITHER = replace(CACHE_BOUND, kv_use=0.3)


def asked(text: str, knee: Knee = CACHE_BOUND, cold_s: float = 200.0) -> Autoscaler:
    return settled(parse_autoscaler(text, "--autoscaler"), 2, 9, cold_s, lambda: knee)


@pytest.mark.parametrize(
    ("text", "knee", "signal", "target"),
    [
        ("hpa", CACHE_BOUND, "kv_use", 0.48),
        ("hpa", SEQUENCE_BOUND, "in_flight", 200.0),
        ("hpa", NEITHER, "in_flight", 32.0),
        ("keda", CACHE_BOUND, "in_flight", 32.0),  # KEDA has no metric of single pods
        ("{share: 0.5}", NEITHER, "in_flight", 20.0),
        ("{signal: running}", CACHE_BOUND, "running", 32.0),
        ("{signal: offered_per_s}", CACHE_BOUND, "offered_per_s", 1.6),
        ("{signal: held}", CACHE_BOUND, "held", 0.8),
        ("{target: 5}", CACHE_BOUND, "in_flight", 5.0),
    ],
)
def test_signal_and_target_come_from_the_knee(text: str, knee: Knee, signal: str, target: float) -> None:
    found = asked(text, knee)
    assert found.signal == signal
    assert found.target == pytest.approx(target)
    assert (found.min, found.max) == (2, 9)


def test_a_stated_target_needs_no_knee() -> None:
    def never() -> Knee:
        raise AssertionError

    assert settled(parse_autoscaler("{target: 5}", ""), 1, 2, 60.0, never).target == 5.0


@pytest.mark.parametrize(
    ("cold_s", "window_s"), [(10.0, 300.0), (150.0, 300.0), (151.0, 360.0), (780.0, 1560.0), (9000.0, 3600.0)]
)
def test_the_down_window_spans_two_cold_starts(cold_s: float, window_s: float) -> None:
    assert (asked("hpa", cold_s=cold_s).down_window, asked("hpa", cold_s=cold_s).up_window) == (window_s, 0.0)
    assert asked("{down_window: 1m, up_window: 30s}", cold_s=cold_s).down_window == 60.0
    assert asked("{down_window: 1m, up_window: 30s}", cold_s=cold_s).up_window == 30.0


def test_what_the_plan_tuned_stands_for_what_is_not_stated() -> None:
    plan = scaled(target=12.5)
    found = as_tuned(plan, {"llm": parse_autoscaler("{kind: hpa, min: 3}", "")})["llm"]
    assert (found.signal, found.target, found.min, found.max) == ("in_flight", 12.5, 3, 6)
    assert (found.up_window, found.down_window) == (0.0, 900.0)


@pytest.mark.parametrize("text", ["keda", "{share: 0.5}", "{signal: kv_use}", "fixed"])
def test_settings_of_another_kind_or_signal_are_not_taken(text: str) -> None:
    wanted = {"llm": parse_autoscaler(text, "")}
    assert as_tuned(scaled(), wanted) == wanted
    assert as_tuned(voice(), wanted) == wanted


@pytest.mark.parametrize(
    ("plan", "text", "words"),
    [
        (
            scaled(),
            "hpa",
            "hpa as the plan tuned it: in_flight 26.2 a replica, 1 to 6 replicas, windows: none up, 15 min",
        ),
        (scaled(), "{min: 2}", "hpa as stated: in_flight 26.2 a replica, 2 to 6 replicas"),
        (scaled(), "keda", "keda (what the plan tuned is for hpa): in_flight 32 a replica, 1 to 9 replicas"),
        (voice(), "hpa", "hpa (the plan has tuned none): kv_use 0.48 a replica"),
    ],
)
def test_the_answer_tells_which_settings_were_used(plan: object, text: str, words: str) -> None:
    wanted = as_tuned(plan, {"llm": parse_autoscaler(text, "")})["llm"]  # type: ignore[arg-type]
    used = settled(wanted, wanted.min or 1, wanted.max or 9, 100.0, lambda: CACHE_BOUND)
    (note,) = settings_notes(plan, {"llm": used})  # type: ignore[arg-type]
    assert note.startswith(f"llm: {words}")
