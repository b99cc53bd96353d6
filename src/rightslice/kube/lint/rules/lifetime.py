"""Whether a server is left alive until it serves, and until it has finished: probes, caches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rightslice.core.errors import Severity
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.servers import Server, published
from rightslice.kube.lint.startup import JUDGED, downloads, engine_title, load_of
from rightslice.kube.lint.values import Value, dig, entries, fields, text, whole
from rightslice.kube.lint.workloads import Container

_PATIENT_S = 600
LONG_DELAY_S = 60
_SURE = 1.15
"""Published rates differ by more than that; below it is a warning."""
_PATHS = {
    "vllm": ("/health", "/ping", "/v1/models", "/version", "/metrics", "/load", "/docs", "/openapi.json"),
    "triton": ("/v2/health/ready", "/v2/health/live", "/v2/models"),
    "nim": ("/v1/health/ready", "/v1/health/live", "/v1/models", "/v1/metrics", "/v1/metadata", "/health"),
}
_PORTS = {"triton": {8000: "HTTP", 8001: "gRPC", 8002: "metrics"}}


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe with its defaults."""

    kind: str
    value: Mapping[str, Value]

    @property
    def delay_s(self) -> int:
        """Until the first check."""
        return whole(self.value.get("initialDelaySeconds")) or 0

    @property
    def period_s(self) -> int:
        """Between checks."""
        return whole(self.value.get("periodSeconds")) or 10

    @property
    def failures(self) -> int:
        """That act."""
        return whole(self.value.get("failureThreshold")) or 3

    @property
    def earliest_s(self) -> int:
        """When it acts at the earliest: the first check comes at the delay."""
        return self.delay_s + (self.failures - 1) * self.period_s

    @property
    def window_s(self) -> int:
        """When it has acted at the latest."""
        return self.delay_s + self.failures * self.period_s

    @property
    def written(self) -> str:
        """`180 + 5 x 30 = 330 s`."""
        return f"{self.delay_s} + {self.failures} x {self.period_s} = {self.window_s} s"


def probe(container: Container, kind: str) -> Probe | None:
    """`startup`, `readiness` or `liveness`; None where there is none or it is switched off."""
    value = fields(container.value.get(f"{kind}Probe"))
    if "probe" in value:  # as NIMService nests it
        return Probe(kind, fields(value["probe"])) if value.get("enabled") is not False else None
    return Probe(kind, value) if value else None


def at(container: Container, kind: str) -> tuple[str | int, ...]:
    """Where that probe is written."""
    return (*container.path, f"{kind}Probe")


@rule(
    "RS6401", "error",
    title="The probe kills the server before it is ready",
    why="Without a startup probe the liveness probe starts to count at its delay: a server that loads for longer is "
    "restarted, loads again, and never serves. Readiness only withholds traffic.",
    fix="a startupProbe with at least twice the load time, and liveness without delay",
    evidence=(
        "vllm-project/aibrix#772",
        "kserve/kserve#5062",
        "public manifest: jlengelbrecht/prox-ops, 2026-01",
        "public manifest: HarshithaJ28/llm-infrastructure",
    ),
)  # fmt: skip
def kills_before_ready(context: Context) -> Iterator[Hit]:
    """The kill window against the load time by published rates; a startup probe's window as well."""
    for server in context.servers:
        model, container = context.model(server), server.container
        load = load_of(server, model) if model else None
        if model is None or load is None:
            continue
        start, alive = probe(container, "startup"), probe(container, "liveness")
        guard = start or alive
        if guard is None or guard.earliest_s >= load.total_s:
            continue
        where = "from a hub" if load.downloads else "from a volume"
        message = (
            f"{guard.kind} kills after {guard.earliest_s} to {guard.window_s} s ({guard.written}); "
            f"{model.about} {where} take about {load.weights_s:.0f} s and the engine about {load.engine_s:.0f} s more"
        )
        budget = -(-int(2 * load.total_s) // 10)
        fix = f"startupProbe: periodSeconds 10, failureThreshold {max(60, budget)}"
        severity: Severity = "error" if load.total_s > _SURE * guard.earliest_s else "warn"
        yield Hit(container.document, at(container, guard.kind), message, fix, severity)


@rule(
    "RS6402", "warn",
    title="A download races against the liveness probe",
    why="With no volume for the weights every new pod downloads them; a liveness probe without a startup probe "
    "gives that a fixed time, whatever the network does.",
    fix="a startupProbe of 10 minutes or more, and a volume for the weights",
    evidence=(
        "public manifest: TobiasEdman/des-chatbot, 2026-03",
        "public manifest: ArchanaChetan07/ai-inference-observability-platform",
    ),
)  # fmt: skip
def no_startup(context: Context) -> Iterator[Hit]:
    """Only where weights are fetched at each start and the window is below ten minutes."""
    for server in context.servers:
        model, container = context.model(server), server.container
        alive = probe(container, "liveness")
        load = load_of(server, model) if model else None
        if alive is None or probe(container, "startup") or model is None or load is None or not downloads(server):
            continue
        if load.total_s <= alive.earliest_s and alive.window_s < _PATIENT_S:
            amount = (model.weights_bytes or 0) / 1e9
            message = (
                f"no startup probe: liveness gives {alive.written} in all; a first download of {amount:.0f} GB and the "
                "engine's start must fit in it"
            )
            yield Hit(container.document, at(container, "liveness"), message)


@rule(
    "RS6403", "warn",
    title="A fixed wait before the first check",
    why="initialDelaySeconds passes even when the server is up long before: each cold start and each scale-up pays it.",
    fix="a startupProbe that checks every few seconds, and readiness without delay",
    evidence=(
        "public manifest: opeyemibami/inferex, 2026-06",
        "public manifest: adityonugrohoid/gpu-autoscale-inference, 2026-03",
    ),
)  # fmt: skip
def initial_delay(context: Context) -> Iterator[Hit]:
    """Readiness delays that outlast the load, or that hold up a server that scales from zero."""
    for server in context.servers:
        container = server.container
        ready = probe(container, "readiness")
        if ready is None or ready.delay_s < LONG_DELAY_S:
            continue
        scaler = context.scaler(server.pod)
        from_zero = server.pod.replicas == 0 or server.pod.least == 0 or (scaler is not None and scaler.least == 0)
        model = context.model(server)
        load = load_of(server, model) if model else None
        if from_zero or ready.delay_s >= _PATIENT_S or (load is not None and ready.delay_s > 2 * load.total_s):
            what = (
                "each wake-up from zero waits it out"
                if from_zero
                else "it passes even when the server is up long before"
            )
            message = f"the first readiness check comes after {ready.delay_s} s: {what}"
            yield Hit(container.document, at(container, "readiness"), message)


@rule(
    "RS6404", "error",
    title="The probe asks a port that does not answer it",
    why="An engine serves health on its HTTP port; on the metrics or gRPC port the answer is 404 or none: never ready, "
    "and restarted again and again.",
    fix="the HTTP port of the engine",
    evidence=("public manifest: notandruu/gpu-inference-platform",),
)  # fmt: skip
def wrong_port(context: Context) -> Iterator[Hit]:
    """Ports of the engine, as its arguments set them or by default."""
    for server in context.servers:
        told = bool(server.words) or published(server.container.image)
        if server.opaque or server.port == 0 or server.engine not in (*JUDGED, "triton") or not told:
            continue
        for kind in ("startup", "readiness", "liveness"):
            found = probe(server.container, kind)
            port = _port(server, dig(found.value, "httpGet", "port")) if found else None
            if port is None or port == _http_port(server) or _behind(server, port):
                continue
            role = _PORTS.get(server.engine, {}).get(port, "")
            other = f": that is its {role} port" if role else ""
            message = (
                f"{kind} asks port {port}{other}; {engine_title(server.engine)} answers health on {_http_port(server)}"
            )
            yield Hit(server.container.document, at(server.container, kind), message, f"port {_http_port(server)}")


def _http_port(server: Server) -> int:
    return int(server.number("--http-port") or server.port) if server.engine == "triton" else server.port


def _port(server: Server, value: Value) -> int | None:
    """A port by number, or by the name that the container gives it."""
    number = whole(value)
    if number is not None:
        return number
    for entry in map(fields, entries(server.container.value.get("ports"))):
        if text(entry.get("name")) == value:
            return whole(entry.get("containerPort"))
    return None


def _behind(server: Server, port: int) -> bool:
    """Whether another container of the pod declares that port: a proxy in front."""
    others = [container for container in server.pod.containers if container is not server.container]
    return any(
        whole(fields(entry).get("containerPort")) == port
        for container in others for entry in entries(container.value.get("ports"))
    )  # fmt: skip


@rule(
    "RS6405", "warn",
    title="Ready as soon as the port is open",
    why="A TCP check says that a process listens, not that a model is loaded or that requests get through.",
    fix="httpGet on the engine's health path",
    evidence=("public manifest: andrewaddo/gke-vllm-hdml",),
)  # fmt: skip
def tcp_readiness(context: Context) -> Iterator[Hit]:
    """Engines that have a health path."""
    for server in context.servers:
        found = probe(server.container, "readiness")
        if found and "tcpSocket" in found.value and server.engine in (*JUDGED, "triton", "nim", "tei"):
            path = "/v2/health/ready" if server.engine == "triton" else "/health"
            message = f"readiness opens a TCP connection; {engine_title(server.engine)} has {path}"
            yield Hit(server.container.document, at(server.container, "readiness"), message)


@rule(
    "RS6406", "info",
    title="A hung engine is never restarted",
    why="Without a liveness probe an engine that stops answering keeps its GPU for ever; readiness only takes "
    "it out of traffic.",
    fix="a startupProbe, and a liveness probe with a timeout of 5 to 10 s and 5 failures or more",
    evidence=(
        "public manifest: nbethala/triton-mlops-gpu-platform",
        "public manifest: mejavsh/vllm-inference-lke",
        "public manifest: andrewaddo/gke-vllm-hdml",
    ),
)  # fmt: skip
def no_liveness(context: Context) -> Iterator[Hit]:
    """Servers with a readiness probe alone."""
    for server in context.servers:
        kinds = {kind for kind in ("startup", "readiness", "liveness") if probe(server.container, kind)}
        if kinds == {"readiness"}:
            found = probe(server.container, "readiness")
            plain = "tcpSocket" in (found.value if found else {})
            message = "readiness only, no startup or liveness probe: a hung engine keeps its GPU and is never restarted"
            severity: Severity = "warn" if plain else "info"
            yield Hit(server.container.document, at(server.container, "readiness"), message, "", severity)


@rule(
    "RS6407", "warn",
    title="Packages are installed at each start",
    why="Every cold start waits for package mirrors, needs egress, and may run other versions than yesterday.",
    fix="an image with the packages in it",
    evidence=("public manifest: jlengelbrecht/prox-ops, 2026-08",),
)  # fmt: skip
def installs_at_start(context: Context) -> Iterator[Hit]:
    """pip, apt and the like in the command of a server that has a GPU."""
    for pod in context.pods:
        for container in pod.containers:
            script = " ".join(container.command_words)
            found = sorted(
                set(re.findall(r"\b(?:apt-get|apt|apk|yum|dnf|pip3?|uv pip|conda|npm)\s+(?:install|add)\b", script))
            )
            if found and container.accelerators:
                alive = probe(container, "liveness")
                waits = f"; liveness waits {alive.delay_s} s for it" if alive and alive.delay_s else ""
                message = f"{', '.join(found)} at start{waits}: needs egress, not reproducible"
                yield Hit(container.document, container.args_path, message)


@rule(
    "RS6408", "warn",
    title="A startup probe shorter than most starts",
    why="The startup probe kills as well: its window must hold the slowest start, not the usual one.",
    fix="failureThreshold x periodSeconds of 600 s or more",
    evidence=("public manifest: dapperdivers/dapper-cluster, 2026-05",),
)  # fmt: skip
def startup_short(context: Context) -> Iterator[Hit]:
    """Within a minute of the load where the model is known, below three minutes where it is not."""
    for server in context.servers:
        start = probe(server.container, "startup")
        if start is None or server.engine not in (*JUDGED, "nim", "ollama", "llamacpp", "tgi"):
            continue
        model = context.model(server)
        load = load_of(server, model) if model else None
        if load is not None and start.earliest_s >= load.total_s and start.window_s < load.total_s + 60:
            message = f"startup allows {start.written}; the load takes about {load.total_s:.0f} s by published rates"
            yield Hit(server.container.document, at(server.container, "startup"), message)
        elif load is None and start.window_s < 180 and server.container.nvidia:
            message = f"startup allows {start.written}: little for a model of any size"
            yield Hit(server.container.document, at(server.container, "startup"), message)


@rule(
    "RS6409", "info",
    title="A hung server is noticed late",
    why="The patience that loading needs is also granted to a server that hangs, for it is the same probe.",
    fix="a startupProbe for the load, and a short liveness probe",
    evidence=("public manifest: Lintasarta/vllm-helm",),
)  # fmt: skip
def slack(context: Context) -> Iterator[Hit]:
    """Liveness that takes ten minutes of failures, without a startup probe."""
    for server in context.servers:
        alive = probe(server.container, "liveness")
        if alive and not probe(server.container, "startup") and alive.failures * alive.period_s >= _PATIENT_S:
            patience = alive.failures * alive.period_s
            message = (
                f"liveness tolerates {alive.written}: a hung server is restarted only after {patience / 60:.0f} minutes"
            )
            yield Hit(server.container.document, at(server.container, "liveness"), message)


@rule(
    "RS6419", "warn",
    title="A health path that the engine does not have",
    why="The answer is 404: the pod never gets ready, or is restarted for ever.",
    fix="the engine's health path",
    evidence=("engine facts of the catalogue",),
)  # fmt: skip
def wrong_path(context: Context) -> Iterator[Hit]:
    """Engines whose paths were read."""
    for server in context.servers:
        known = _PATHS.get(server.engine, ())
        for kind in ("startup", "readiness", "liveness"):
            found = probe(server.container, kind)
            path = text(dig(found.value, "httpGet", "path")) if found else ""
            port = _port(server, dig(found.value, "httpGet", "port")) if found else None
            plain = f"{path.partition('?')[0].rstrip('/')}/"
            own = any(plain.startswith(f"{place}/") for place in known)
            if not path or not known or own or (port and _behind(server, port)) or "--root-path" in server.flags:
                continue
            message = f"{kind} asks {path}; {engine_title(server.engine)} has {known[0]}"
            yield Hit(server.container.document, at(server.container, kind), message, f"path: {known[0]}")
