"""The signals of autoscalers: whether the metric exists, moves with the load, and is compared in its unit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rightslice.core.errors import Severity
from rightslice.kube.lint.context import Context, Scaler
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.metrics import Metric, metric, plain_name, unknown
from rightslice.kube.lint.promql import RATES, averages, divides_by_count, uses
from rightslice.kube.lint.rules.scaling import on_gpus, prometheus_queries
from rightslice.kube.lint.servers import Server
from rightslice.kube.lint.values import Path, Value, dig, entries, fields, quantity, text, walk
from rightslice.kube.lint.workloads import Pod

_GPU_MEMORY = re.compile(r"(?:gpu|fb|vram|framebuffer|dcgm).*(?:mem|fb|used|vram)|(?:mem|vram).*gpu", re.IGNORECASE)
_BYTES_OF_ANY_CARD = 1e6
"""A target above it can only be meant in bytes: the largest card has 3 x 10^5 MiB."""
_ENGINES = frozenset({"vllm", "sglang", "tensorrt-llm", "tei", "llamacpp"})
_CPU_FIELDS = ("targetCPUUtilizationPercentage", "targetGPUUtilizationPercentage", "targetMemoryUtilizationPercentage")


@dataclass(frozen=True, slots=True)
class Signal:
    """One metric of a scaler. `name`: as written, empty for CPU and memory; `query`: PromQL behind it, where known."""

    scaler: Scaler
    path: Path
    resource: str = ""
    name: str = ""
    target: float | None = None
    kind: str = ""
    query: str = ""

    @property
    def known(self) -> Metric | None:
        """The catalogue's entry."""
        return metric(self.name) if self.name else None


def signals(context: Context) -> Iterator[Signal]:
    """Every metric of every scaler."""
    for scaler in context.scalers:
        if scaler.keda:
            yield from _keda_signals(scaler)
        for index, entry in enumerate(map(fields, entries(scaler.document.get("spec", "metrics")))):
            kind = text(entry.get("type"))
            source = fields(entry.get(kind[:1].lower() + kind[1:]))
            goal = fields(source.get("target"))
            path: Path = ("spec", "metrics", index)
            target = _target(goal)
            resource = text(source.get("name")) if "Resource" in kind else ""
            name = text(dig(source, "metric", "name"))
            yield Signal(scaler, path, resource, name, target, text(goal.get("type")))
        if scaler.document.get("spec", "targetCPUUtilizationPercentage") is not None:
            yield Signal(scaler, ("spec", "targetCPUUtilizationPercentage"), "cpu", kind="Utilization")


def _target(goal: Value) -> float | None:
    values = (quantity(dig(goal, name)) for name in ("averageValue", "value", "averageUtilization"))
    return next((value for value in values if value is not None), None)


def _keda_signals(scaler: Scaler) -> Iterator[Signal]:
    for index, trigger in enumerate(map(fields, entries(scaler.document.get("spec", "triggers")))):
        path: Path = ("spec", "triggers", index)
        meta = fields(trigger.get("metadata"))
        kind = text(trigger.get("metricType"))
        if trigger.get("type") in ("cpu", "memory"):
            yield Signal(scaler, path, text(trigger.get("type")), kind=kind or "Utilization")
        elif trigger.get("type") == "prometheus":
            yield Signal(
                scaler, path, "", "", quantity(meta.get("threshold")), kind or "AverageValue", text(meta.get("query"))
            )


@rule(
    "RS6501", "error",
    title="A GPU server scaled by CPU",
    why="The CPU of an inference server does not follow its load: an engine spins a core while idle and no more "
    "when full.",
    fix="requests running or waiting of the engine, KV-cache use where it binds first",
    evidence=("public manifest: opeyemibami/inferex, 2026-06", "public manifest: nbethala/triton-mlops-gpu-platform"),
)  # fmt: skip
def cpu_metric(context: Context) -> Iterator[Hit]:
    """CPU of pods that take GPUs; percentages that a NIMService is given."""
    for signal in signals(context):
        if signal.resource == "cpu" and on_gpus(context, signal.scaler):
            goal = f" at {signal.target:g}" if signal.target else ""
            yield Hit(
                signal.scaler.document, signal.path, f"CPU{goal} scales a GPU server: it does not follow the load"
            )
    for document in context.of("NIMService", "InferenceService"):
        for path, value in walk(document.value):
            if path and path[-1] in _CPU_FIELDS:
                message = (
                    f"{path[-1]} {value}: no signal of a GPU server's load; scale.hpa.metrics takes the "
                    "engine's metrics"
                )
                yield Hit(document, path, message)
                break
    yield from _nim_cpu(context)


def _nim_cpu(context: Context) -> Iterator[Hit]:
    for document in context.of("NIMService"):
        for index, entry in enumerate(map(fields, entries(document.get("spec", "scale", "hpa", "metrics")))):
            if dig(entry, "resource", "name") == "cpu":
                path = ("spec", "scale", "hpa", "metrics", index)
                yield Hit(document, path, "CPU scales a NIM: it does not follow the load")


@rule(
    "RS6502", "error",
    title="A utilisation without a request",
    why="Utilisation is a share of the request: where a container requests no CPU the HPA reports unknown and "
    "never scales.",
    fix="resources.requests on every container, or another metric",
    evidence=(
        "Kubernetes: HorizontalPodAutoscaler",
        "public manifest: opeyemibami/inferex, 2026-06",
        "public manifest: nbethala/triton-mlops-gpu-platform",
    ),
)  # fmt: skip
def no_request(context: Context) -> Iterator[Hit]:
    """Every container of the target."""
    for signal in signals(context):
        pod = context.target(signal.scaler)
        if signal.resource not in ("cpu", "memory") or signal.kind not in ("Utilization", "") or pod is None:
            continue
        resource = signal.resource
        lacking = [
            c.name
            for c in pod.containers
            if c.resource("requests", resource) is None and not c.resource("limits", resource)
        ]
        if lacking and not _defaulted(context, pod, signal.resource):
            message = (
                f"{signal.resource} utilisation of {pod.document.name}, whose container {lacking[0]} requests no "
                f"{signal.resource}: unknown, it never scales"
            )
            yield Hit(signal.scaler.document, signal.path, message)


def _defaulted(context: Context, pod: Pod, resource: str) -> bool:
    """Whether a LimitRange supplies the request."""
    return any(
        dig(limit, kind, resource) is not None
        for document in context.of("LimitRange") if document.namespace == pod.namespace
        for limit in entries(document.get("spec", "limits")) for kind in ("default", "defaultRequest")
    )  # fmt: skip


@rule(
    "RS6503", "error",
    title="A metric that no engine exports",
    why="A query without series is empty: the autoscaler keeps its minimum, silently.",
    fix="the name that the engine's version exports",
    evidence=("engine metric tables of the catalogue", "kserve/kthena PR #868", "a public manifest"),
)  # fmt: skip
def metric_unknown(context: Context) -> Iterator[Hit]:
    """Names in HPAs and queries, unless a rule of the set makes them."""
    made = context.made_metrics
    for signal in signals(context):
        names = [signal.name] if signal.name else [use.name for use in uses(signal.query)]
        pod = context.target(signal.scaler)
        server = context.server(pod) if pod else None
        for name in names:
            if plain_name(name) in made:
                continue
            yield from _missing(signal, name, server)


def _missing(signal: Signal, name: str, server: Server | None) -> Iterator[Hit]:
    instead, known = unknown(name), metric(name)
    if instead is not None:
        fix = f"use {instead}" if instead else ""
        told: Severity = "error" if instead else "warn"
        message = f"{name} is not among the metrics of any version of the engine"
        yield Hit(signal.scaler.document, signal.path, message, fix, told)
    elif known and server and known.exporter in _ENGINES and server.engine in _ENGINES - {known.exporter}:
        message = f"{name} is a metric of {known.exporter}; {signal.scaler.target[1]} runs {server.engine}"
        yield Hit(signal.scaler.document, signal.path, message)
    elif known and known.exporter in _ENGINES and not known.exists(server.version if server else ""):
        stated = server is not None and bool(server.version)
        which = f"{server.engine} {server.version}" if server and stated else "current versions"
        fix = f"use {known.instead}" if known.instead else ""
        severity: Severity = "error" if stated else "warn"
        yield Hit(signal.scaler.document, signal.path, f"{name} is not exported by {which}", fix, severity)


@rule(
    "RS6504", "error",
    title="A target in another unit than the metric",
    why="A target that the metric can never reach never scales; one that it always exceeds scales to the maximum.",
    fix="the target in the metric's unit",
    evidence=("DCGM field identifiers", "a public manifest"),
)  # fmt: skip
def metric_unit(context: Context) -> Iterator[Hit]:
    """Bytes against MiB, fractions against percent."""
    made = context.made_metrics
    for signal in signals(context):
        names = (
            [signal.name] if signal.name else [use.name for use in uses(signal.query) if not signal.query.count("*")]
        )
        for name in names:
            wrong = _wrong_unit(name, signal.target, made) if signal.target is not None else ""
            if wrong:
                yield Hit(signal.scaler.document, signal.path, wrong)


def _wrong_unit(name: str, target: float, made: frozenset[str]) -> str:
    known = metric(name)
    if known is None:
        if target > _BYTES_OF_ANY_CARD and _GPU_MEMORY.search(name) and plain_name(name) not in made:
            return (
                f"{name} against {target:,.0f}: DCGM gives framebuffer use (DCGM_FI_DEV_FB_USED) in MiB, at most some "
                "hundred thousand; unless a rule converts it the target is never reached"
            )
        return ""
    if known.unit == "MiB" and target > _BYTES_OF_ANY_CARD:
        return f"{name} is in MiB, a target of {target:,.0f} is never reached"
    if known.unit == "ratio" and target > 1:
        return f"{name} is a ratio from 0 to 1, a target of {target:g} is never reached"
    if known.unit == "percent" and 0 < target < 1:
        return f"{name} is in percent (0 to 100), a target of {target:g} is always exceeded"
    return ""


@rule(
    "RS6505", "error",
    title="Memory that is reserved at start is no signal",
    why="Engines take their share of the GPU's memory when they start and keep it: its use is flat, whatever the load.",
    fix="KV-cache use or requests of the engine",
    evidence=("a public manifest",),
)  # fmt: skip
def metric_preallocated(context: Context) -> Iterator[Hit]:
    """Framebuffer use of GPU servers."""
    for signal in signals(context):
        names = [signal.name] if signal.name else [use.name for use in uses(signal.query)]
        if not on_gpus(context, signal.scaler) and context.target(signal.scaler) is not None:
            continue
        for name in names:
            framebuffer = name.startswith(("DCGM_FI_DEV_FB_", "nv_gpu_memory"))
            if framebuffer or (metric(name) is None and _GPU_MEMORY.search(name) and "util" not in name.lower()):
                message = (
                    f"{name}: the engine reserves its share of GPU memory at start, its use is flat under any load"
                )
                yield Hit(signal.scaler.document, signal.path, message)


@rule(
    "RS6506", "error",
    title="An average that is averaged again",
    why="With AverageValue, the default, the HPA divides the result by the replicas: a query that is a mean per pod "
    "already is divided twice, and the more pods run the less it scales.",
    fix="sum(…) with AverageValue, or metricType: Value",
    evidence=("KEDA: scaling deployments", "public manifest: mjpinot/aks-qwen"),
)  # fmt: skip
def double_average(context: Context) -> Iterator[Hit]:
    """avg(…), or a division by a number of pods."""
    kinds = {signal.path: signal.kind for signal in signals(context) if signal.query}
    for scaler, path, query in prometheus_queries(context):
        kind = kinds.get(path[:3], "AverageValue")
        divided = divides_by_count(query)
        if kind == "AverageValue" and (divided or averages(query)):
            how = f"divides by {divided}" if divided else "is a mean over pods"
            threshold = quantity(scaler.document.get(*path[:-1], "threshold")) or 0.0
            example = (
                f": with 2 pods at {2 * threshold:g} each the HPA sees {threshold:g}, and adds none"
                if threshold
                else ""
            )
            yield Hit(scaler.document, path, f"the query {how} and the HPA divides by the replicas again{example}")


@rule(
    "RS6516", "error",
    title="A target that the metric cannot reach",
    why="An engine never runs more sequences than max-num-seqs: a target at or above it is not exceeded by any load.",
    fix="70 to 80 % of what the engine runs at its objective, and below max-num-seqs",
    evidence=("defilantech/LLMKube#482",),
)  # fmt: skip
def target_unreachable(context: Context) -> Iterator[Hit]:
    """Running requests against the engine's own limit."""
    for signal in signals(context):
        pod = context.target(signal.scaler)
        server = context.server(pod) if pod else None
        limit = server.number("--max-num-seqs") if server else None
        names = [signal.name] if signal.name else [use.name for use in uses(signal.query)]
        running = [name for name in names if re.search(r"num_requests_running|num_running_reqs", name)]
        others = [name for name in names if name not in running]
        if limit and signal.target and running and not others and signal.kind != "Value" and signal.target >= limit:
            message = (
                f"{running[0]} per pod against {signal.target:g}; the engine runs {limit:g} at most (--max-num-seqs)"
            )
            yield Hit(signal.scaler.document, signal.path, message)


@rule(
    "RS6519", "error",
    title="A counter as a signal",
    why="A counter only grows: compared with a target it scales to the maximum and stays there.",
    fix="rate(…[5m])",
    evidence=("Prometheus: metric types",),
)  # fmt: skip
def counter(context: Context) -> Iterator[Hit]:
    """Counters in queries without rate, and by name in HPAs."""
    made = context.made_metrics
    for signal in signals(context):
        bare = [use.name for use in uses(signal.query) if not RATES & set(use.functions)]
        for name in bare:
            known = metric(name)
            if known is not None and known.type == "counter" and plain_name(name) not in made:
                yield Hit(signal.scaler.document, signal.path, f"{name} is a counter and is read without rate()")


@rule(
    "RS6521", "info",
    title="Memory as a signal",
    why="Processes rarely give memory back: what has scaled up by it does not scale down.",
    fix="requests or queue length",
    evidence=("public manifest: notandruu/gpu-inference-platform",),
)  # fmt: skip
def memory_metric(context: Context) -> Iterator[Hit]:
    """HPAs on memory in a set that serves models."""
    for signal in signals(context):
        if signal.resource == "memory" and context.servers:
            yield Hit(signal.scaler.document, signal.path, "memory rarely falls: this scales up and not down")
