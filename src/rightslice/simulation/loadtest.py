"""A load test of one engine in simulation: what a benchmark client would report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rightslice.core.results import Distribution
from rightslice.simulation.layout import PASS_FINISH, PASS_SAMPLE, PASS_STAGES, PASS_START, Floats, Ints
from rightslice.simulation.play import play
from rightslice.simulation.scenario import ClosedPipeline, LlmServer, OpenClass, Scenario, StageLengths
from rightslice.simulation.statistics import Times, distribution

_END_S: Final = 100 * 86_400.0
_PS_PER_MS: Final = 1e9
_PS_PER_S: Final = 1e12


@dataclass(frozen=True, slots=True)
class Reported:
    """Distributions over all requests, tokens and requests per second from the first start to the last answer.

    `tpot_ms` is None when no answer has more than one token.
    """

    ttft_ms: Distribution
    tpot_ms: Distribution | None
    e2e_ms: Distribution
    output_tokens_per_s: float
    requests_per_s: float

    def later(self, milliseconds: float) -> Reported:
        """The same where every answer begins that much later for the client."""
        return replace(self, ttft_ms=_later(self.ttft_ms, milliseconds), e2e_ms=_later(self.e2e_ms, milliseconds))


def _later(found: Distribution, milliseconds: float) -> Distribution:
    mean, p50, p95, p99 = (value + milliseconds for value in (found.mean, found.p50, found.p95, found.p99))
    return Distribution(mean, p50, p95, p99)


def closed_test(server: LlmServer, lengths: StageLengths, in_flight: int, turn_round_s: float = 0.0) -> Reported | None:
    """`in_flight` clients send the requests of `lengths` one after the other, `turn_round_s` after each answer.

    With as many clients as requests all are handed over at once. None when the engine refuses a request.
    """
    clients = ClosedPipeline(
        name="test",
        users_name="test",
        stages=(server.model,),
        concurrent=in_flight,
        think_time_s=turn_round_s,
        ramp_up_s=0.0,
        hold_s=_END_S,
        ramp_down_s=0.0,
        lengths=(lengths,),
        requests=len(lengths.input_tokens),
    )
    rows = play(Scenario((server,), pipelines=(clients,), horizon_s=_END_S)).passes
    answers = np.asarray(lengths.output_tokens, dtype=np.int64)[rows[:, PASS_SAMPLE]]
    return _reported(rows[:, PASS_START], rows[:, PASS_STAGES + 1], rows[:, PASS_FINISH], answers)


def open_test(server: LlmServer, arrival_s: Floats, lengths: StageLengths) -> Reported | None:
    """Request i comes at `arrival_s[i]` (sorted), answered or not. None when the engine refuses a request."""
    from rightslice.traffic.arrivals import Arrivals  # noqa: PLC0415 - heavy, and of no use to closed tests

    arrival_ps = np.rint(arrival_s * _PS_PER_S).astype(np.int64)
    arrivals = Arrivals(
        arrival_ps, np.zeros(len(arrival_ps), dtype=np.int32), lengths.input_tokens, lengths.output_tokens
    )
    played = play(Scenario((server,), classes=(OpenClass(server.model, "test", arrivals),), horizon_s=_END_S))
    return _reported(arrival_ps, played.first_ps, played.finish_ps, np.asarray(lengths.output_tokens))


def _reported(start_ps: Ints, first_ps: Ints, finish_ps: Ints, answers: Ints) -> Reported | None:
    times = Times(start_ps, first_ps, finish_ps, answers, int(_END_S * _PS_PER_S))
    if not len(start_ps) or not times.completed.all():
        return None
    several = answers > 1
    ttft, e2e = (distribution(times.value_ps(metric)[0] / _PS_PER_MS) for metric in ("ttft", "e2e"))
    if ttft is None or e2e is None:
        return None
    span_s = float(finish_ps.max() - start_ps.min()) / _PS_PER_S
    return Reported(
        ttft_ms=ttft,
        tpot_ms=distribution(times.value_ps("tpot")[0][several] / _PS_PER_MS),
        e2e_ms=e2e,
        output_tokens_per_s=float(answers.sum()) / span_s,
        requests_per_s=len(start_ps) / span_s,
    )
