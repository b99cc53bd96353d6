"""A Grafana dashboard of the plan: each model against its objectives, and what runs against what was planned."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rightslice.core.plan import PlannedModel
from rightslice.core.text import visible
from rightslice.manifests.components.alerts import metrics_of, pod_matchers
from rightslice.manifests.view import Unit, View

_WIDTH, _HEIGHT = 8, 7
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_QUANTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
_TITLES: Final = {"ttft": "Time to the first token", "tpot": "Time per output token", "e2e": "End to end"}

Panel = dict[str, Any]


def dashboard_json(view: View) -> str:
    """The dashboard as Grafana imports it; schema version 39 (Grafana 10.4)."""
    panels: list[Panel] = []
    y = 0
    for model in view.plan.models:
        units = view.of_model(model)
        row = list(_of_model(model, units)) if units else []
        if row:
            panels.append({"type": "row", "title": visible(model.name), "gridPos": _place(0, y, 24, 1), "panels": []})
            y = _laid(row, panels, y + 1)
    panels.append({"type": "row", "title": "Plan", "gridPos": _place(0, y, 24, 1), "panels": []})
    _laid(list(_of_plan(view)), panels, y + 1)
    found = {
        "title": f"rightslice: {visible(view.plan.name)}",
        "uid": f"rightslice-{view.namespace}"[:40],
        "tags": ["rightslice"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, 1)],
    }
    return json.dumps(found, indent=1, ensure_ascii=True) + "\n"


def _of_model(model: PlannedModel, units: Sequence[Unit]) -> Iterator[Panel]:
    metrics, pods = metrics_of(units), pod_matchers(units)
    limits: dict[str, float] = {}
    for result in model.slos:
        limits[result.slo.metric] = min(result.slo.at_most_s, limits.get(result.slo.metric, math.inf))
    for metric, title in _TITLES.items():
        if metric in metrics:
            queries = {
                name: f"histogram_quantile({q}, sum by (le) (rate({metrics[metric]}_bucket{{{pods}}}[5m])))"
                for name, q in _QUANTILES
            }
            yield _panel(title, queries, "s", limits.get(metric))
    if "running" in metrics and "waiting" in metrics:
        counts = {name: f"sum({metrics[name]}{{{pods}}})" for name in ("running", "waiting")}
        yield _panel("Requests", counts, "short")
    if "kv_use" in metrics:
        yield _panel("KV cache in use", {"{{pod}}": f"{metrics['kv_use']}{{{pods}}}"}, "percentunit", 0.9)
    if "e2e" in metrics:
        rate = {"answers": f"sum(rate({metrics['e2e']}_count{{{pods}}}[5m]))"}
        if "preemptions" in metrics:
            rate["preempted"] = f"sum(rate({metrics['preemptions']}_total{{{pods}}}[5m]))"
        yield _panel("Requests a second", rate, "reqps")


def _of_plan(view: View) -> Iterator[Panel]:
    pools = "|".join(sorted(pool.name for pool in view.pools))
    planned = sum(pool.nodes for pool in view.pools)
    nodes = {"now": f'count(kube_node_labels{{label_rightslice_pool=~"{pools}"}})', "planned": str(planned)}
    yield _panel("GPU nodes", nodes, "short")
    ready = f'kube_deployment_status_replicas_available{{namespace="{view.namespace}"}}'
    yield _panel("Replicas available", {"{{deployment}}": ready}, "short")
    used = f'DCGM_FI_DEV_GPU_UTIL{{exported_namespace="{view.namespace}"}}'
    yield _panel("GPU utilisation (whole GPUs only)", {"{{Hostname}} {{gpu}}": used}, "percent")


def _panel(title: str, queries: Mapping[str, str], unit: str, limit: float | None = None) -> Panel:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if limit is not None:
        steps.append({"color": "red", "value": limit})
    drawn = {"thresholdsStyle": {"mode": "line" if limit is not None else "off"}}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "fieldConfig": {
            "defaults": {"unit": unit, "min": 0, "custom": drawn, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "targets": [
            {"refId": chr(65 + number), "datasource": _SOURCE, "expr": query, "legendFormat": name}
            for number, (name, query) in enumerate(queries.items())
        ],
    }


def _laid(row: Sequence[Panel], panels: list[Panel], y: int) -> int:
    """Three panels beside each other; the line below them."""
    for number, panel in enumerate(row):
        place = _place(number % 3 * _WIDTH, y + number // 3 * _HEIGHT, _WIDTH, _HEIGHT)
        panels.append({**panel, "gridPos": place})
    return y + -(-len(row) // 3) * _HEIGHT


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}
