"""CPU seconds and rates of the main paths, beside what peers needed, into build/bench.json.

Peers were measured once on a 2-core machine of this kind (2026-11-30): Vidur (GitHub main 2024-11), BLIS 2026-08 and
DynoSim 1.6.1 on the first 10,000 rows of the Azure 2023 conversation trace, and AIConfigurator 0.12 for a plan. Ours is
measured now, in fresh processes where start-up counts.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.models import resolve_model
from rightslice.core.engine import EngineSettings
from rightslice.core.rng import generator
from rightslice.performance.laws import step_costs
from rightslice.simulation.run import simulate
from rightslice.simulation.scenario import LlmServer, OpenClass, Scenario
from rightslice.traffic.arrivals import Arrivals
from rightslice.traffic.lengths import lengths

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
REPEATS = 3


def child_cpu_s(*command: str) -> float:
    """User + system CPU seconds of one command, best of REPEATS after a warm-up."""
    times = []
    for _ in range(REPEATS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times[1:])


def simulated_requests_per_cpu_s() -> float:
    """One A100-like replica on 10,000 requests with the Azure trace's lengths and mean rate."""
    count, rate_per_s = 10_000, 2.8
    rng = generator(0, "bench")
    times = np.sort(rng.uniform(0.0, count / rate_per_s, count))
    arrivals = Arrivals(
        np.rint(times * 1e12).astype(np.int64),
        np.zeros(count, dtype=np.int32),
        lengths(1154.7, 4083, rng, count, 4096, "input"),
        lengths(211.1, 451, rng, count, 1000, "output"),
    )
    settings = EngineSettings(max_num_batched_tokens=512, max_num_seqs=128, max_model_len=8192)
    costs = step_costs(
        resolve_model("meta-llama/Llama-2-7b-hf"), device("A100-SXM-80GB"), settings, typical_tokens=1366
    )
    server = LlmServer("bench", "m", 1, costs, 6500, 16, 128, 512, 8192)
    scenario = Scenario((server,), (OpenClass("m", "all", arrivals),), (), count / rate_per_s)
    simulate(scenario)
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        simulate(scenario)
        best = min(best, time.process_time() - start)
    return count / best


def row(name: str, ours: float, peer: float | None, unit: str) -> dict[str, object]:
    """One line of the report; ratio > 1 is better than the peer."""
    better = None if peer is None else (peer / ours if unit.endswith("s") and "/" not in unit else ours / peer)
    return {"name": name, "ours": round(ours, 4), "peer": peer, "ratio": better and round(better, 2), "unit": unit}


def main() -> None:
    """Measure, print and write."""
    rightslice = str(BIN / "rightslice")
    voice = "examples/voice-assistant.yaml"
    speed = simulated_requests_per_cpu_s()
    rows = [
        row("rightslice --help", child_cpu_s(rightslice, "--help"), None, "CPU s"),
        row("plan the voice example, verified", child_cpu_s(rightslice, "plan", voice, "--quiet"), 20.0, "CPU s"),
        row("size one model", child_cpu_s(rightslice, "size", "google/gemma-3-27b-it", "--json"), None, "CPU s"),
        row("simulate one replica (Vidur)", speed, 337.0, "requests/CPU s"),
        row("simulate one replica (BLIS)", speed, 1776.0, "requests/CPU s"),
        row("simulate one replica (DynoSim)", speed, 10100.0, "requests/CPU s"),
    ]
    target = ROOT / "build" / "bench.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(rows, indent=2) + "\n")
    for entry in rows:
        print(f"{entry['name']:<40} {entry['ours']:>14,} {entry['unit']:<16} x {entry['ratio'] or '-'}")
    print(f"load average {os.getloadavg()[0]:.1f}; wrote {target}")


if __name__ == "__main__":
    main()
