"""CPU seconds and rates of the main paths, beside what peers needed, into build/bench.json.

Peers were measured once on a 2-core machine of this kind (2026-11-30): Vidur (GitHub main 2024-11), BLIS 2026-08 and
DynoSim 1.6.1 on the first 10,000 rows of the Azure 2023 conversation trace, and AIConfigurator 0.12 for a plan. Ours is
measured now, in fresh processes where start-up counts; so is DynoSim where `ai-dynamo-runtime` is installed, and
guidellm (0.8.1 recorded) where RIGHTSLICE_GUIDELLM names it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import bench_packing
from bench_loadtest import measured as measured_client
from bench_simulation import measured

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
REPEATS = 3
PREDICT = ("predict", "Llama-3.1-8B", "--accelerator", "H100-SXM-80GB", "--concurrency", "32")


def child_cpu_s(*command: str) -> float:
    """User + system CPU seconds of one command, best of REPEATS after a warm-up."""
    times = []
    for _ in range(REPEATS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times[1:])


def row(name: str, ours: float, peer: float | None, unit: str) -> dict[str, object]:
    """One line of the report; ratio > 1 is better than the peer."""
    better = None if peer is None else (peer / ours if unit.endswith("s") and "/" not in unit else ours / peer)
    return {"name": name, "ours": round(ours, 4), "peer": peer, "ratio": better and round(better, 2), "unit": unit}


def packing_rows(found: dict[str, float]) -> list[dict[str, object]]:
    """Time and proof of the packing, and how much dearer simpler ways are on the same fleets."""
    rows = [
        row(f"pack {n} replicas on A100 and H100 with MIG", found[f"mig_{n}_cpu_s"], None, "CPU s")
        for n in (50, 500, 5000)
    ]
    rows.append(row("pack 5000 replicas: peak memory", found["mig_5000_mb"], None, "MB"))
    rows += [
        row("pack 40 models, shared GPUs", found["shared_cpu_s"], None, "CPU s"),
        row("pack 40 models, shared GPUs, platform limits", found["platform_cpu_s"], None, "CPU s"),
    ]
    shares = {
        "pack 5000 replicas: proven gap": "mig_5000_gap",
        "pack 40 models, shared GPUs: proven gap": "shared_gap",
        "pack 40 models, shared GPUs, platform limits: proven gap": "platform_gap",
        "first fit by falling size: dearer by": "first_fit_dearer",
        "four layouts (HAMi): dearer by": "four_dearer",
        "one profile per GPU: dearer by": "uniform_dearer",
        "GPUs cut anew after +-10 %, penalty 0.1 %": "change_held_share",
        "the same without a penalty": "change_free_share",
        "what the penalty costs": "change_dearer",
    }
    return rows + [row(name, 100.0 * found[key], None, "%") for name, key in shares.items()]


def main() -> None:
    """Measure, print and write."""
    rightslice = str(BIN / "rightslice")
    voice = "examples/voice-assistant.yaml"
    simulated = measured()
    speed = simulated["core"]
    rows = [
        row("rightslice --help", child_cpu_s(rightslice, "--help"), None, "CPU s"),
        row("plan the voice example, verified", child_cpu_s(rightslice, "plan", voice, "--quiet"), 20.0, "CPU s"),
        row("predict one deployment", child_cpu_s(rightslice, *PREDICT), 4.5, "CPU s"),
        row("size one model", child_cpu_s(rightslice, "size", "google/gemma-3-27b-it", "--json"), None, "CPU s"),
        row("simulate one replica (Vidur)", speed, 337.0, "requests/CPU s"),
        row("simulate one replica (BLIS)", speed, 1776.0, "requests/CPU s"),
        row(
            f"simulate one replica (DynoSim{', recorded' * ('dynosim' not in simulated)})",
            speed,
            simulated.get("dynosim", 20900.0),
            "requests/CPU s",
        ),
        row("simulate one replica (plain reference)", speed, simulated["reference"], "requests/CPU s"),
        row("simulate one replica, with statistics", simulated["simulate"], None, "requests/CPU s"),
        row("simulate 8 replicas, KV-aware, HPA, cold start", simulated["fleet"], None, "requests/CPU s"),
        row("the same, with its input arrays", simulated["fleet_whole"], None, "requests/CPU s"),
        row("simulate 1,000,000 requests", simulated["million_core"], None, "requests/CPU s"),
        row("simulate 1,000,000 requests: peak memory", simulated["million_mb"], None, "MB"),
        row("mean end to end of the 10,000 requests", simulated["mean_e2e_ms"], None, "ms"),
    ]
    if "dynosim_mean_e2e_ms" in simulated:
        rows.append(row("the same, DynoSim", simulated["dynosim_mean_e2e_ms"], None, "ms"))
    rows += packing_rows(bench_packing.measured())
    client = measured_client()
    peer = client.get("guidellm", 7640.0)
    rows += [
        row("load client, 256 streams (guidellm)", client["tokens_per_process_cpu_s"], peer, "tokens/CPU s"),
        row("load client, 256 streams, without its start", client["tokens_per_cpu_s"], None, "tokens/CPU s"),
        row("load client, 1,000 streams: peak memory", client["many_streams_mb"], None, "MB"),
    ]
    target = ROOT / "build" / "bench.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(rows, indent=2) + "\n")
    for entry in rows:
        print(f"{entry['name']:<40} {entry['ours']:>14,} {entry['unit']:<16} x {entry['ratio'] or '-'}")
    print(f"load average {os.getloadavg()[0]:.1f}; wrote {target}")


if __name__ == "__main__":
    main()
