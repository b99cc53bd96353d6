"""Every published case of the HorizontalPodAutoscaler and of KEDA, tick by tick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rightslice.simulation.control.hpa import decide
from rightslice.simulation.control.hpa_limits import HpaState
from rightslice.simulation.control.hpa_metrics import Observation
from rightslice.simulation.control.hpa_spec import (
    Behavior,
    ControllerFlags,
    HpaSpec,
    Metric,
    ScalingPolicy,
    ScalingRules,
)
from rightslice.simulation.control.keda import KedaState, ScaledObject, Trigger, poll, sync

CASES = yaml.safe_load((Path(__file__).parents[3] / "data" / "autoscaling" / "hpa_cases.yaml").read_text())["cases"]


def _rules(given: dict[str, Any]) -> ScalingRules:
    policies = given.get("policies")
    return ScalingRules(
        window_s=given.get("stabilizationWindowSeconds"),
        select=given.get("selectPolicy", "Max"),
        policies=policies and tuple(ScalingPolicy(p["type"], p["value"], p["periodSeconds"]) for p in policies),
        tolerance=given.get("tolerance"),
    )


def _metric(given: dict[str, Any]) -> Metric:
    default = "Utilization" if given["type"] == "Resource" else "AverageValue"
    target_type = given.get("targetType", default)
    return Metric(given["name"], given["type"], given["target"], target_type, given.get("request", 0.0))


def _flags(case: dict[str, Any]) -> ControllerFlags:
    gates = case.get("feature_gates", {})
    return ControllerFlags(
        tolerance=case.get("tolerance", 0.1),
        downscale_stabilization_s=case.get("downscale_stabilization_s", 300),
        configurable_tolerance=gates.get("HPAConfigurableTolerance", False),
        scale_to_zero=gates.get("HPAScaleToZero", False),
    )


def _behavior(case: dict[str, Any]) -> Behavior | None:
    given = case["hpa"]["behavior"]
    return None if given is None else Behavior(_rules(given.get("scaleUp", {})), _rules(given.get("scaleDown", {})))


def _seen(tick: dict[str, Any], replicas: int) -> Observation:
    pods = tick.get("pods", {})
    values = {
        name: None if value == "error" else tuple(value) if isinstance(value, list) else float(value)
        for name, value in tick["values"].items()
    }
    return Observation(
        replicas,
        values,
        ready=pods.get("ready"),
        existing=pods.get("status_replicas"),
        pending=pods.get("pending", 0),
        no_sample=pods.get("no_metric", 0),
        cpu_unready=pods.get("cpu_unready", 0),
    )


def _run_hpa(case: dict[str, Any]) -> list[int]:
    hpa = case["hpa"]
    metrics = tuple(_metric(m) for m in hpa["metrics"])
    spec = HpaSpec(hpa["maxReplicas"], metrics, hpa["minReplicas"], _behavior(case), _flags(case))
    state, replicas, out = HpaState(), case["start_replicas"], []
    for tick in case["ticks"]:
        decision = decide(tick["t"], spec, state, _seen(tick, replicas))
        state, replicas = decision.state, decision.replicas
        out.append(replicas)
    return out


def _run_keda(case: dict[str, Any]) -> list[int]:
    keda = case["keda"]
    triggers = tuple(Trigger(_metric(m), keda["activationThreshold"]) for m in case["hpa"]["metrics"])
    spec = ScaledObject(
        triggers,
        min_replicas=keda["minReplicaCount"],
        max_replicas=case["hpa"]["maxReplicas"],
        polling_interval_s=keda["pollingInterval"],
        cooldown_s=keda["cooldownPeriod"],
        behavior=_behavior(case),
        flags=_flags(case),
    )
    assert spec.hpa.min_replicas == case["hpa"]["minReplicas"]
    state, replicas, out = KedaState(), case["start_replicas"], []
    for tick in case["ticks"]:
        if tick["t"] % spec.polling_interval_s == 0:
            polled = poll(tick["t"], spec, state, _seen(tick, replicas))
            state, replicas = polled.state, polled.replicas
        decision, state = sync(tick["t"], spec, state, _seen(tick, replicas))
        replicas = decision.replicas
        out.append(replicas)
    return out


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_published_case(case: dict[str, Any]) -> None:
    assert (_run_keda(case) if "keda" in case else _run_hpa(case)) == case["expected"]


def test_all_cases_are_there() -> None:
    assert len(CASES) == 57
