"""Metrics, alerts and a dashboard: for the Prometheus operator, or for Google's managed Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rightslice.kube.objects import Metadata, Object, config_map, custom
from rightslice.manifests.components.alerts import rule_groups
from rightslice.manifests.components.component import Component
from rightslice.manifests.components.dashboard import dashboard_json
from rightslice.manifests.pods import ports
from rightslice.manifests.view import Unit, View, plan_labels
from rightslice.manifests.workloads import front_labels

SCRAPE_EVERY: Final = "15s"
_DASHBOARD_LABEL: Final = {"grafana_dashboard": "1"}


def monitoring(view: View) -> Component:
    """PodMonitors, a PrometheusRule and a Grafana dashboard."""
    monitors = [
        custom("monitoring.coreos.com/v1", "PodMonitor", _metadata(view, name), _pod_monitor(unit))
        for name, unit in _scraped(view)
    ]
    rules = custom(
        "monitoring.coreos.com/v1", "PrometheusRule", _metadata(view, view.namespace), {"groups": rule_groups(view)}
    )
    return Component(
        "monitoring",
        "PodMonitors of the engines, alerts on the plan's objectives, sizes and prices, a Grafana dashboard",
        "the Prometheus operator; kube-state-metrics with `--metric-labels-allowlist=nodes=[rightslice/pool]`; where "
        "your Prometheus selects monitors by label, add it in your overlay",
        (*monitors, rules, _dashboard(view)),
    )


def managed_monitoring(view: View) -> Component:
    """The same for Google Cloud Managed Service for Prometheus."""
    monitors = [
        custom("monitoring.googleapis.com/v1", "PodMonitoring", _metadata(view, name), _pod_monitoring(unit))
        for name, unit in _scraped(view)
    ]
    rules = custom(
        "monitoring.googleapis.com/v1", "Rules", _metadata(view, view.namespace), {"groups": rule_groups(view)}
    )
    return Component(
        "managed-monitoring",
        "the same for Google's managed Prometheus: PodMonitoring and Rules",
        "managed collection in the cluster; its kube-state-metrics package for the alerts on pods and nodes",
        (*monitors, rules, _dashboard(view)),
    )


def _scraped(view: View) -> Iterator[tuple[str, Unit]]:
    """Name of each Service whose pods show metrics, with one of its workloads."""
    fronts: dict[str, Unit] = {}
    for unit in view.units:
        if unit.deployment.engine.metrics_path:
            fronts.setdefault(unit.service, unit)
    yield from fronts.items()


def _metadata(view: View, name: str) -> Metadata:
    return Metadata(name, view.namespace, plan_labels(view.plan.name))


def _endpoint(unit: Unit) -> Object:
    port = "metrics" if "metrics" in ports(unit) else "http"
    return {"port": port, "path": unit.deployment.engine.metrics_path, "interval": SCRAPE_EVERY}


def _pod_monitor(unit: Unit) -> Object:
    return {"selector": {"matchLabels": dict(front_labels(unit))}, "podMetricsEndpoints": [_endpoint(unit)]}


def _pod_monitoring(unit: Unit) -> Object:
    return {"selector": {"matchLabels": dict(front_labels(unit))}, "endpoints": [_endpoint(unit)]}


def _dashboard(view: View) -> Object:
    labels = {**plan_labels(view.plan.name), **_DASHBOARD_LABEL}
    data = {f"{view.namespace}.json": dashboard_json(view)}
    return config_map(Metadata(f"{view.namespace}-dashboard", view.namespace, labels), data)
