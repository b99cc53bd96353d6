"""The objects of one model: Deployments or LeaderWorkerSets, and what stands in front of them."""

from __future__ import annotations

from collections.abc import Sequence

from rightslice.core.plan import Deployment, PlannedModel
from rightslice.kube.names import label_value, safe_name
from rightslice.kube.objects import (
    Metadata,
    Object,
    deployment,
    inference_objective,
    leader_worker_set,
    pod_disruption_budget,
    service,
    service_account,
)
from rightslice.manifests.autoscalers import autoscaler
from rightslice.manifests.pods import pod_template, ports
from rightslice.manifests.timing import rollout_deadline_s
from rightslice.manifests.view import ROLE_LABEL, Unit, model_labels

PLAN_ANNOTATION = "rightslice/plan"
RATE_ANNOTATION = "rightslice/predicted-rate"


def model_objects(units: Sequence[Unit]) -> list[Object]:
    """Everything of one model: its workloads, then account, Service and disruption budget of each role."""
    made = [workload(unit) for unit in units]
    made += [autoscaler(unit, _metadata(unit), unit.scaling) for unit in units if unit.scaling]
    fronts: dict[str, list[Unit]] = {}
    for unit in units:
        fronts.setdefault(unit.service, []).append(unit)
    for name, behind in fronts.items():
        made += _front(name, behind)
    return made + _objectives(units[0])


def _objectives(unit: Unit) -> list[Object]:
    """One for each class of a model behind an inference gateway; its InferencePool bears the name of the Service."""
    gateway = unit.model.gateway
    if gateway is None:
        return []
    labels, marked = model_labels(unit.plan, unit.model), {PLAN_ANNOTATION: unit.plan}
    return [
        inference_objective(Metadata(objective_name(unit.model, name), unit.namespace, labels, marked), unit.service, p)
        for name, p in gateway.priorities.items()
    ]


def objective_name(model: PlannedModel, traffic_class: str) -> str:
    """What clients of a class name in the header `x-llm-d-inference-objective`."""
    return safe_name(f"{model.name}-{traffic_class}")


def workload(unit: Unit) -> Object:
    """The workload of one deployment."""
    metadata = _metadata(unit)
    return leader_worker_set(metadata, _group_spec(unit)) if unit.grouped else deployment(metadata, _spec(unit))


def _metadata(unit: Unit) -> Metadata:
    return Metadata(unit.name, unit.namespace, unit.labels(), marks(unit))


def marks(unit: Unit) -> dict[str, str]:
    """Which plan it comes from and what one replica is predicted to carry."""
    predicted = predicted_rate(unit.deployment)
    return {PLAN_ANNOTATION: unit.plan, **({RATE_ANNOTATION: predicted} if predicted else {})}


def predicted_rate(planned: Deployment) -> str:
    """`2.6 (1.9 to 3.6) requests/s a replica, measured`; empty where no load was planned."""
    rate = planned.max_rate
    if rate is None:
        return ""
    return f"{rate.value:.3g} ({rate.low:.3g} to {rate.high:.3g}) requests/s a replica, {rate.provenance}"


def _spec(unit: Unit) -> Object:
    """A rolling update starts a new pod first only where the plan has room for it, else it would wait for ever.

    No size where an autoscaler has it: applying the manifest again would set it back.
    """
    surge, unavailable = (1, 0) if unit.spare else (0, 1)
    return {
        "replicas": None if unit.scaling else unit.deployment.replicas.steady,
        "revisionHistoryLimit": 5,
        "progressDeadlineSeconds": rollout_deadline_s(unit.weights_bytes),
        "selector": {"matchLabels": unit.selector()},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
        },
        "template": pod_template(unit),
    }


def _group_spec(unit: Unit) -> Object:
    """Groups come and go whole: a tensor that lost one node is lost. The leader serves HTTP once its workers joined."""
    return {
        "replicas": unit.deployment.replicas.steady,
        "startupPolicy": "LeaderCreated",
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1},
        },
        "leaderWorkerTemplate": {
            "size": unit.pods_per_replica,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": pod_template(unit),
            "workerTemplate": pod_template(unit, worker=True),
        },
    }


def front_labels(unit: Unit) -> dict[str, str]:
    """Labels of the pods that take the requests of its model and role."""
    return {"app.kubernetes.io/name": label_value(unit.model.name), ROLE_LABEL: unit.deployment.role}


def _front(name: str, units: Sequence[Unit]) -> list[Object]:
    first = units[0]
    labels, behind = model_labels(first.plan, first.model), front_labels(first)
    metadata = Metadata(name, first.namespace, labels, {"rightslice/plan": first.plan})
    made = [service_account(metadata), service(metadata, behind, ports(first))]
    if sum(unit.deployment.replicas.steady for unit in units) > 1:
        made.append(pod_disruption_budget(metadata, behind, max_unavailable=1))
    return made
