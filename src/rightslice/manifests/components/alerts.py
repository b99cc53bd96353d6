"""Alerts from the plan's own objectives, sizes and prices; expressions in `data/alerts.yaml`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from rightslice.catalogue.engines import engines
from rightslice.core.plan import PlannedModel
from rightslice.core.quantities import format_seconds, format_usd, parse_usd
from rightslice.core.slo import Slo
from rightslice.core.text import visible
from rightslice.kube.names import safe_name
from rightslice.kube.objects import Json
from rightslice.manifests.timing import startup_budget_s
from rightslice.manifests.view import Unit, View

ALL_BUT_ALL: Final = 0.9
"""A fast burn asks for this share of misses at most."""
HOURS_PER_MONTH: Final = 730.0
_NAMES: Final = {"ttft": "time to the first token", "tpot": "time per output token", "e2e": "end-to-end time"}


@cache
def _data() -> dict[str, Any]:
    text = (files("rightslice.manifests") / "data" / "alerts.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    return loaded


def rule_groups(view: View) -> list[Json]:
    """Groups of a PrometheusRule: one for each model, one for the whole plan."""
    groups: list[Json] = []
    for model in view.plan.models:
        if units := view.of_model(model):
            rules = list(_of_model(view, model, units))
            if rules:
                groups.append({"name": f"rightslice.{safe_name(model.name)}", "rules": rules})
    return [*groups, {"name": "rightslice.plan", "rules": list(_of_plan(view))}]


def pod_matchers(units: Sequence[Unit]) -> str:
    """Labels of the series of these workloads' pods, and of no workload whose name begins alike."""
    return f'namespace="{units[0].namespace}",pod=~"{pods_of(units)}"'


def pods_of(units: Sequence[Unit]) -> str:
    """Regular expression of their pods' names: a Deployment adds two random words, a group one or two numbers."""
    suffix = "[0-9]+(-[0-9]+)?" if units[0].grouped else "[a-z0-9]+-[a-z0-9]+"
    return f"({'|'.join(unit.name for unit in units)})-{suffix}"


def metrics_of(units: Sequence[Unit]) -> Mapping[str, str]:
    """Role -> metric of the engine; empty where none is known. Deployments of one model have one engine."""
    planned = units[0].deployment.engine
    facts = engines().get(planned.name)
    try:
        return facts.metrics(planned.version) if facts else {}
    except KeyError:
        return {}


def _of_model(view: View, model: PlannedModel, units: Sequence[Unit]) -> Iterator[Json]:
    metrics = metrics_of(units)
    said = {
        "model": visible(model.name),
        "pods": pod_matchers(units),
        "namespace": view.namespace,
        "workloads": "|".join(unit.name for unit in units),
        "names": pods_of(units),
        "most": str(sum(_most(unit) for unit in units)),
        "start_s": str(max(startup_budget_s(unit.weights_bytes) for unit in units)),
        "usd_per_hour": format_usd(_usd_per_hour(view, units)),
        **metrics,
    }
    for slo in _strictest(model):
        yield from _burn_rates(slo, units, metrics, said)
    may_sleep = all(unit.scaling is not None and unit.scaling.min_replicas == 0 for unit in units)
    for row in _data()["engine"]:
        known = all(role in metrics for role in row["roles"]) and (said["most"] != "0" or "{most}" not in row["expr"])
        if known and not (may_sleep and row.get("awake")):
            yield _rule(row, said)
    for row in _data()["workload"]:
        if not (units[0].grouped and "deployment" in row["expr"]) and not (may_sleep and row.get("awake")):
            yield _rule(row, said)


def _strictest(model: PlannedModel) -> list[Slo]:
    """One objective of each metric: engines do not know classes."""
    found: dict[str, Slo] = {}
    for result in model.slos:
        known = found.get(result.slo.metric)
        if known is None or result.slo.at_most_s < known.at_most_s:
            found[result.slo.metric] = result.slo
    return [found[metric] for metric in sorted(found)]


def _burn_rates(slo: Slo, units: Sequence[Unit], metrics: Mapping[str, str], said: Mapping[str, str]) -> Iterator[Json]:
    edges = _data()["buckets"].get(units[0].deployment.engine.name, {}).get(slo.metric)
    if not edges or slo.metric not in metrics:
        return
    edge = min(edges, key=lambda edge: abs(math.log(edge / slo.at_most_s)))
    allowed = 1.0 - slo.share
    for row in _data()["objective"]:
        share = min(row["burn"] * allowed, ALL_BUT_ALL)
        over = [_missed(metrics[slo.metric], edge, window, said["pods"], share) for window in row["windows"]]
        told = {**said, "metric": f"{_NAMES[slo.metric]} within {format_seconds(slo.at_most_s)}"}
        made = {
            "name": f"{slo.metric.capitalize()}{row['name']}",
            "severity": row["severity"],
            "for": row["for"],
            "expr": " and ".join(over).replace("{", "{{").replace("}", "}}"),
            "summary": row["summary"],
            "action": f"{slo.share:.4g} of requests should keep {format_seconds(slo.at_most_s)}; the histogram's "
            f"nearest edge is {format_seconds(edge)}",
        }
        yield _rule(made, told)


def _missed(metric: str, edge: float, window: str, pods: str, share: float) -> str:
    """Share of requests above the edge in a window, over what is allowed; edges as Prometheus 2 and 3 write them."""
    edges = f"{edge:g}|{edge:.1f}" if edge == int(edge) else f"{edge:g}"
    kept = f'sum(rate({metric}_bucket{{{pods},le=~"{edges}"}}[{window}]))'
    return f"1 - {kept} / sum(rate({metric}_count{{{pods}}}[{window}])) > {share:.4g}"


def _of_plan(view: View) -> Iterator[Json]:
    hourly = sum(pool.nodes * pool.pool.hourly_usd for pool in view.pools)
    budget = _budget_usd(view)
    spend = (
        f'(count(kube_node_labels{{label_rightslice_pool="{pool.name}"}}) or vector(0)) * {pool.pool.hourly_usd:.6g}'
        for pool in view.pools
    )
    said = {
        "pools": "|".join(sorted(pool.name for pool in view.pools)),
        "nodes": str(sum(max(pool.pool.nodes_max, pool.nodes) for pool in view.pools)),
        "usd_per_month": format_usd(hourly * HOURS_PER_MONTH),
        "spend": " + ".join(spend),
        "budget_usd": f"{budget:.10g}" if budget else "",
        "budget": format_usd(budget) if budget else "",
    }
    for row in _data()["plan"]:
        if budget or not row.get("budget"):
            yield _rule(row, said)


def _budget_usd(view: View) -> float | None:
    """`budget.monthly` of the workload, which is kept as written."""
    asked = ((view.plan.workload or {}).get("budget") or {}).get("monthly")
    return None if asked is None else parse_usd(str(asked))


def _most(unit: Unit) -> int:
    """Sequences that all its replicas run at once; 0 where the engine is not known."""
    settings = unit.deployment.engine.settings
    return settings.max_num_seqs * unit.deployment.replicas.steady if settings else 0


def _usd_per_hour(view: View, units: Sequence[Unit]) -> float:
    """The nodes of its pools, by its share of their GPUs."""
    total = 0.0
    for unit in units:
        pool = unit.pool
        gpus = pool.nodes * pool.pool.gpus_per_node
        total += pool.nodes * pool.pool.hourly_usd * min(_gpus(view, unit) / gpus, 1.0) if gpus else 0.0
    return total


def _gpus(view: View, unit: Unit) -> float:
    """GPUs that a workload holds; a GPU that others share counts by the number of its tenants."""
    held = 0.0
    for placement in view.plan.placements:
        if placement.pool != unit.pool.pool.name:
            continue
        tenants = [slot for slot in placement.slots if slot.deployment]
        own = sum(slot.deployment == unit.deployment.id for slot in tenants)
        held += own / len(tenants) if own else 0.0
    return held


def _rule(row: Mapping[str, Any], said: Mapping[str, str]) -> Json:
    return {
        "alert": f"Rightslice{row['name']}",
        "expr": str(row["expr"]).format(**said),
        "for": str(row["for"]).format(**said),
        "labels": {"severity": row["severity"], **({"model": said["model"]} if "model" in said else {})},
        "annotations": {"summary": row["summary"].format(**said), "action": row["action"].format(**said)},
    }
