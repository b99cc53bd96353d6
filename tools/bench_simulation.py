"""Requests per CPU second of the simulator, beside its plain reference and, where installed, a peer on the same input.

The input is W10k: the first 10,000 requests of the Azure 2023 conversation trace (prompts cut to 4,096 tokens), its
clock stretched twofold, one engine of 128 sequences, 512 tokens a step and 6,500 blocks of 16 tokens. Every step takes
20 ms, 40 ms more with prompts in it: constants that the peer knows too (`ai-dynamo-runtime`, if it is installed).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from rightslice.catalogue.disruptions import provisioners
from rightslice.performance.costs import StepCosts
from rightslice.simulation.cluster import control
from rightslice.simulation.cluster_spec import Cluster, Pool, Scaled
from rightslice.simulation.control.cold_start import StartRequest, cold_start
from rightslice.simulation.control.hpa_spec import HpaSpec, Metric
from rightslice.simulation.control.nodes import NodePool
from rightslice.simulation.control.policies import Hpa
from rightslice.simulation.inputs import open_requests
from rightslice.simulation.play import SteppedRun
from rightslice.simulation.run import simulate
from rightslice.simulation.scenario import LlmServer, OpenClass, Prefixes, Routing, Scenario
from rightslice.traffic.arrivals import Arrivals
from rightslice.traffic.traces import read_trace

ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT / "tests" / "data" / "traces" / "azure_llm_2023_conv_10000.csv.gz"
STRETCH = 2.0
STEP_MS, PREFILL_STEP_MS = 20, 40
KV_BLOCKS, BLOCK_TOKENS, MAX_SEQS, MAX_TOKENS = 6_500, 16, 128, 512
REPEATS = 7
STANDING, SLOTS = 4, 12


def engine(replicas: int, *, prefix_caching: bool = False) -> LlmServer:
    """Every step takes the same, with or without prompts."""
    none = np.zeros(MAX_TOKENS + 1, dtype=np.int64)
    costs = StepCosts(none, 0, 0, 0, STEP_MS * 10**9, PREFILL_STEP_MS * 10**9, 0.4, "first-principles")
    return LlmServer(
        "bench", "m", replicas, costs, KV_BLOCKS, BLOCK_TOKENS, MAX_SEQS, MAX_TOKENS, 8192,
        prefix_caching=prefix_caching,
    )  # fmt: skip


def w10k(repeats: int = 1) -> Scenario:
    """The trace, `repeats` times end to end."""
    trace = read_trace(TRACE)
    period_s = float(trace.arrival_s[-1]) * STRETCH + 1.0
    times_s = (np.arange(repeats)[:, None] * period_s + trace.arrival_s[None, :] * STRETCH).ravel()
    arrivals = Arrivals(
        np.rint(times_s * 1e12).astype(np.int64),
        np.zeros(len(times_s), dtype=np.int32),
        np.tile(np.minimum(trace.input_tokens, 4096), repeats),
        np.tile(trace.output_tokens, repeats),
    )
    return Scenario((engine(1),), (OpenClass("m", "all", arrivals),), (), period_s * repeats + 600.0)


def core_per_cpu_s(scenario: Scenario) -> float:
    """The event loop alone."""
    requests = open_requests(scenario)
    best = float("inf")
    for _ in range(REPEATS + 1):
        run = SteppedRun(scenario, requests)
        start = time.process_time()
        run.finish()
        best = min(best, time.process_time() - start)
    return len(requests.arrival_ps) / best


def whole_per_cpu_s(scenario: Scenario) -> float:
    """`simulate`: input arrays, event loop and statistics."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        result = simulate(scenario)
        best = min(best, time.process_time() - start)
    return result.requests / best


def reference_per_cpu_s(scenario: Scenario) -> float:
    """The plain reference of the tests, on the first 300 requests."""
    sys.path.insert(0, str(ROOT / "tests"))
    from simulation_reference import Reference  # noqa: PLC0415 - a module of the tests

    arrivals = scenario.classes[0].arrivals
    first = arrivals.where(np.arange(len(arrivals)) < 300)
    start = time.process_time()
    Reference(Scenario(scenario.servers, (OpenClass("m", "all", first),), (), 600.0)).play()
    return 300 / (time.process_time() - start)


def peer_per_cpu_s(scenario: Scenario) -> tuple[float, float] | None:
    """DynoSim's offline replay of the same requests and step times, and its mean end-to-end time in ms."""
    try:
        from dynamo._core import run_mocker_trace_replay  # noqa: PLC0415 - optional
    except ImportError:
        return None
    arrivals = scenario.classes[0].arrivals
    engine = {
        "backend": "vllm", "num_gpu_blocks": KV_BLOCKS, "block_size": BLOCK_TOKENS, "max_num_seqs": MAX_SEQS,
        "max_num_batched_tokens": MAX_TOKENS, "enable_prefix_caching": False, "enable_chunked_prefill": True,
        "timing_model": {"type": "fixed", "prefill_ms": float(PREFILL_STEP_MS), "decode_ms": float(STEP_MS)},
    }  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        block = 0
        columns = (arrivals.arrival_ps // 10**9, arrivals.input_tokens, arrivals.output_tokens)
        for when_ms, prompt, answer in zip(*(column.tolist() for column in columns), strict=True):
            ids = list(range(block, block - -prompt // 512))
            block += len(ids)
            row = {"timestamp": when_ms, "input_length": prompt, "output_length": answer, "hash_ids": ids}
            file.write(json.dumps(row) + "\n")
        file.flush()
        start = time.process_time()
        result = run_mocker_trace_replay([file.name], extra_engine_args={"engine": engine}, trace_block_size=512)
        spent_s = time.process_time() - start
    return len(arrivals) / spent_s, float(result.summary["mean_e2e_latency_ms"])


def fleet_per_cpu_s() -> tuple[float, float]:
    """Requests per CPU second of a run, and with the arrays that all runs of a scenario share made anew.

    Up to eight replicas with prefix caches behind a router that weighs queue, KV use and prefix, under an HPA.

    W10k eight times over, eightfold faster: about an hour. Every prompt starts with one of 997 texts, 1,024 tokens
    known of the longest. Each replica that does not stand at the start waits for a node of its own, the image, its
    weights and the engine, all drawn from the catalogue.
    """
    one = w10k(8)
    traffic = one.classes[0]
    arrivals, count = traffic.arrivals, len(traffic.arrivals)
    faster = Arrivals(arrivals.arrival_ps // 8, arrivals.class_index, arrivals.input_tokens, arrivals.output_tokens)
    ids = (np.arange(count)[:, None] % 997 * 64 + np.arange(64)[None, :]).ravel()
    prefixes = Prefixes(BLOCK_TOKENS, np.arange(count + 1) * 64, ids)
    routing = {"m": Routing("score", 1.0, 1.0, 0.5, signal_age_s=0.05)}
    shared = replace(traffic, arrivals=faster, prefixes=prefixes)
    servers = (engine(SLOTS, prefix_caching=True),)
    scenario = replace(one, servers=servers, classes=(shared,), horizon_s=one.horizon_s / 8, routing=routing)
    best = whole = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        requests = open_requests(scenario)
        ready = time.process_time()
        run, log = control(scenario, scaled_fleet(), SteppedRun(scenario, requests))
        run.finish()
        end = time.process_time()
        best, whole = min(best, end - ready), min(whole, end - start)
    if max(moment.ready for moment in log.timeline) <= STANDING:
        raise RuntimeError("no replica was started")
    return count / best, count / whole


def scaled_fleet() -> Cluster:
    """Four to eight replicas on nodes of one GPU; new ones start cold."""
    start = cold_start(StartRequest("gke", "vllm", 16e9))
    policy = Hpa(HpaSpec(8, (Metric("in-flight", "External", 18.0),), STANDING), {"in-flight": "in_flight"})
    nodes = NodePool("p", {"nvidia.com/gpu": 1}, start.node_s, max_nodes=8)
    pool = Pool(nodes, STANDING, 1, provisioners()["cluster-autoscaler"], 1.0)
    return Cluster((pool,), (Scaled("bench", "m", "p", "nvidia.com/gpu", 1, STANDING, policy, start),))


def million() -> None:
    """For a child process: simulate a million requests; prints CPU seconds of the loop and the peak memory in MB."""
    scenario = w10k(100)
    speed = core_of_one_run(scenario)
    print(json.dumps([speed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def core_of_one_run(scenario: Scenario) -> float:
    """Requests per CPU second of one run, compiled code loaded before."""
    simulate(Scenario((), horizon_s=1.0))
    requests = open_requests(scenario)
    run = SteppedRun(scenario, requests)
    start = time.process_time()
    run.finish()
    return len(requests.arrival_ps) / (time.process_time() - start)


def measured() -> dict[str, float]:
    """Every figure; those of an absent peer are left out."""
    scenario = w10k()
    found = {
        "core": core_per_cpu_s(scenario),
        "simulate": whole_per_cpu_s(scenario),
        "reference": reference_per_cpu_s(scenario),
    }
    found["fleet"], found["fleet_whole"] = fleet_per_cpu_s()
    e2e_ms = simulate(scenario).per_class[0].e2e_ms
    if e2e_ms is not None:
        found["mean_e2e_ms"] = e2e_ms.mean
    peer = peer_per_cpu_s(scenario)
    if peer is not None:
        found["dynosim"], found["dynosim_mean_e2e_ms"] = peer
    child = [sys.executable, __file__, "--million"]
    output = subprocess.run(child, check=True, capture_output=True, text=True).stdout  # noqa: S603
    found["million_core"], found["million_mb"] = json.loads(output)
    return found


if __name__ == "__main__":
    if "--million" in sys.argv:
        million()
    else:
        for name, value in measured().items():
            print(f"{name:<22} {value:>14,.0f}")
