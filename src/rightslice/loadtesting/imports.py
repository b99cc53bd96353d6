"""Results of load testers as measured points: our own, guidellm, vllm bench serve, aiperf, inference-perf.

Each tool counts otherwise; what is known to be wrong in one is left out and said: the chat backend of vllm bench takes
a role without text for the first token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rightslice.loadtesting.dialects import GENERATES


@dataclass(frozen=True, slots=True)
class Measured:
    """Means of one load: requests in flight, tokens per request, requests/s, and milliseconds.

    `ttft_ms` is None where the tool's is not to be trusted. `source`: file and load.
    """

    source: str
    streams: float
    input_tokens: float
    output_tokens: float
    requests_per_s: float
    ttft_ms: float | None
    tpot_ms: float
    e2e_ms: float

    @property
    def shape(self) -> tuple[int, int, int]:
        """What makes two points repeats of one: streams, input and output tokens, rounded."""
        return round(self.streams), round(self.input_tokens), round(self.output_tokens)


class UnknownFormatError(ValueError):
    """No tool's result."""


_Reader = Callable[[Mapping[str, Any], str], Iterator[Measured]]


def imported(document: object, name: str) -> tuple[str, tuple[Measured, ...], tuple[str, ...]]:
    """(tool, usable points, what was left out) of one result. Raises UnknownFormatError."""
    if not isinstance(document, Mapping):
        raise UnknownFormatError
    for tool, (mark, reader) in _TOOLS.items():
        if all(key in document for key in mark):
            try:
                found = tuple(
                    point for point in reader(document, name) if point.tpot_ms > 0.0 and point.requests_per_s > 0.0
                )
            except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, IndexError) as error:
                raise UnknownFormatError(
                    f"looks like a result of {tool}, but {error!r} is missing or unusable"
                ) from None
            return tool, found, _NOTES.get(tool, ())
    raise UnknownFormatError


def _own(document: Mapping[str, Any], name: str) -> Iterator[Measured]:
    if document["api"] not in GENERATES:
        return
    for point in document["points"]:
        if point["valid"] and point["completed"] and point["tpot_ms"]:
            done = point["completed"]
            e2e = point["e2e_ms"]["mean"]
            yield Measured(
                f"{name}: {point['name']}",
                point["concurrency"] or point["requests_per_s"] * e2e / 1e3,
                point["input_tokens"] / done,
                point["output_tokens"] / done,
                point["requests_per_s"],
                point["ttft_ms"]["mean"],
                point["tpot_ms"]["mean"],
                e2e,
            )


def _guidellm(document: Mapping[str, Any], name: str) -> Iterator[Measured]:
    for number, run in enumerate(document["benchmarks"]):
        metrics = {
            key: value["successful"]
            for key, value in run["metrics"].items()
            if isinstance(value, Mapping) and isinstance(value.get("successful"), Mapping)
        }
        streams = run["config"]["strategy"].get("max_concurrency") or metrics["request_concurrency"]["mean"]
        yield Measured(
            f"{name}: benchmark {number + 1}",
            float(streams),
            metrics["prompt_token_count"]["mean"],
            metrics["output_token_count"]["mean"],
            metrics["requests_per_second"]["mean"],
            metrics["time_to_first_token_ms"]["mean"],
            metrics["inter_token_latency_ms"]["mean"],
            metrics["request_latency"]["mean"] * 1e3,
        )


def _vllm(document: Mapping[str, Any], name: str) -> Iterator[Measured]:
    done = document["completed"]
    output = document["total_output_tokens"] / done
    tpot, ttft = document["mean_tpot_ms"], document["mean_ttft_ms"]
    e2e = ttft + tpot * (output - 1.0)
    rate = document["request_throughput"]
    yield Measured(
        name,
        float(document.get("max_concurrency") or rate * e2e / 1e3),
        document["total_input_tokens"] / done,
        output,
        rate,
        None if "chat" in document.get("backend", "") else ttft,
        tpot,
        e2e,
    )


def _aiperf(document: Mapping[str, Any], name: str) -> Iterator[Measured]:
    def mean(metric: str) -> float:
        return float(document[metric]["avg"])

    phases = [p for p in document["input_config"].get("phases", ()) if p.get("kind") == "profiling"]
    streams = phases[0].get("concurrency") if phases else None
    e2e, rate = mean("request_latency"), mean("request_throughput")
    prompt = "usage_prompt_tokens" if "usage_prompt_tokens" in document else "input_sequence_length"
    answer = "usage_completion_tokens" if "usage_completion_tokens" in document else "output_sequence_length"
    ttft, tokens = mean("time_to_first_token"), mean(answer)
    yield Measured(
        name,
        float(streams or rate * e2e / 1e3),
        mean(prompt),
        tokens,
        rate,
        ttft,
        (e2e - ttft) / (tokens - 1.0),
        e2e,
    )


def _inference_perf(document: Mapping[str, Any], name: str) -> Iterator[Measured]:
    good = document["successes"]
    latency = good["latency"]
    e2e, rate = latency["request_latency"]["mean"] * 1e3, good["throughput"]["requests_per_sec"]
    yield Measured(
        name,
        rate * e2e / 1e3,
        good["prompt_tokens"]["mean"],
        good["output_tokens"]["mean"],
        rate,
        latency["time_to_first_token"]["mean"] * 1e3,
        latency["time_per_output_token"]["mean"] * 1e3,
        e2e,
    )


_TOOLS: Final[Mapping[str, tuple[tuple[str, ...], _Reader]]] = {
    "rightslice loadtest": (("points", "api", "client"), _own),
    "guidellm": (("benchmarks", "metadata"), _guidellm),
    "vllm bench serve": (("request_throughput", "mean_tpot_ms", "completed"), _vllm),
    "aiperf": (("aiperf_version", "request_latency"), _aiperf),
    "inference-perf": (("load_summary", "successes"), _inference_perf),
}
_NOTES: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm bench serve": ("the chat backend's first token may be a role without text: its TTFT is not used",),
    "inference-perf": ("requests in flight are taken from Little's law",),
}
