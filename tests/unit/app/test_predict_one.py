"""One deployment under one load."""

from __future__ import annotations

import json

import pytest

from rightslice.app.predict import Load
from rightslice.app.predict_one import Asked, predict_one
from rightslice.core.documents import to_json
from rightslice.core.errors import BadInputError, InfeasibleError

H100 = Asked("Llama-3.1-8B", "H100-SXM-80GB")


def test_an_offered_rate_is_not_taken_for_a_capacity() -> None:
    answers = [predict_one(H100, Load("open", rate_per_s=rate), 1000, 300).prediction for rate in (5.0, 500.0)]
    assert answers[0].requests_per_s.mean == pytest.approx(5.0, rel=0.15)
    assert answers[1].requests_per_s.mean < 100.0
    assert answers[1].ttft_ms.mean > 10 * answers[0].ttft_ms.mean


def test_more_replicas_carry_more() -> None:
    one, two = (
        predict_one(Asked("Llama-3.1-8B", "H100-SXM-80GB", n), Load("saturated"), 512, 128).prediction for n in (1, 2)
    )
    assert two.output_tokens_per_s.mean == pytest.approx(2 * one.output_tokens_per_s.mean)
    assert two.tpot_ms == one.tpot_ms


def test_fewer_requests_than_replicas_leave_some_idle() -> None:
    eight = predict_one(Asked("Llama-3.1-8B", "H100-SXM-80GB", 8), Load("closed", requests=2), 512, 128).prediction
    one = predict_one(H100, Load("closed", requests=1), 512, 128).prediction
    assert eight.output_tokens_per_s.mean == pytest.approx(2 * one.output_tokens_per_s.mean)


def test_littles_law() -> None:
    found = predict_one(H100, Load("closed", requests=16), 512, 128).prediction
    assert found.requests_per_s.mean * found.e2e_ms.mean / 1e3 == pytest.approx(16, rel=0.1)


def test_the_document_holds_the_metrics_and_the_model_that_was_asked() -> None:
    answer = predict_one(H100, Load("closed", requests=4), 512, 128)
    document = json.loads(to_json(answer.document()))
    assert "Llama-3.1-8B" in document["model"]
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "output_tokens_per_s", "requests_per_s"):
        assert {"mean", "p50", "p95", "p99", "low", "high", "provenance"} <= set(document[name])


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (Asked("Llama-3.1-405B", "L4"), InfeasibleError),
        (Asked("Llama-3.1-8B", "H100-SXM-80GB", engine="vlm"), BadInputError),
        (Asked("Llama-3.1-8B", "H100-SXM-80GB", tensor_parallel_size=3), BadInputError),
        (Asked("Llama-3.1-8B", "H100-SXM-80GB", 3, tensor_parallel_size=2), BadInputError),
        (Asked("Llama-3.1-8B", "H1000"), BadInputError),
        (Asked("BAAI/bge-base-en-v1.5", "L4"), BadInputError),
    ],
)
def test_what_cannot_be(asked: Asked, error: type[Exception]) -> None:
    with pytest.raises(error):
        predict_one(asked, Load("closed", requests=1), 128, 32)
