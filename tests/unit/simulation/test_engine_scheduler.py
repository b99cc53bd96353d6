"""The scheduler against recorded decisions of vLLM's own (tests/oracle records them)."""

from __future__ import annotations

import json

import pytest

from engine_scheduler import ANSWERS, COUNT, KEPT_EVERY, Recording, scenario_of, unpacked, workload
from rightslice.simulation.play import play

RECORDED = json.loads(ANSWERS.read_text())
SEEDS = range(0, COUNT, KEPT_EVERY)


@pytest.mark.parametrize("at", range(len(SEEDS)))
def test_iterations_are_vllms(at: int) -> None:
    """Tokens of every request, batch, preempted and finished requests, iteration by iteration; the compiled loop
    gives every request the times that follow from them."""
    scenario = scenario_of(workload(SEEDS[at]))
    reference = Recording(scenario)
    reference.play()
    assert reference.iterations == unpacked(RECORDED["workloads"][at])
    played = play(scenario)
    assert played.first_ps.tolist() == [job.first_ps for job in reference.jobs]
    assert played.finish_ps.tolist() == [job.finish_ps for job in reference.jobs]
    assert played.hit_tokens.tolist() == [job.hit_tokens for job in reference.jobs]
    assert played.totals.tolist() == [replica.totals for replica in reference.replicas]


def test_the_recorded_workloads_hold_every_rule() -> None:
    asked = [workload(seed) for seed in SEEDS]
    iterations = [iteration for answer in RECORDED["workloads"] for iteration in unpacked(answer)]
    assert RECORDED["vllm"] == "0.32.0"
    assert len(RECORDED["workloads"]) == len(asked)
    assert sum(bool(preempted) for _, preempted, _ in iterations) > 150
    assert {one["policy"] for one in asked} == {"fcfs", "priority"}
    assert {one["chunked_prefill"] for one in asked} == {one["prefix_caching"] for one in asked} == {True, False}
    hits = sum(job.hit_tokens > 0 for one in asked for job in _played(one).jobs)
    assert hits > 200


def _played(asked: dict[str, object]) -> Recording:
    recording = Recording(scenario_of(asked))
    recording.play()
    return recording
