"""PromQL as far as rules look at it, and the catalogue of metrics."""

from __future__ import annotations

import pytest

from rightslice.kube.lint.metrics import metric, metrics, unknown
from rightslice.kube.lint.promql import Use, averages, divides_by_count, uses

UTIL = "DCGM_FI_DEV_GPU_UTIL"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"{UTIL} > 90", (UTIL, (), (">", 90.0))),
        (f"rate({UTIL}[15m]) > 0.85", (UTIL, ("rate",), (">", 0.85))),
        (f'avg by (pod) (avg_over_time({UTIL}{{a="b)"}}[5m])) < 0.2', (UTIL, ("avg", "avg_over_time"), ("<", 0.2))),
        (f"avg({UTIL}) without (x) > bool 3", (UTIL, ("avg",), (">", 3.0))),
        (f"{UTIL} * 2 > 3", (UTIL, (), None)),
        (f"100 - {UTIL} > 3", (UTIL, (), None)),
        (f"{UTIL} > -1", (UTIL, (), (">", -1.0))),
        (f"{UTIL} offset 5m > 4", (UTIL, (), (">", 4.0))),
        (f"{UTIL} > {UTIL}:limit", (UTIL, (), None)),
        (f'{{__name__="{UTIL}"}} > 3', (UTIL, (), (">", 3.0))),
    ],
)
def test_uses(query: str, expected: tuple[str, tuple[str, ...], tuple[str, float] | None]) -> None:
    assert uses(query)[0] == Use(*expected)


def test_every_series_of_a_query_is_seen() -> None:
    query = "sum(vllm:num_requests_running{a='b'}) / on(x) group_left() count(kube_pod_info) or vector(0)"
    assert [use.name for use in uses(query)] == ["vllm:num_requests_running", "kube_pod_info"]
    quantile = "histogram_quantile(0.95, sum(rate(vllm:time_to_first_token_seconds_bucket[5m])) by (le)) > 2"
    assert uses(quantile)[0].compared == (">", 2.0)


def test_means_over_pods() -> None:
    assert averages("avg(vllm:num_requests_running)")
    assert not averages("avg by (pod) (vllm:num_requests_running)")
    assert not averages("avg(a) + avg(b)")
    assert divides_by_count("sum(a) / count(kube_pod_info{b='c'})") == "count(kube_pod_info)"
    assert divides_by_count("sum(a) / sum(b)") == ""
    assert divides_by_count("sum(a / count(b))") == ""


def test_names_of_series_lead_to_metrics() -> None:
    for name in ("vllm:time_to_first_token_seconds_bucket", "vllm_time_to_first_token_seconds"):
        known = metric(name)
        assert known is not None
        assert (known.type, known.unit) == ("histogram", "seconds")
    managed = metric("prometheus.googleapis.com|vllm:num_requests_waiting|gauge")
    assert managed is metrics()["vllm:num_requests_waiting"]
    assert unknown("vllm:request_queue_depth") == "vllm:num_requests_waiting"
    assert unknown("DCGM_FI_DEV_GPU_UTILL") == UTIL
    assert unknown("DCGM_FI_DEV_SOMETHING_NEW") is None
    assert unknown("my_own_metric") is None


def test_names_follow_versions() -> None:
    old = metrics()["vllm:gpu_cache_usage_perc"]
    assert old.exists("0.8.5")
    assert not old.exists("0.12.0")
    assert old.instead == "vllm:kv_cache_usage_perc"
    assert not metrics()["vllm:kv_cache_usage_perc"].exists("0.8.0")
