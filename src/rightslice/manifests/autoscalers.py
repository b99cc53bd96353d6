"""The autoscaler of a deployment as it was simulated: an HPA (autoscaling/v2) or KEDA's ScaledObject, and its metric.

HPAs read metrics that prometheus-adapter takes from Prometheus; KEDA asks Prometheus itself. Windows and sizes are the
plan's; all else (policies, tolerance) is Kubernetes' default, which is what was simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rightslice.catalogue.engines import engines
from rightslice.core.plan import Autoscaling
from rightslice.kube.objects import Json, Metadata, Object, horizontal_pod_autoscaler, scaled_object
from rightslice.manifests.view import Unit, View

ADAPTER_FOLDER: Final = "autoscaling"
ADAPTER_VALUES: Final = f"{ADAPTER_FOLDER}/prometheus-adapter-values.yaml"
PROMETHEUS: Final = "http://prometheus.example.invalid:9090"
"""Cannot be reached until the reader sets the real one."""
GATEWAY_QUEUE: Final = "llm_d_epp_flow_control_queue_size"
"""Requests that the endpoint picker holds, by InferencePool (docs/metrics.md of llm-d/llm-d-router 02d6c2ee)."""
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "in_flight": ("running", "waiting"),
    "running": ("running",),
    "waiting": ("waiting",),
}


def autoscaler(unit: Unit, metadata: Metadata, scaling: Autoscaling) -> Object:
    """The object that changes the size of one Deployment."""
    if scaling.kind == "keda":
        return _keda(unit, metadata, scaling)
    return horizontal_pod_autoscaler(
        metadata,
        {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": unit.name},
            "minReplicas": scaling.min_replicas,
            "maxReplicas": scaling.max_replicas,
            "metrics": [_metric(unit, scaling)],
            "behavior": _behavior(scaling),
        },
    )


def adapter_values(view: View) -> Object | None:
    """Helm values of prometheus-adapter with a rule for each HPA; None where there is none."""
    rules: dict[str, list[Json]] = {}
    for unit, scaling in scaled_units(view):
        if scaling.kind == "hpa":
            kind, rule = _rule(unit, scaling)
            rules.setdefault(kind, []).append(rule)
    return {"rules": {"default": False, **rules}} if rules else None


def scaled_units(view: View) -> list[tuple[Unit, Autoscaling]]:
    """Deployments with the autoscaler that each has."""
    return [(unit, unit.scaling) for unit in view.units if unit.scaling is not None]


def query(unit: Unit, scaling: Autoscaling) -> str:
    """PromQL: the signal of all pods of one Deployment, which bear its name and two random words.

    What waits in an inference gateway is in flight, too; deployments of one model take equal parts of it. Series that
    do not exist, as those of engines without a replica, count 0 there: PromQL's sum with one of them would be empty.
    """
    names = _engine_metrics(unit)
    pods = f'namespace="{unit.namespace}",pod=~"{unit.name}-[a-z0-9]+-[a-z0-9]+"'
    parts = [f"sum({names[part]}{{{pods}}})" for part in _PARTS[scaling.signal]]
    if scaling.signal == "in_flight" and unit.model.gateway and unit.model.gateway.holds:
        several = len(unit.model.deployments)
        held = f'sum({GATEWAY_QUEUE}{{namespace="{unit.namespace}",inference_pool="{unit.service}"}})'
        parts.append(held if several == 1 else f"{held} / {several}")
        parts = [f"({part} or vector(0))" for part in parts]
    return " + ".join(parts)


def metric_name(unit: Unit, scaling: Autoscaling) -> str:
    """What the metrics API calls it: colons are not allowed there."""
    if scaling.signal == "kv_use":
        return _engine_metrics(unit)["kv_use"].replace(":", "_")
    return f"{unit.name.replace('-', '_')}_{scaling.signal}"


def _engine_metrics(unit: Unit) -> Mapping[str, str]:
    planned = unit.deployment.engine
    return engines()[planned.name].metrics(planned.version)


def _metric(unit: Unit, scaling: Autoscaling) -> Object:
    name: Object = {"name": metric_name(unit, scaling)}
    target: Object = {"type": "AverageValue", "averageValue": quantity(scaling.target)}
    if scaling.signal == "kv_use":
        return {"type": "Pods", "pods": {"metric": name, "target": target}}
    return {"type": "External", "external": {"metric": name, "target": target}}


def quantity(value: float) -> str:
    """A number as Kubernetes writes it: whole, or in thousandths."""
    thousandths = round(value * 1000.0)
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def _behavior(scaling: Autoscaling) -> Object:
    return {
        "scaleUp": {"stabilizationWindowSeconds": round(scaling.up_window_s)},
        "scaleDown": {"stabilizationWindowSeconds": round(scaling.down_window_s)},
    }


def _rule(unit: Unit, scaling: Autoscaling) -> tuple[str, Object]:
    """(`external` or `custom`, the adapter's rule)."""
    names = _engine_metrics(unit)
    if scaling.signal == "kv_use":
        series = names["kv_use"]
        resources: Object = {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}}
        return "custom", {
            "seriesQuery": f'{series}{{namespace!="",pod!=""}}',
            "resources": resources,
            "name": {"as": metric_name(unit, scaling)},
            "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        }
    return "external", {
        "seriesQuery": f'{names["running"]}{{namespace="{unit.namespace}"}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "name": {"as": metric_name(unit, scaling)},
        "metricsQuery": query(unit, scaling),
    }


def _keda(unit: Unit, metadata: Metadata, scaling: Autoscaling) -> Object:
    trigger: Object = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": PROMETHEUS,
            "query": query(unit, scaling),
            "threshold": f"{scaling.target:g}",
            **({"activationThreshold": "0"} if scaling.min_replicas == 0 else {}),
        },
    }
    return scaled_object(
        metadata,
        {
            "scaleTargetRef": {"name": unit.name},
            "minReplicaCount": scaling.min_replicas,
            "maxReplicaCount": scaling.max_replicas,
            "pollingInterval": round(scaling.polling_s),
            "cooldownPeriod": round(scaling.cooldown_s),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(scaling)}},
            "triggers": [trigger],
        },
    )
