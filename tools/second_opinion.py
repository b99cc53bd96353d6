"""The simulator beside DynoSim on the bundled traces: same requests, same step times, one replica.

Needs `ai-dynamo-runtime` beside rightslice: pip install --no-deps --target DIR ai-dynamo-runtime, and PYTHONPATH=DIR.
Prints how far the ends of both runs and their mean latencies are apart; exit code 1 where the ends differ by over 1 %.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from rightslice.simulation.inputs import open_requests
from rightslice.simulation.play import SteppedRun
from rightslice.simulation.scenario import LlmServer, OpenClass, Prefixes, Scenario
from rightslice.traffic.arrivals import Arrivals
from rightslice.traffic.recorded import Trace
from rightslice.traffic.traces import read_trace

TRACES = Path(__file__).resolve().parent.parent / "tests" / "data" / "traces"
BARS = {"makespan_s": 0.01}
STEP_MS, PREFILL_STEP_MS, BLOCK = 20.0, 40.0, 16
Figures = dict[str, float]


def cases() -> Iterator[tuple[str, Trace, LlmServer]]:
    """Name, requests and engine: short and long prompts, a cache that is too small, prompts in common."""
    from bench_simulation import engine  # noqa: PLC0415 - a neighbour

    short = replace(engine(1), max_model_len=32_768)
    costs = replace(short.costs, tokens_ps=np.zeros(8193, dtype=np.int64))
    long = replace(short, costs=costs, kv_blocks=20_000, max_num_batched_tokens=8192, max_model_len=200_000)
    conversation = read_trace(TRACES / "azure_llm_2023_conv_10000.csv.gz")
    yield "Azure conversation", slower(conversation, 2.0), short
    yield "Azure conversation, half the cache", slower(conversation, 2.0), replace(short, kv_blocks=3_250)
    yield "Azure code", slower(read_trace(TRACES / "azure_llm_2023_code_head.csv"), 4.0), short
    mooncake = slower(read_trace(TRACES / "mooncake_fast25_conversation_head.jsonl"), 8.0)
    yield "Mooncake conversation, no prefix cache", mooncake, long
    yield "Mooncake conversation, prefix cache", mooncake, replace(long, prefix_caching=True)


def slower(trace: Trace, factor: float) -> Trace:
    """The trace on whole milliseconds, which are all that the peer reads."""
    return replace(trace, arrival_s=np.floor(trace.arrival_s * factor * 1e3) / 1e3)


def ours(trace: Trace, server: LlmServer) -> Figures:
    """End of the run and means."""
    n = len(trace)
    arrival_ps = np.rint(trace.arrival_s * 1e12).astype(np.int64)
    arrivals = Arrivals(arrival_ps, np.zeros(n, dtype=np.int32), trace.input_tokens, trace.output_tokens)
    blocks = trace.prefix
    shared = Prefixes(blocks.block_tokens, blocks.offsets, blocks.ids) if blocks and server.prefix_caching else None
    horizon_s = float(trace.arrival_s[-1]) + 100_000.0
    scenario = Scenario((server,), (OpenClass("m", "all", arrivals, prefixes=shared),), (), horizon_s)
    played = SteppedRun(scenario, open_requests(scenario)).finish()
    first_s, end_s = played.first_ps / 1e12, played.finish_ps / 1e12
    return {
        "completed": float((played.finish_ps > 0).sum()),
        "makespan_s": float(end_s.max()),
        "ttft_ms": float((first_s - trace.arrival_s).mean() * 1e3),
        "e2e_ms": float((end_s - trace.arrival_s).mean() * 1e3),
    }


def theirs(trace: Trace, server: LlmServer) -> Figures:
    """The same from DynoSim."""
    from dynamo._core import run_mocker_trace_replay  # noqa: PLC0415 - optional

    size = trace.prefix.block_tokens if trace.prefix else 512
    engine = {
        "backend": "vllm", "num_gpu_blocks": server.kv_blocks, "block_size": BLOCK,
        "max_num_seqs": server.max_num_seqs, "max_num_batched_tokens": server.max_num_batched_tokens,
        "enable_prefix_caching": server.prefix_caching, "enable_chunked_prefill": True,
        "timing_model": {"type": "fixed", "prefill_ms": PREFILL_STEP_MS, "decode_ms": STEP_MS},
    }  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for row in rows(trace, size):
            file.write(json.dumps(row) + "\n")
        file.flush()
        found = run_mocker_trace_replay(
            [file.name], extra_engine_args={"engine": engine}, trace_block_size=size
        ).summary
    return {
        "completed": float(found["completed_requests"]),
        "makespan_s": found["duration_ms"] / 1e3,
        "ttft_ms": found["mean_ttft_ms"],
        "e2e_ms": found["mean_e2e_latency_ms"],
    }


def rows(trace: Trace, size: int) -> Iterator[dict[str, object]]:
    """The trace in the peer's format; prompts have no block in common unless the trace says so."""
    fresh = 10**9
    for number in range(len(trace)):
        prompt = int(trace.input_tokens[number])
        count = -(-prompt // size)
        ids = [int(block) for block in trace.prefix.of(number)][:count] if trace.prefix else []
        ids += list(range(fresh, fresh + count - len(ids)))
        fresh += count
        yield {
            "timestamp": round(float(trace.arrival_s[number]) * 1e3),
            "input_length": prompt,
            "output_length": int(trace.output_tokens[number]),
            "hash_ids": ids,
        }


def main() -> int:
    """Print the table."""
    if find_spec("dynamo") is None:
        print(
            "ai-dynamo-runtime is not installed: pip install --no-deps --target DIR ai-dynamo-runtime, PYTHONPATH=DIR"
        )
        return 2
    apart = 0
    print(f"{'':<40}{'ours':>12}{'DynoSim':>12}{'apart':>9}")
    for name, trace, server in cases():
        own, other = ours(trace, server), theirs(trace, server)
        for key, value in own.items():
            difference = value / other[key] - 1.0
            apart += abs(difference) > BARS.get(key, float("inf"))
            print(f"{name + ': ' + key:<52}{value:>12,.1f}{other[key]:>12,.1f}{difference:>9.2%}")
    return int(apart > 0)


if __name__ == "__main__":
    sys.exit(main())
