"""Workloads by seed: models, traffic, objectives, fleets, platforms and limits in combinations that people write."""

from __future__ import annotations

from typing import Any

import numpy as np

Json = dict[str, Any]

SOURCES = ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.2-3B", "Llama-2-7B", "Llama-2-13B")
PLACES = (
    ("gcp", "us-central1", ("gke", "gke+operator"), ("L4", "A100-SXM-80GB", "A100-SXM-40GB", "H100-SXM-80GB")),
    ("aws", "us-east-1", ("eks",), ("L4", "L40S", "A100-SXM-80GB", "H100-SXM-80GB")),
    ("azure", "eastus", ("aks",), ("A100-PCIe-80GB", "H100-SXM-80GB")),
)


def random_workload(seed: int) -> Json:
    """One to four models on up to two accelerators of one provider."""
    random = np.random.default_rng(seed)
    provider, region, platforms, accelerators = PLACES[int(random.choice(3, p=(0.6, 0.25, 0.15)))]
    environment = "production" if random.random() < 0.5 else "development"
    models = [_model(random, number) for number in range(int(random.integers(1, 5)))]
    workload: Json = {
        "apiVersion": "rightslice/v1",
        "kind": "Workload",
        "metadata": {"name": f"random-{seed}"},
        "models": models,
        "fleet": {
            "providers": [provider],
            "regions": [region],
            "platform": str(random.choice(platforms)),
            "accelerators": {"allow": sorted({str(name) for name in random.choice(accelerators, 2)})},
            "purchase": ["on_demand", "spot"] if random.random() < 0.4 else ["on_demand"],
        },
        "environment": environment,
    }
    stages = [model["name"] for model in models if not model.get("traffic")]
    if stages:
        workload["pipelines"] = [_pipeline(random, stages)]
    if random.random() < 0.3:
        accelerator = workload["fleet"]["accelerators"]["allow"][0]
        row = {"provider": provider, "region": region, "accelerator": accelerator, "gpus": int(random.integers(1, 9))}
        workload["fleet"]["quota"] = [row]
    if random.random() < 0.15:
        workload["budget"] = {"monthly": f"${int(random.integers(15, 80)) * 1000}"}
    return workload


def _model(random: np.random.Generator, number: int) -> Json:
    served = random.random() < 0.6
    model: Json = {"name": f"m{number}"}
    if served:
        model |= {"source": str(random.choice(SOURCES)), "max_context": 2048}
    else:
        model |= {"task": "transcribe", "profile": _profile(random)}
    if random.random() < 0.75:
        model["traffic"] = _traffic(random, served=served)
    isolation = random.choice(["", "required", "preferred", "none"])
    if isolation:
        model["isolation"] = str(isolation)
    if random.random() < 0.4:
        model["min_replicas"] = int(random.integers(1, 4))
    if random.random() < 0.2:
        model["interruptible"] = True
    return model


def _profile(random: np.random.Generator) -> Json:
    alone_ms = int(random.integers(30, 200))
    growth = (1.0, 1.6, 2.6)
    return {
        "memory": f"{random.uniform(2.0, 18.0):.1f}GB",
        "streams": [1, 4, 8],
        "latency": [f"{round(alone_ms * factor)}ms" for factor in growth],
        "measured_on": "H100-SXM-80GB",
        "sm_demand": round(float(random.uniform(0.05, 0.6)), 2),
    }


def _traffic(random: np.random.Generator, *, served: bool) -> Json:
    mean = float(10.0 ** random.uniform(-1.0, 1.2))
    traffic: Json = {"rate": {"mean": f"{mean:.2f}/s", "peak": f"{mean * random.uniform(1.0, 2.5):.2f}/s"}}
    if not served:
        return traffic | {"slo": {"e2e_p95": f"{int(random.integers(400, 3000))}ms"}}
    inputs, outputs = int(random.integers(100, 1200)), int(random.integers(20, 300))
    return traffic | {
        "input_tokens": {"mean": inputs, "p95": 2 * inputs},
        "output_tokens": {"mean": outputs, "p95": 2 * outputs},
        "slo": {"ttft_p95": f"{random.uniform(0.3, 3.0):.2f}s", "tpot_p95": f"{int(random.integers(25, 120))}ms"},
    }


def _pipeline(random: np.random.Generator, stages: list[str]) -> Json:
    users = {"concurrent": int(random.integers(2, 30)), "think_time": "2s", "ramp_up": "10s", "hold": "90s"}
    limit = f"{random.uniform(1.5, 3.0) * len(stages):.1f}s"
    return {"name": "flow", "stages": stages, "users": {"people": users}, "slo": {"e2e_p95": limit}}
