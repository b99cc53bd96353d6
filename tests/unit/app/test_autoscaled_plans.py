"""Autoscalers of a plan: the part of the day that is tried, and settings that stay as they are stated."""

from __future__ import annotations

import numpy as np
import pytest

from rightslice.app.autoscaling import LEAST_TRIAL_S, TRIAL_REQUESTS, busiest_part
from rightslice.app.scenarios import Load
from rightslice.core.errors import BadInputError
from rightslice.simulation.scenario import OpenClass
from rightslice.spec.loader import parse_workload
from rightslice.traffic.arrivals import DAY_S, Arrivals

WORKLOAD = """
apiVersion: rightslice/v1
kind: Workload
metadata: {name: day}
models:
  - name: llm
    source: meta-llama/Llama-3.1-8B-Instruct
    autoscaling: SCALING
    traffic: {rate: 4/s, input_tokens: 100, output_tokens: 100, slo: {ttft_p95: 4s}}
"""


def day(per_hour: list[int]) -> Load:
    """So many requests in each hour."""
    rng = np.random.default_rng(0)
    times = np.sort(np.concatenate([rng.uniform(h * 3600.0, (h + 1) * 3600.0, n) for h, n in enumerate(per_hour)]))
    n = len(times)
    arrivals = Arrivals(np.rint(times * 1e12).astype(np.int64), np.zeros(n, np.int32), np.full(n, 10), np.full(n, 10))
    return Load(frozenset({"llm"}), (OpenClass("llm", "all", arrivals),), (), DAY_S, 0)


def test_a_small_day_is_tried_whole() -> None:
    asked = day([1000] * 24)
    assert busiest_part(asked) is asked


@pytest.mark.parametrize("busy", [0, 12, 23])
def test_a_large_day_is_tried_around_its_busiest_hour(busy: int) -> None:
    hours = [20_000] * 24
    hours[busy] = 60_000
    part = busiest_part(day(hours))
    (found,) = part.classes
    times = found.arrivals.arrival_ps / 1e12
    assert part.horizon_s == max(LEAST_TRIAL_S, DAY_S * TRIAL_REQUESTS / sum(hours))
    assert times.min() >= 0.0
    assert times.max() < part.horizon_s
    assert len(times) > 60_000  # the busiest hour is within, whole


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ("vpa", "write kind: hpa"),
        ("perfect", "no autoscaler of kind perfect"),
        ("{kind: hpa, signal: held}", "no metric for held"),
        ("{kind: hpa, min: 0}", "at least one replica"),
        ("{kind: hpa, min: 5, max: 2}", "at least 5 replicas, at most 2"),
        ("{kind: keda, signal: kv_use}", "one per replica"),
        ("{kind: hpa, sginal: running}", "unknown key"),
        ("{kind: keda, min: 0}", "gateway: {flow_control: true}"),
        ("{kind: keda, min: 0}\n    gateway: {flow_control: false}", "nothing holds the request"),
        ("{kind: keda, min: 0, signal: waiting}\n    gateway: {}", "signal: in_flight"),
    ],
)
def test_what_cannot_be_emitted_is_a_mistake_with_its_place(scaling: str, words: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_workload(WORKLOAD.replace("SCALING", scaling), file="w.yaml")
    found = caught.value.diagnostics[0]
    assert words in found.message or words in found.hint or words in str(found.location)
    assert found.location is not None
    assert found.location.line == 8


@pytest.mark.parametrize("scaling", ["keda", "hpa"])
def test_zero_replicas_of_the_model_need_something_to_wake_them_too(scaling: str) -> None:
    text = WORKLOAD.replace("SCALING", f"{scaling}\n    min_replicas: 0")
    with pytest.raises(BadInputError) as caught:
        parse_workload(text, file="w.yaml")
    (found,) = caught.value.diagnostics
    assert found.location is not None
    assert found.location.line == 9


def test_a_gateway_that_holds_requests_lets_a_model_go_to_zero() -> None:
    for gateway in ("gateway: {}", "gateway: {flow_control: true}"):
        text = WORKLOAD.replace("SCALING", f"{{kind: keda, min: 0}}\n    {gateway}")
        assert parse_workload(text, file="w.yaml").workload.models[0].holds_requests
    text = WORKLOAD.replace("SCALING", "{kind: keda, min: 0}").replace("rate: 4/s", "rate: 4/s, priority: -1")
    assert parse_workload(text, file="w.yaml").workload.models[0].holds_requests  # it has one that sheds


def test_a_bare_kind_and_a_mapping_say_the_same() -> None:
    short = parse_workload(WORKLOAD.replace("SCALING", "hpa"), file="w").workload
    long = parse_workload(WORKLOAD.replace("SCALING", "{kind: hpa, share: 0.8}"), file="w").workload
    assert short.models[0].autoscaling == long.models[0].autoscaling
