"""Alerts and scraping: units, counters, and whether anything is scraped at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rightslice.core.errors import Severity
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.metrics import Metric, metric, unknown
from rightslice.kube.lint.promql import RATES, Use, uses
from rightslice.kube.lint.rules.signals import signals
from rightslice.kube.lint.values import Path, Value, entries, fields, quantity, text, whole

_LARGEST_MIB = 300_000
"""No accelerator has as much memory."""
_LEVEL_KEPT = frozenset({"changes", "resets", "delta", "idelta", "deriv", "predict_linear"}) | RATES
_TRITON_PORTS = (("http", "http-port", 8000), ("grpc", "grpc-port", 8001), ("metrics", "metrics-port", 8002))
_IN_MS_S = 100.0
_HIGH_USE = 80.0


@dataclass(frozen=True, slots=True)
class Alert:
    """One alerting rule."""

    document: Document
    path: Path
    name: str
    expr: str
    value: Mapping[str, Value]


def alerts(context: Context) -> Iterator[Alert]:
    """Of PrometheusRule objects, of Google's Rules, and of rule files inside ConfigMaps."""
    for document in context.documents:
        for base in (("spec", "groups"), ("groups",)):
            for group_index, group in enumerate(map(fields, entries(document.get(*base)))):
                for index, found in enumerate(map(fields, entries(group.get("rules")))):
                    path: Path = (*base, group_index, "rules", index, "expr")
                    expr = found.get("expr")
                    if text(found.get("alert")) and isinstance(expr, str):
                        yield Alert(document, path, text(found["alert"]), expr, found)


def _known(context: Context) -> Iterator[tuple[Alert, Use, Metric]]:
    for alert in alerts(context):
        for use in uses(alert.expr):
            known = metric(use.name)
            if known is not None:
                yield alert, use, known


@rule(
    "RS6601", "error",
    title="An alert in the wrong unit",
    why="Against a threshold in another unit an alert fires always, or never.",
    fix="the threshold in the metric's unit",
    evidence=(
        "DCGM field identifiers",
        "public manifest: nbethala/triton-mlops-gpu-platform",
        "public manifest: dapperdivers/dapper-cluster",
    ),
)  # fmt: skip
def unit(context: Context) -> Iterator[Hit]:
    """MiB against bytes, percent against fractions, seconds against milliseconds."""
    for alert, use, known in _known(context):
        if use.compared is None:
            continue
        operator, number = use.compared
        wrong = _wrong(known, use, operator, number)
        if wrong:
            yield Hit(alert.document, alert.path, f"{alert.name}: {wrong}")


def _wrong(known: Metric, use: Use, operator: str, number: float) -> str:
    always = "always fires" if operator.startswith("<") else "never fires"
    if known.unit == "MiB" and number > _LARGEST_MIB:
        meant = (
            f"for {number / 1e6:g} GB write {number / 1e6 * 953.7:.0f}"
            if number >= 1e7
            else f"for {number / 1000:.0f} MB write {number / 1000:.0f}"
        )
        return f"{use.name} is in MiB: {operator} {number:,.0f} means {number / 1024:,.0f} GiB and {always}; {meant}"
    if known.unit == "percent" and 0 < number < 1:
        return f"{number:g} is a fraction, {use.name} runs from 0 to 100"
    if known.unit == "percent" and number > 100:
        return f"{use.name} runs from 0 to 100: {operator} {number:g} {always}"
    if known.unit == "ratio" and number > 1:
        return f"{use.name} is a ratio from 0 to 1: {operator} {number:g} {always}"
    quantile = "histogram_quantile" in use.functions
    if known.unit == "seconds" and known.type == "histogram" and quantile and number >= _IN_MS_S:
        return f"{use.name} is in seconds: {operator} {number:g} looks like milliseconds"
    return ""


@rule(
    "RS6602", "error",
    title="A counter compared without a rate",
    why="A counter only grows: once above the threshold the alert fires for ever.",
    fix="rate(…[5m]) or increase(…[1h])",
    evidence=("DCGM field identifiers", "public manifest: nbethala/triton-mlops-gpu-platform"),
)  # fmt: skip
def counter_without_rate(context: Context) -> Iterator[Hit]:
    """Counters of faults, whose level itself matters, are left out."""
    for alert, use, known in _known(context):
        if known.type == "counter" and not known.keeps and use.compared and not _LEVEL_KEPT & set(use.functions):
            operator, number = use.compared
            message = (
                f"{alert.name}: {use.name} is a counter: {operator} {number:g} fires for ever after the first event"
            )
            yield Hit(alert.document, alert.path, message)


@rule(
    "RS6603", "error",
    title="The rate of a gauge",
    why="rate() reads every fall as a restart of a counter: of a gauge it is meaningless.",
    fix="avg_over_time(…), or delta(…) for a change",
    evidence=("Prometheus: query functions", "public manifest: dapperdivers/dapper-cluster"),
)  # fmt: skip
def rate_on_gauge(context: Context) -> Iterator[Hit]:
    """rate, irate and increase, in alerts, recording rules and scalers."""
    for document, path, name, expr in _queries(context):
        for use in uses(expr):
            known, found = metric(use.name), RATES & set(use.functions)
            if (
                known is not None
                and known.type == "gauge"
                and found
                and not use.name.endswith(("_count", "_sum", "_bucket"))
            ):
                function = next(iter(sorted(found)))
                message = f"{name}: {function}({use.name}) is the rate of a gauge"
                yield Hit(document, path, message, f"avg_over_time({use.name}[15m])")


def _queries(context: Context) -> Iterator[tuple[Document, Path, str, str]]:
    for document in context.documents:
        for base in (("spec", "groups"), ("groups",)):
            for group_index, group in enumerate(map(fields, entries(document.get(*base)))):
                for index, found in enumerate(map(fields, entries(group.get("rules")))):
                    name = text(found.get("alert")) or text(found.get("record"))
                    yield document, (*base, group_index, "rules", index, "expr"), name, text(found.get("expr"))
    for signal in signals(context):
        if signal.query:
            yield signal.scaler.document, signal.path, signal.scaler.document.name, signal.query


@rule(
    "RS6604", "info",
    title="An alert on a busy GPU",
    why="High utilisation is what a server is paid for; the costly state is the opposite.",
    fix="alert on queues and latency, and on GPUs that idle",
    evidence=("public manifest: nbethala/triton-mlops-gpu-platform",),
)  # fmt: skip
def high_use(context: Context) -> Iterator[Hit]:
    """Utilisation above 80 %."""
    for alert, use, known in _known(context):
        if (
            use.name not in ("DCGM_FI_DEV_GPU_UTIL", "nv_gpu_utilization")
            or use.compared is None
            or RATES & set(use.functions)
        ):
            continue
        operator, number = use.compared
        if operator.startswith(">") and number >= (_HIGH_USE if known.unit == "percent" else _HIGH_USE / 100):
            yield Hit(
                alert.document,
                alert.path,
                f"{alert.name}: GPU use {operator} {number:g} is the goal of a server, no fault",
            )


@rule(
    "RS6605", "info",
    title="What the GPU alerts leave out",
    why="Xid errors announce broken cards; long under-use is what costs most.",
    fix="alerts on DCGM_FI_DEV_XID_ERRORS, temperature, and GPUs that idle for hours",
    evidence=("public manifest: dapperdivers/dapper-cluster",),
)  # fmt: skip
def coverage(context: Context) -> Iterator[Hit]:
    """A set with alerts on DCGM metrics, none of them on Xid."""
    found = [(alert, use) for alert, use, known in _known(context) if known.exporter == "dcgm"]
    names = {use.name for _, use in found}
    if found and "DCGM_FI_DEV_XID_ERRORS" not in names:
        idle = any(use.name == "DCGM_FI_DEV_GPU_UTIL" and use.compared and use.compared[0] == "<" for _, use in found)
        lacking = [
            "Xid errors",
            *([] if "DCGM_FI_DEV_GPU_TEMP" in names else ["temperature"]),
            *([] if idle else ["idle GPUs"]),
        ]
        alert = found[0][0]
        yield Hit(alert.document, alert.path[:-1], f"no alert on {', '.join(lacking)}")


@rule(
    "RS6606", "error",
    title="An alert on a metric that does not exist",
    why="Without series the alert never fires, and nobody notices.",
    fix="the name that is exported",
    evidence=("engine metric tables of the catalogue",),
)  # fmt: skip
def metric_unknown(context: Context) -> Iterator[Hit]:
    """Names with the prefix of an exporter that has no such metric."""
    recorded = {name for _, _, name, _ in _queries(context)}
    running = {server.version for server in context.servers if server.engine == "vllm" and server.version}
    for alert in alerts(context):
        for use in uses(alert.expr):
            instead, known = unknown(use.name), metric(use.name)
            if instead is not None and use.name not in recorded:
                fix = f"use {instead}" if instead else ""
                severity: Severity = "error" if instead else "warn"
                message = f"{alert.name}: {use.name} is exported by no version"
                yield Hit(alert.document, alert.path, message, fix, severity)
            elif known is not None and known.until and not any(known.exists(version) for version in running or ("",)):
                fix = f"use {known.instead}" if known.instead else ""
                message = f"{alert.name}: {use.name} is gone since {known.exporter} {known.until}"
                yield Hit(alert.document, alert.path, message, fix, "warn")


@rule(
    "RS6607", "warn",
    title="Device metrics of shared GPUs",
    why="Where several pods have one GPU, DCGM repeats the device's totals for each of them or names one: use "
    "per pod is void.",
    fix="metrics of the engine",
    evidence=("NVIDIA/dcgm-exporter#307", "NVIDIA/dcgm-exporter#151"),
)  # fmt: skip
def shared_gpu(context: Context) -> Iterator[Hit]:
    """Scalers on DCGM metrics in a set that shares GPUs."""
    sharing = any((shared.replicas or 0) > 1 for found in context.sharing for shared in found.resources)
    cut = any(entry.enabled for entry in context.mig)
    for signal in signals(context):
        names = [signal.name, *(use.name for use in uses(signal.query))]
        void = [name for name in names if name.startswith("DCGM_FI_DEV_GPU_UTIL")]
        if void and (sharing or cut):
            message = f"{void[0]} of a shared GPU says nothing about one pod"
            yield Hit(signal.scaler.document, signal.path, message)


@rule(
    "RS6608", "error",
    title="A monitor of a port that does not exist",
    why="ServiceMonitor and PodMonitor name a port: where none has that name nothing is scraped, silently.",
    fix="the name of a port of the Service or pod",
    evidence=("prometheus-operator: API reference",),
)  # fmt: skip
def monitor_port(context: Context) -> Iterator[Hit]:
    """Against the services and pods here that the monitor selects."""
    for document in context.of("ServiceMonitor", "PodMonitor", "PodMonitoring"):
        wanted = fields(document.get("spec", "selector", "matchLabels"))
        if not wanted:
            continue
        by_service = document.kind == "ServiceMonitor"
        if by_service:
            lists = [
                entries(service.get("spec", "ports")) for service in context.services
                if _has(fields(service.get("metadata", "labels")), wanted)
            ]  # fmt: skip
        else:
            lists = [
                entries(container.value.get("ports")) for pod in context.pods if _has(pod.labels, wanted)
                for container in pod.containers
            ]  # fmt: skip
        declared = {text(fields(port).get("name")) for listed in lists for port in listed}
        numbers = {whole(fields(port).get("containerPort")) for listed in lists for port in listed}
        key = "podMetricsEndpoints" if document.kind == "PodMonitor" else "endpoints"
        for index, endpoint in enumerate(map(fields, entries(document.get("spec", key)))):
            port = endpoint.get("port")
            if lists and port is not None and port not in declared and (by_service or whole(port) not in numbers):
                what = "Service" if by_service else "pod"
                yield Hit(
                    document,
                    ("spec", key, index, "port"),
                    f"port {str(port)[:40]}: the selected {what} has none of that name",
                )


def _has(labels: Mapping[str, Value], wanted: Mapping[str, Value]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


@rule(
    "RS6609", "error",
    title="The declared ports are not the engine's",
    why="Services, monitors and people go by declared ports: shifted by one they reach gRPC or nothing.",
    fix="8000 HTTP, 8001 gRPC, 8002 metrics, unless flags move them",
    evidence=("triton-inference-server: source", "public manifest: notandruu/gpu-inference-platform"),
)  # fmt: skip
def engine_ports(context: Context) -> Iterator[Hit]:
    """Triton's three ports by the names that they are given."""
    for server in context.servers:
        if server.engine != "triton" or server.opaque:
            continue
        real = {
            name: int(quantity(server.flags.get(f"--{flag}")) or default)
            for name, flag, default in _TRITON_PORTS
        }  # fmt: skip
        wrong = []
        for entry in map(fields, entries(server.container.value.get("ports"))):
            name, number = text(entry.get("name")), whole(entry.get("containerPort"))
            role = next((role for role in real if role in name), "")
            if role and number != real[role]:
                wrong.append(f"{name} {number} (Triton: {real[role]})")
        if wrong:
            path = (*server.container.path, "ports")
            yield Hit(server.container.document, path, f"declared ports are not Triton's: {', '.join(wrong)}")
