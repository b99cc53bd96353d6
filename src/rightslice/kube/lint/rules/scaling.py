"""Whether the autoscaler can move: owners, limits, capacity, speed, scale to zero."""

from __future__ import annotations

from collections.abc import Iterator

from rightslice.kube.lint.context import Context, Scaler
from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.hardware import pool_machines
from rightslice.kube.lint.metrics import metric
from rightslice.kube.lint.promql import uses
from rightslice.kube.lint.startup import load_of
from rightslice.kube.lint.values import Path, dig, entries, fields, quantity, shown, text, whole
from rightslice.kube.lint.workloads import GPU, Pod

_DEFAULT_COOLDOWN_S = 300
_GPU_POD_S = 120
"""No published cold start of an LLM pod with its node is shorter."""


def on_gpus(context: Context, scaler: Scaler) -> Pod | None:
    """The pod that it scales, if that takes accelerators or is a GPU engine."""
    pod = context.target(scaler)
    return pod if pod is not None and (pod.accelerated or context.server(pod) is not None) else None


@rule(
    "RS6507", "warn",
    title="Pods that still load are counted",
    why="A pod of a large model exists for minutes before it serves: dividing by all pods makes the load look "
    "smaller just when more capacity is on its way.",
    fix="divide by ready pods, or do not divide",
    evidence=("public manifest: mjpinot/aks-qwen",),
)  # fmt: skip
def counts_pending(context: Context) -> Iterator[Hit]:
    """kube_pod_info and deployment replicas in a query."""
    for scaler, path, query in prometheus_queries(context):
        series = [use.name for use in uses(query)]
        counted = [
            name for name in series if name in ("kube_pod_info", "kube_deployment_status_replicas", "kube_pod_created")
        ]
        if counted:
            yield Hit(scaler.document, path, f"{counted[0]} counts pods that are still loading")


def prometheus_queries(context: Context) -> Iterator[tuple[Scaler, Path, str]]:
    """The PromQL of KEDA triggers."""
    for scaler in context.scalers:
        for index, trigger in enumerate(map(fields, entries(scaler.document.get("spec", "triggers")))):
            query = text(dig(trigger, "metadata", "query"))
            if trigger.get("type") == "prometheus" and query:
                yield scaler, ("spec", "triggers", index, "metadata", "query"), query


@rule(
    "RS6508", "warn",
    title="Nothing damps the scale-down",
    why="cooldownPeriod of KEDA counts only for the step to zero; above one replica the HPA's own defaults hold.",
    fix="advanced.horizontalPodAutoscalerConfig.behavior with a scaleDown window of twice the cold start",
    evidence=("KEDA: ScaledObject", "public manifest: mjpinot/aks-qwen"),
)  # fmt: skip
def no_stabilisation(context: Context) -> Iterator[Hit]:
    """A cooldown that is meant to damp, with a minimum above zero and no behavior."""
    for scaler in context.scalers:
        cooldown = whole(scaler.document.get("spec", "cooldownPeriod"))
        if scaler.keda and cooldown is not None and (scaler.least or 0) >= 1 and not scaler.behavior:
            message = (
                f"cooldownPeriod {cooldown} acts only on the step to zero, the minimum is {scaler.least}; "
                "no behavior is set"
            )
            yield Hit(scaler.document, ("spec", "cooldownPeriod"), message)


@rule(
    "RS6509", "warn",
    title="Pods are added faster than they can start",
    why="A GPU pod needs minutes; a controller that adds more every few seconds overshoots, for it sees no effect yet.",
    fix="scaleUp.periodSeconds of the cold start or more, one or two pods at a time",
    evidence=("llm-d: autoscaling PR #1220", "a public manifest"),
)  # fmt: skip
def scale_up_too_fast(context: Context) -> Iterator[Hit]:
    """Large steps in short periods without a window."""
    for scaler in context.scalers:
        up = fields(scaler.behavior.get("scaleUp"))
        if on_gpus(context, scaler) is None or whole(up.get("stabilizationWindowSeconds")) not in (0, None):
            continue
        fast = [
            f"+{whole(p.get('value'))}{' %' if p.get('type') == 'Percent' else ' pods'} in "
                f"{whole(p.get('periodSeconds'))} s"
            for p in map(fields, entries(up.get("policies")))
            if (whole(p.get("periodSeconds")) or 0) < _GPU_POD_S
            and (whole(p.get("value")) or 0) >= (100 if p.get("type") == "Percent" else 4)
        ]  # fmt: skip
        if fast:
            path = ("spec", "behavior", "scaleUp") if not scaler.keda else ("spec", "advanced")
            yield Hit(scaler.document, path, f"{' and '.join(fast)} without stabilisation: a GPU pod needs minutes")


@rule(
    "RS6510", "warn",
    title="More replicas than there can be GPUs",
    why="What is beyond the nodes' GPUs, the pool's limit or the quota stays Pending, and the autoscaler waits for it.",
    fix="a maximum that fits, or more capacity",
    evidence=(
        "aws/karpenter-provider-aws#8068",
        "public manifest: jlengelbrecht/prox-ops, 2026-01",
        "public manifest: opeyemibami/inferex, 2026-06",
    ),
)  # fmt: skip
def max_exceeds_capacity(context: Context) -> Iterator[Hit]:
    """One host, a pool's limit, a quota, or a cache that ties the pod to one host."""
    for pod in context.pods:
        most, gpus = context.most_replicas(pod), pod.gpus
        if most < 2 or not gpus or pod.document.kind == "DaemonSet":
            continue
        scaler = context.scaler(pod)
        document = scaler.document if scaler else pod.document
        path: Path = ("spec",) if scaler or not pod.most else (*pod.path, "maxReplicas")
        hosts = pod.node_labels.get("kubernetes.io/hostname", ())
        shared = any(context.shared(container) for container in pod.containers)
        if len(hosts) == 1 and not shared and most > pod.replicas:
            message = (
                f"up to {most} replicas of {gpus} GPU{'s' if gpus > 1 else ''}, but the node selector admits one node "
                f"({hosts[0]}): what exceeds its GPUs stays Pending"
            )
            yield Hit(document, path, message)
        elif limit := _limit(context, pod):
            where, count = limit
            if gpus * most > count:
                yield Hit(
                    document, path, f"up to {most} replicas x {gpus} = {gpus * most} GPUs, {where} allows {count:g}"
                )
        elif (place := _tied_to_host(pod)) and context.most_replicas(pod) > pod.replicas:
            message = f"up to {most} replicas, but the weights lie in hostPath {place}: other nodes start without them"
            yield Hit(document, path, message)


def _limit(context: Context, pod: Pod) -> tuple[str, float] | None:
    """The tightest limit of GPUs that holds for a pod."""
    found: list[tuple[str, float]] = []
    for quota in context.of("ResourceQuota"):
        for name in (f"requests.{GPU}", f"limits.{GPU}"):
            count = quantity(quota.get("spec", "hard", name))
            if count is not None and quota.namespace == pod.namespace:
                found.append((f"ResourceQuota {quota.name}", count))
    pools = list(context.of("NodePool"))
    if len(pools) == 1 and pod.tolerations:
        count = quantity(pools[0].get("spec", "limits", GPU))
        if count is not None:
            found.append((f"NodePool {pools[0].name}", count))
        found += _by_cpu(pools[0])
    return min(found, key=lambda limit: limit[1], default=None)


def _by_cpu(pool: Document) -> Iterator[tuple[str, float]]:
    """The GPUs of as many machines as the pool's limit of CPUs admits, the best of them."""
    cpus = quantity(pool.get("spec", "limits", "cpu"))
    rows = [row for row in pool_machines(pool) if row.vcpu]
    if cpus and rows:
        most = max(cpus // (row.vcpu or 1) * row.accelerator_count for row in rows)
        yield f"limits.cpu {cpus:g} of NodePool {pool.name}", most


def _tied_to_host(pod: Pod) -> str:
    """A hostPath under somebody's home or cache."""
    for volume in pod.volumes.values():
        path = text(dig(volume, "hostPath", "path"))
        if "cache" in path or "models" in path or path.startswith("/home/"):
            return path
    return ""


@rule(
    "RS6511", "info",
    title="The first request waits for a cold start",
    why="At zero replicas the next request waits for a pod, the load of the weights and the engine.",
    fix="client timeouts and gateway queues longer than the cold start, or a minimum of 1",
    evidence=("public manifest: jlengelbrecht/prox-ops, 2026-01", "public manifest: jlengelbrecht/prox-ops, 2026-08"),
)  # fmt: skip
def zero_cold_start(context: Context) -> Iterator[Hit]:
    """minReplicas 0 of a GPU server."""
    for server in context.servers:
        pod, scaler = server.pod, context.scaler(server.pod)
        if pod.least == 0 or (scaler is not None and scaler.least == 0):
            model = context.model(server)
            load = load_of(server, model) if model else None
            about = (
                f" and about {load.total_s:.0f} s of load and engine start" if load else " and the load of its weights"
            )
            document = scaler.document if scaler else pod.document
            path: Path = ("spec",) if scaler else (*pod.path, "minReplicas")
            others = [
                p for p in context.pods if p is not pod and p.least == 0 and p.node_labels == pod.node_labels and p.gpus
            ]
            shared = any(context.shared(container) for container in pod.containers)
            clash = "; tenants of the same GPU fail each other on wake-up" if others and shared else ""
            yield Hit(document, path, f"minimum 0: the first request waits for a pod{about}{clash}")


@rule(
    "RS6512", "error",
    title="It can never leave zero",
    why="At zero replicas no pod exports the engine's metric: the query is empty and nothing wakes the workload.",
    fix="a metric of the router or gateway, or a queue, as activation",
    evidence=("vllm-project/production-stack PR #679",),
)  # fmt: skip
def zero_from_own_metric(context: Context) -> Iterator[Hit]:
    """All triggers of a scaler to zero are metrics of the engine itself."""
    for scaler in context.scalers:
        triggers = [fields(trigger) for trigger in entries(scaler.document.get("spec", "triggers"))]
        if not scaler.keda or (scaler.least or 0) != 0 or not triggers:
            continue
        named = [_engine_metric(text(dig(trigger, "metadata", "query"))) for trigger in triggers]
        if all(named):
            message = f"minimum 0, but {named[0]} exists only while a pod runs: nothing scales it from zero"
            yield Hit(scaler.document, ("spec", "triggers"), message)


def _engine_metric(query: str) -> str:
    """The engine's metric that a query is all about; empty where it falls back on another."""
    found = uses(query)
    own = [use.name for use in found if (known := metric(use.name)) and known.exporter not in ("dcgm", "router")]
    return own[0] if own and len(own) == len(found) and " or " not in query else ""


@rule(
    "RS6513", "info",
    title="It only switches on and off",
    why="With a maximum of one replica there is nothing to scale: load beyond it queues.",
    fix="a larger maximum, if capacity allows",
    evidence=("public manifest: adityonugrohoid/gpu-autoscale-inference, 2026-03",),
)  # fmt: skip
def max_one(context: Context) -> Iterator[Hit]:
    """A scaler with maximum 1."""
    for scaler in context.scalers:
        if scaler.most == 1 and (scaler.least or 0) == 0 and scaler.keda:
            yield Hit(
                scaler.document, ("spec", "maxReplicaCount"), "maximum 1: this switches on and off, it does not scale"
            )


@rule(
    "RS6514", "info",
    title="The idle tail of every burst",
    why="KEDA keeps the last replica for cooldownPeriod, 300 s by default: each burst pays for that much idle GPU.",
    fix="cooldownPeriod by what a cold start costs against an idle GPU",
    evidence=("KEDA: ScaledObject", "public manifest: adityonugrohoid/gpu-autoscale-inference, 2026-03"),
)  # fmt: skip
def cooldown_default(context: Context) -> Iterator[Hit]:
    """Scale to zero on GPUs with the default."""
    for scaler in context.scalers:
        unset = scaler.document.get("spec", "cooldownPeriod") is None
        if scaler.keda and unset and (scaler.least or 0) == 0 and on_gpus(context, scaler):
            message = f"cooldownPeriod is the default of {_DEFAULT_COOLDOWN_S} s after the last event"
            yield Hit(scaler.document, ("spec",), message)


@rule(
    "RS6515", "error",
    title="Two autoscalers own one workload",
    why="Each sets the replicas that it wants: they undo each other every few seconds.",
    fix="one HPA or one ScaledObject (which makes its own HPA)",
    evidence=("seen in public manifests",),
)  # fmt: skip
def two_owners(context: Context) -> Iterator[Hit]:
    """The same target twice."""
    owned: dict[tuple[str, str, str], Scaler] = {}
    for scaler in context.scalers:
        first = owned.setdefault(scaler.target, scaler)
        if first is not scaler and scaler.target[1]:
            kind, name, _ = scaler.target
            message = f"{kind} {name} is scaled by {first.document.kind} {first.document.name} as well"
            yield Hit(scaler.document, ("spec", "scaleTargetRef"), message)


@rule(
    "RS6517", "warn",
    title="Fixed replicas outside of the autoscaler's range",
    why="Each apply sets the replicas back to a number that the autoscaler would never choose: pods are killed "
    "or added at once.",
    fix="leave replicas out of a workload that an autoscaler owns",
    evidence=("seen in public manifests",),
)  # fmt: skip
def fixed_replicas(context: Context) -> Iterator[Hit]:
    """replicas below the minimum or above the maximum."""
    for scaler in context.scalers:
        pod = context.target(scaler)
        stated = whole(pod.document.get("spec", "replicas")) if pod else None
        if pod is None or stated is None or scaler.most is None:
            continue
        least = scaler.least if scaler.least is not None else (0 if scaler.keda else 1)
        if not least <= stated <= scaler.most:
            message = (
                f"replicas {stated}, but {scaler.document.kind} {scaler.document.name} keeps {least} to {scaler.most}"
            )
            yield Hit(pod.document, ("spec", "replicas"), message)


@rule(
    "RS6518", "error",
    title="The minimum is above the maximum",
    why="The API server or the admission webhook refuses it.",
    fix="minimum at most maximum",
    evidence=("KEDA: CEL rule of ScaledObject",),
)  # fmt: skip
def min_over_max(context: Context) -> Iterator[Hit]:
    """Of scalers and of KServe predictors."""
    for scaler in context.scalers:
        if scaler.least is not None and scaler.most is not None and scaler.least > scaler.most:
            yield Hit(scaler.document, ("spec",), f"minimum {scaler.least}, maximum {scaler.most}")
    for pod in context.pods:
        if pod.least is not None and pod.most and pod.least > pod.most:
            yield Hit(pod.document, (*pod.path, "minReplicas"), f"minReplicas {pod.least}, maxReplicas {pod.most}")


@rule(
    "RS6520", "info",
    title="The front scales, the GPU does not",
    why="Replicas of a proxy add no tokens: beyond what the one engine serves, requests only queue elsewhere.",
    fix="scale the engine on its own metrics, if capacity allows",
    evidence=(
        "public manifest: notandruu/gpu-inference-platform",
        "public manifest: ArchanaChetan07/ai-inference-observability-platform",
    ),
)  # fmt: skip
def proxy_only(context: Context) -> Iterator[Hit]:
    """Scalers in the namespace of an engine, none for it and none for another engine."""
    scalers: dict[str, list[tuple[Scaler, bool]]] = {}
    for scaler in context.scalers:
        scalers.setdefault(scaler.document.namespace, []).append((scaler, on_gpus(context, scaler) is not None))
    for server in context.servers:
        pod, here = server.pod, scalers.get(server.pod.namespace, [])
        if here and not any(engine for _, engine in here) and pod.gpus and pod.document.kind == "Deployment":
            names = ", ".join(shown(scaler.target[1]) for scaler, _ in here[:2])
            message = (
                f"{here[0][0].document.kind} scales {names}, nothing scales this GPU server: it stays at {pod.replicas}"
            )
            yield Hit(pod.document, ("spec", "replicas"), message)
