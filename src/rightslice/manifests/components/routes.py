"""A Gateway with TLS, and a route to each model by the name that clients put into the body of their requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rightslice.catalogue.engines import engines
from rightslice.core.text import plural
from rightslice.kube.objects import Json, Metadata, Object, custom
from rightslice.manifests.components.component import Component
from rightslice.manifests.pods import ports, stop
from rightslice.manifests.view import Unit, View, plan_labels
from rightslice.manifests.workloads import front_labels

GATEWAY_API: Final = "gateway.networking.k8s.io/v1"
POOL_API: Final = "inference.networking.k8s.io/v1"
DEFAULT_CLASS: Final = "istio"
"""Implements InferencePool; overlays of clouds with a class of their own change it."""
MODEL_HEADER: Final = "X-Gateway-Model-Name"
"""Set by the body-based router of the Gateway API inference extension from `model` in the body."""
TLS_SECRET: Final = "inference-tls"  # noqa: S105 - the name of a Secret
PICKER_PORT: Final = 9002
MIN_TIMEOUT_S: Final = 60


def routes(view: View) -> Component | None:
    """None where no model speaks HTTP to clients."""
    fronts = list(_fronts(view))
    if not fronts:
        return None
    gateway = custom(
        GATEWAY_API,
        "Gateway",
        Metadata("inference", view.namespace, plan_labels(view.plan.name)),
        {
            "gatewayClassName": DEFAULT_CLASS,
            "listeners": [
                {
                    "name": "https",
                    "protocol": "HTTPS",
                    "port": 443,
                    "tls": {"mode": "Terminate", "certificateRefs": [{"name": TLS_SECRET}]},
                    "allowedRoutes": {"namespaces": {"from": "Same"}},
                }
            ],
        },
    )
    pools = [_pool(unit) for unit in fronts if unit.model.gateway]
    picker = f"; an endpoint picker for {plural(len(pools), 'InferencePool')} (llm-d router), named as it refers to it"
    return Component(
        "gateway",
        "a Gateway with TLS, a route to each model with the time that its longest answers take"
        + (", InferencePools" if pools else ""),
        f"a Gateway API implementation of class `{DEFAULT_CLASS}` or your cloud's; the Secret `{TLS_SECRET}` with your "
        f"certificate; body-based routing, which sets `{MODEL_HEADER}`" + (picker if pools else ""),
        (gateway, *pools, *(_route(view, unit) for unit in fronts)),
    )


def _fronts(view: View) -> Iterator[Unit]:
    """One workload for each Service that clients call; prefill stands behind decode."""
    seen: set[str] = set()
    for unit in view.units:
        if unit.deployment.role != "prefill" and unit.service not in seen:
            seen.add(unit.service)
            yield unit


def _pool(unit: Unit) -> Object:
    metadata = Metadata(unit.service, unit.namespace, unit.labels())
    return custom(
        POOL_API,
        "InferencePool",
        metadata,
        {
            "selector": {"matchLabels": dict(front_labels(unit))},
            "targetPorts": [{"number": ports(unit)["http"]}],
            "endpointPickerRef": {"name": picker_name(unit), "kind": "Service", "port": {"number": PICKER_PORT}},
        },
    )


def picker_name(unit: Unit) -> str:
    """The Service of the endpoint picker of a model."""
    return f"{unit.service[:59]}-epp"


def served_name(unit: Unit) -> str:
    """What clients put into `model`: the engine's own name for it, which is its source unless arguments say another."""
    arguments = unit.deployment.engine.args
    if "--served-model-name" in arguments:
        return arguments["--served-model-name"].split()[0]
    known = unit.deployment.engine.name in engines() and not unit.needs_image
    return unit.model.source if known and unit.model.source else unit.model.name


def _route(view: View, unit: Unit) -> Object:
    backend: dict[str, Json] = (
        {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": unit.service}
        if unit.model.gateway
        else {"name": unit.service, "port": ports(unit)["http"]}
    )
    return custom(
        GATEWAY_API,
        "HTTPRoute",
        Metadata(unit.service, unit.namespace, plan_labels(view.plan.name)),
        {
            "parentRefs": [{"name": "inference"}],
            "rules": [
                {
                    "matches": [{"headers": [{"name": MODEL_HEADER, "value": served_name(unit)}]}],
                    "timeouts": {"request": f"{max(MIN_TIMEOUT_S, stop(unit).drain_s)}s"},
                    "backendRefs": [backend],
                }
            ],
        },
    )
