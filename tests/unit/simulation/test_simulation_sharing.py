"""Replicas on one GPU: who slows whom down, from when on, and the published cases."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.datafiles import read_json
from rightslice.catalogue.models import resolve_model
from rightslice.catalogue.stages import stage_profiles
from rightslice.core.engine import EngineSettings
from rightslice.performance.costs import PS_PER_S, StageCosts, StepCosts
from rightslice.performance.laws import step_costs
from rightslice.performance.sharing import Mode, Tenant, from_rates, mig, mps, time_sliced
from rightslice.simulation import (
    ClosedPipeline,
    LlmServer,
    OpenClass,
    Scenario,
    ShareGroup,
    StageLengths,
    StageServer,
    simulate,
)
from rightslice.simulation.play import SteppedRun, play
from simulation_cases import arrivals

FULL = Tenant(1.0, 1.0)
DATA = read_json("sharing.json")


def tool() -> ModuleType:
    path = Path(__file__).parents[3] / "tools" / "fit_sharing.py"
    spec = importlib.util.spec_from_file_location("fit_sharing", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL: Any = tool()


def stage(name: str, latency_ps: int, streams: int = 1) -> StageServer:
    table = np.concatenate([[0], np.full(streams, latency_ps)])
    return StageServer(name, name, 1, StageCosts(table, 0.2, "measured"))


def together(
    mode: Mode, *servers: LlmServer | StageServer, tenant: Tenant = FULL, thread_share: float = 1.0
) -> ShareGroup:
    members = tuple((server.deployment, 0) for server in servers)
    return ShareGroup(mode, members, (tenant,) * len(members), thread_share)


def asked(model: str, *times: int) -> OpenClass:
    return OpenClass(model, "c", arrivals(list(times), [1] * len(times), [4] * len(times)))


def finished(scenario: Scenario) -> list[int]:
    return [int(ps) for ps in play(scenario).finish_ps]


def test_a_service_goes_on_at_the_speed_that_the_neighbour_leaves() -> None:
    """1,000 ps of work: 400 alone, 666 beside the other at 1 / 2.22, the last 300 alone again."""
    first, second = stage("a", 1_000), stage("b", 300)
    scenario = Scenario((first, second), (asked("a", 0), asked("b", 400)), horizon_s=1e-6)
    assert finished(scenario) == [1_000, 700]
    assert round(1_000 * time_sliced(FULL, [FULL])) == 2_220
    shared = replace(scenario, sharing=(together("time-slicing", first, second),))
    assert finished(shared) == [400 + 666 + 300, 400 + 666]


def test_a_step_under_way_keeps_its_time_and_the_next_one_does_not() -> None:
    """Steps of 1,000 ps; the neighbour is there from 1,500 to 5,495 ps, 1,800 ps of work alone."""
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, 1_000, 0, 0.4, "first-principles")
    engine, other = LlmServer("a", "a", 1, costs, 100, 4, 8, 64, 1_000), stage("b", 1_800)
    scenario = Scenario((engine, other), (asked("a", 0), asked("b", 1_500)), horizon_s=1e-6)
    shared = replace(scenario, sharing=(together("time-slicing", engine, other),))
    assert finished(shared) == [2_000 + 2 * 2_220, 1_500 + 3_996]


def test_the_end_of_a_step_and_the_neighbours_first_request_at_one_instant() -> None:
    costs = StepCosts(np.zeros(65, dtype=np.int64), 0, 0, 0, 1_000, 0, 0.4, "first-principles")
    engine, other = LlmServer("a", "a", 1, costs, 100, 4, 8, 64, 1_000), stage("b", 10_000)
    scenario = Scenario((engine, other), (asked("a", 0), asked("b", 2_000)), horizon_s=1e-6)
    shared = replace(scenario, sharing=(together("time-slicing", engine, other),))
    assert finished(shared)[0] == 2_000 + 2 * 2_220


def test_a_batch_under_way_keeps_its_time_and_the_next_one_does_not() -> None:
    first, second = replace(stage("a", 1_000, 2), batch_delay_s=0.0), stage("b", 1_800)
    scenario = Scenario((first, second), (asked("a", 0, 100), asked("b", 500)), horizon_s=1e-6)
    shared = replace(scenario, sharing=(together("time-slicing", first, second),))
    done = finished(shared)
    assert done[0] == 1_000
    assert done[1] == 1_000 + 2_220


def test_a_replica_that_is_gone_leaves_the_gpu_to_the_others() -> None:
    first, second = stage("a", 1_000), stage("b", 10_000)
    scenario = Scenario((first, second), (asked("a", 0), asked("b", 0)), horizon_s=1e-6)
    run = SteppedRun(replace(scenario, sharing=(together("time-slicing", first, second),)))
    run.advance(1_110 / PS_PER_S)
    run.order(1, "gone")
    assert int(run.finish().finish_ps[0]) == 1_110 + 500


def test_an_order_and_a_neighbour_multiply() -> None:
    first, second = stage("a", 1_000), stage("b", 10_000)
    scenario = Scenario((first, second), (asked("a", 0), asked("b", 0)), horizon_s=1e-6)
    run = SteppedRun(replace(scenario, sharing=(together("time-slicing", first, second),)))
    run.slow_down(0, 2.0)
    assert int(run.finish().finish_ps[0]) == 4_440


def test_requests_that_waited_too_long_keep_nobody_busy() -> None:
    """The server of b is not there when its request's time is over; a has the GPU for itself again."""
    first, second = stage("a", 1_000), stage("b", 600)
    late = replace(asked("b", 0, 100, 1_300), timeout_s=500 / PS_PER_S)
    scenario = Scenario((first, second), (asked("a", 2_000), late), horizon_s=1e-6)
    shared = replace(scenario, sharing=(together("time-slicing", first, second),))
    assert finished(shared)[3] == 3_000


def test_under_mps_the_limit_of_threads_holds_without_neighbours() -> None:
    only = stage("a", 1_000)
    scenario = Scenario((only,), (asked("a", 0),), horizon_s=1e-6)
    half = Tenant(1.0, 0.4)
    assert finished(replace(scenario, sharing=(together("mps", only, tenant=half),))) == [1_000]
    limited = replace(scenario, sharing=(together("mps", only, tenant=half, thread_share=0.5),))
    assert finished(limited) == [1_400]
    assert mps(half, [], 0.5) == pytest.approx(1.4)


def test_a_group_names_replicas_that_exist_and_each_once() -> None:
    first, second = stage("a", 1_000), stage("b", 300)
    group = together("mps", first, second)
    for wrong in ((group, group), (replace(group, members=(("a", 0), ("b", 1))),)):
        with pytest.raises(ValueError, match="a replica shares one GPU, and exists"):
            Scenario((first, second), sharing=wrong)
    with pytest.raises(ValueError, match="every member once"):
        ShareGroup("mps", (("a", 0), ("a", 0)), (FULL, FULL))
    with pytest.raises(ValueError, match="at most 8"):
        ShareGroup("mps", tuple(("a", k) for k in range(9)), (FULL,) * 9)


# --- published cases ---------------------------------------------------------------------------------------------


def users(model: str, concurrent: int, hold_s: float, lengths: StageLengths | None = None) -> ClosedPipeline:
    """A saturating loop whose users start one after the other within a hundredth of it."""
    return ClosedPipeline(model, "u", (model,), concurrent, 0.0, hold_s / 100, hold_s, 0.0, lengths=(lengths,))


@pytest.mark.parametrize("mode", ["time-slicing", "mps"])
def test_yolos_in_a_loop_beside_its_like(mode: Mode) -> None:
    """Mean time per inference at 1, 3, 5 and 7 pods on one A100, within 1 %."""
    case = DATA["fitted_on"]
    alone_ms = (case["time_slicing_ms"][0] + case["mps_ms"][0]) / 2.0
    tenant = Tenant(1.0, DATA["fit"]["yolos_small_bound"])
    for pods, measured_ms in zip(case["pods"], case[f"{mode.replace('-', '_')}_ms"], strict=True):
        servers = tuple(stage(f"pod{k}", round(alone_ms * 1e9)) for k in range(pods))
        group = together(mode, *servers, tenant=tenant)
        loops = tuple(users(server.model, 1, 60.0) for server in servers)
        result = simulate(Scenario(servers, (), loops, 60.0, sharing=(group,)))
        means = [found.e2e_ms.mean for found in result.pipelines if found.e2e_ms]
        assert len(means) == pods
        assert means == pytest.approx([measured_ms] * pods, rel=0.01)


def test_two_slices_serve_what_two_gpus_would_where_the_model_does_not_fill_one() -> None:
    """Parakeet on an H100: 90.9 requests/s on two 3g.40gb slices, 44.4 on the whole GPU; within 10 %."""
    case = DATA["checked_on"]["parakeet"]
    whole, part = device(case["accelerator"]), device(case["accelerator"], case["slice"])
    rate, streams = case["whole_requests_per_s"], 8
    frames = case["audio_s"] / case["frame_s"]
    weights = case["parameters"] * case["bytes_per_parameter"]
    tenant = from_rates(whole, 2.0 * case["parameters"] * frames * rate, weights * rate, busy=1.0)
    latency = np.arange(streams + 1) / rate * PS_PER_S
    alone = StageServer("asr", "asr", 1, StageCosts(np.rint(latency).astype(np.int64), 0.2, "measured"))
    sliced = replace(alone, replicas=2, costs=alone.costs.scaled(mig(tenant, part)))

    def served(server: StageServer) -> float:
        loop = users("asr", streams * server.replicas, 60.0)
        return simulate(Scenario((server,), (), (loop,), 60.0)).pipelines[0].requests_per_s

    assert served(alone) == pytest.approx(rate, rel=0.01)
    assert served(sliced) == pytest.approx(case["two_slices_requests_per_s"], rel=0.10)


@pytest.mark.parametrize("batches", [False, True])
def test_a_speech_server_is_as_fast_on_a_slice_as_on_the_whole_gpu(batches: bool) -> None:
    """Parakeet on 60 of an H100's 132 SMs beside an idle slice, 1 to 16 requests at once: within 15 % of measured.

    Only the whole GPU's curve and its arithmetic go in. Requests that share the server and batches of all that wait.
    """
    whole, part = (
        next(
            p for p in stage_profiles() if (p.model, p.partition, p.mode) == ("parakeet-ctc-1.1b", partition, "offline")
        )
        for partition in ("whole", "3g.40gb")
    )
    rate = max(point.requests_per_s or 0.0 for point in whole.points)
    case, seen = DATA["checked_on"]["parakeet"], device(whole.accelerator)
    frames = case["audio_s"] / case["frame_s"]
    tenant = from_rates(seen, 2.0 * case["parameters"] * frames * rate, 0.0, busy=1.0)
    streams = [point.streams for point in whole.points]
    curve_ms = np.interp(range(1, streams[-1] + 1), streams, [point.latency_mean_ms or 0.0 for point in whole.points])
    table = np.concatenate([[0], np.rint(curve_ms * 1e9)]).astype(np.int64)
    factor = mig(tenant, device(whole.accelerator, part.partition))
    costs = StageCosts(table, 0.2, "measured").scaled(factor)
    server = StageServer("asr", "asr", 1, costs, 0.0 if batches else None)
    for point in part.points:
        loop = ClosedPipeline("asr", "u", ("asr",), point.streams, 0.0, 0.0, 60.0, 0.0)
        found = simulate(Scenario((server,), (), (loop,), 60.0)).pipelines[0]
        assert found.e2e_ms is not None
        assert found.e2e_ms.mean == pytest.approx(point.latency_mean_ms, rel=0.15)


def test_time_slicing_beats_mig_for_a_language_model_beside_embeddings() -> None:
    """The H200 case in its order: 22,203 against 15,042 tokens/s, 48 % more; each rate within 15 %."""
    case = DATA["checked_on"]["llm_beside_embedding"]
    name, llm, embedding = case["accelerator"], case["llm"], case["embedding"]
    settings = EngineSettings(weight_dtype="fp8", max_num_seqs=512, max_num_batched_tokens=8192)
    costs = step_costs(resolve_model("Qwen/Qwen3-30B-A3B-FP8"), device(name), settings, typical_tokens=286)
    lengths = StageLengths(np.array([30]), np.array([512]))
    per_s = embedding["alone_sequences_per_s"]
    flop_per_s = 2.0 * embedding["parameters"] * embedding["tokens_per_sequence"] * per_s
    tenants = (TOOL.llm_tenant(case), from_rates(device(name), flop_per_s, 0.0, overlaps=True))

    def rates(llm_factor: float, embedding_factor: float, sharing: tuple[ShareGroup, ...] = ()) -> tuple[float, float]:
        engine = LlmServer("llm", "llm", 1, costs.scaled(llm_factor), 60_000, 16, 512, 8192, 4096)
        beside = StageServer("emb", "emb", 1, stage("emb", round(16 / per_s * PS_PER_S), 16).costs)
        beside = replace(beside, costs=beside.costs.scaled(embedding_factor))
        loops = (users("llm", 512, 1_200.0, lengths), users("emb", 16, 1_200.0))
        found = simulate(Scenario((engine, beside), (), loops, 1_200.0, sharing=sharing)).pipelines
        return found[0].requests_per_s * 512, found[1].requests_per_s

    lone = 1.0
    for _ in range(3):  # the lone profile is given: scale the law to it
        lone *= rates(lone, 1.0)[0] / llm["alone_tokens_per_s"]
    group = ShareGroup("time-slicing", (("llm", 0), ("emb", 0)), tenants)
    sliced = rates(lone, 1.0, (group,))
    parts = device(name, case["slice"]), device(name, embedding["mig_slice"])
    cut = rates(lone * mig(tenants[0], parts[0]), mig(tenants[1], parts[1]))
    assert sliced[0] == pytest.approx(llm["time_slicing_tokens_per_s"], rel=0.15)
    assert sliced[1] == pytest.approx(embedding["time_slicing_sequences_per_s"], rel=0.10)
    assert cut[0] == pytest.approx(llm["mig_tokens_per_s"], rel=0.15)
    assert cut[1] == pytest.approx(embedding["mig_sequences_per_s"], rel=0.10)
    assert sliced[0] / cut[0] == pytest.approx(1.48, rel=0.15)
