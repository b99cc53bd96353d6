"""The same loads by other tools: their command lines, and a Kubernetes Job of ours for more than one machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rightslice.loadtesting.dialects import APIS, ApiName
from rightslice.loadtesting.schedule import ClosedLoop, Load

PeerName = Literal["aiperf", "vllm"]
PROGRAMS: Final[Mapping[PeerName, str]] = {"aiperf": "aiperf", "vllm": "vllm"}
RESULTS: Final[Mapping[PeerName, str]] = {"aiperf": "profile_export_aiperf.json", "vllm": "result.json"}
"""The file with the result in the folder that the tool is given."""
PODS: Final = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """One load on one server with prompts and answers of one length. `tokenizer`: its folder, empty where not given;
    `key_env`: the variable that holds the key."""

    url: str
    model: str
    api: ApiName
    load: Load
    requests: int
    input_tokens: int
    output_tokens: int
    shared_prefix_tokens: int = 0
    tokenizer: str = ""
    key_env: str = ""


def command(peer: PeerName, shape: Shape, folder: str) -> tuple[str, ...]:
    """Program and arguments that run the load and leave RESULTS[peer] in `folder`. Keys are named, not written."""
    return _TOOLS[peer](shape, folder)


def _aiperf(shape: Shape, folder: str) -> tuple[str, ...]:
    """As of aiperf 0.13."""
    load = shape.load
    rate: Sequence[str] = (
        ("--concurrency", str(load.concurrency))
        if isinstance(load, ClosedLoop)
        else ("--request-rate", f"{load.requests_per_s:g}", "--arrival-pattern", "poisson")
    )
    return (
        *(
            PROGRAMS["aiperf"],
            "profile",
            "--url",
            shape.url,
            "--model",
            shape.model,
            "--endpoint-type",
            shape.api,
            "--streaming",
        ),
        *rate,
        *("--request-count", str(shape.requests)),
        *("--synthetic-input-tokens-mean", str(shape.input_tokens), "--synthetic-input-tokens-stddev", "0"),
        *("--output-tokens-mean", str(shape.output_tokens), "--output-tokens-stddev", "0"),
        *("--extra-inputs", "ignore_eos:true", "--extra-inputs", f"min_tokens:{shape.output_tokens}"),
        *(("--api-key", f"${shape.key_env}") if shape.key_env else ()),
        *(("--tokenizer", shape.tokenizer) if shape.tokenizer else ()),
        *("--use-server-token-count", "--ui", "none", "--artifact-dir", folder),
    )


def _vllm(shape: Shape, folder: str) -> tuple[str, ...]:
    """As of vLLM 0.32."""
    load = shape.load
    rate: Sequence[str] = (
        ("--max-concurrency", str(load.concurrency))
        if isinstance(load, ClosedLoop)
        else ("--request-rate", f"{load.requests_per_s:g}")
    )
    backend = "openai-chat" if shape.api == "chat" else "openai"
    return (
        *(
            PROGRAMS["vllm"],
            "bench",
            "serve",
            "--backend",
            backend,
            "--base-url",
            shape.url,
            "--endpoint",
            APIS[shape.api],
        ),
        *("--model", shape.model),
        *(("--tokenizer", shape.tokenizer) if shape.tokenizer else ()),
        *("--dataset-name", "random", "--random-input-len", str(shape.input_tokens)),
        *("--random-output-len", str(shape.output_tokens), "--random-prefix-len", str(shape.shared_prefix_tokens)),
        *("--num-prompts", str(shape.requests), *rate, "--ignore-eos"),
        *("--save-result", "--result-dir", folder, "--result-filename", RESULTS["vllm"]),
    )


_TOOLS: Final[Mapping[PeerName, Callable[[Shape, str], tuple[str, ...]]]] = {"aiperf": _aiperf, "vllm": _vllm}


def job(shape: Shape, image: str, pods: int = PODS) -> dict[str, Any]:
    """An indexed Job whose pods each send their part of the load at once; each prints its result as JSON.

    The parts are separate Poisson streams, or separate streams of a closed loop, so that together they are the load.
    """
    load = shape.load
    part: Sequence[str] = (
        ("--sweep", str(math.ceil(load.concurrency / pods)))
        if isinstance(load, ClosedLoop)
        else ("--rate", f"{load.requests_per_s / pods:g}/s")
    )
    arguments = [
        *("loadtest", shape.url, "--model", shape.model, "--api", shape.api, *part),
        *("--requests", str(math.ceil(shape.requests / pods))),
        *("--input-tokens", str(shape.input_tokens), "--output-tokens", str(shape.output_tokens)),
        *(("--shared-prefix", str(shape.shared_prefix_tokens)) if shape.shared_prefix_tokens else ()),
        *(("--api-key-env", shape.key_env) if shape.key_env else ()),
        *("--seed", "$(JOB_COMPLETION_INDEX)", "--json", "--quiet"),
    ]
    key = {"name": shape.key_env, "valueFrom": {"secretKeyRef": {"name": "loadtest-key", "key": "token"}}}
    index = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}},
    }
    container = {
        "name": "loadtest",
        "image": image,
        "args": arguments,
        "env": [index, *([key] if shape.key_env else [])],
        "resources": {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "rightslice-loadtest", "labels": {"app.kubernetes.io/name": "rightslice-loadtest"}},
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 86_400,
            "template": {
                "metadata": {"labels": {"app.kubernetes.io/name": "rightslice-loadtest"}},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 65_532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "rightslice-loadtest"}},
                        }
                    ],
                    "containers": [container],
                },
            },
        },
    }
