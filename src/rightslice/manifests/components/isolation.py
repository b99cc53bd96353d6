"""Network policies: only who is let in talks to the models, and they only to where their weights come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from rightslice.kube.objects import Fields, Json, Metadata, Object, custom
from rightslice.manifests.components.component import Component
from rightslice.manifests.pods import ports
from rightslice.manifests.view import Unit, View, plan_labels
from rightslice.manifests.workloads import front_labels

CLIENT: Final = "rightslice/client"
SCRAPER: Final = "rightslice/scraper"
"""Labels of namespaces that may send requests, and whose Prometheus may read metrics."""
DNS_PORT: Final = 53
WEB_PORTS: Final = {"http": 80, "https": 443}


def isolation(view: View) -> Component:
    """Default deny with the openings that the plan needs."""
    policies = [_policy(view, "default-deny", {}, {"ingress": [], "egress": []}), _policy(view, "dns", {}, _dns())]
    policies += _openings(view)
    return Component(
        "network-policy",
        "default deny; DNS, the hub or its mirror, requests from labelled namespaces, metrics for labelled ones",
        f"a network plugin that enforces policies; the namespaces of gateway and clients labelled `{CLIENT}=true`, "
        f"that of Prometheus `{SCRAPER}=true`",
        tuple(policies),
    )


def _openings(view: View) -> Iterator[Object]:
    seen: set[str] = set()
    for unit in view.units:
        if unit.service in seen:
            continue
        seen.add(unit.service)
        served = sorted(set(ports(unit).values()))
        sources: list[Json] = [{"podSelector": {}}, _namespaces(CLIENT), _namespaces(SCRAPER)]
        ingress: Json = [{"from": sources, "ports": [_port(port) for port in served]}]
        egress: Json = [{"ports": _hub_ports(unit)}, {"to": [{"podSelector": {}}]}]
        rules: dict[str, Json] = {"ingress": ingress, "egress": egress}
        yield _policy(view, unit.service, front_labels(unit), rules)
    for unit in view.units:
        if unit.grouped:
            among: Json = [{"podSelector": {"matchLabels": dict(unit.selector())}}]
            rules = {"ingress": [{"from": among}], "egress": [{"to": among}, {"ports": _hub_ports(unit)}]}
            yield _policy(view, f"{unit.name}-group", unit.selector(), rules)


def _hub_ports(unit: Unit) -> Json:
    """HTTPS, and that of the hub's mirror where it listens elsewhere; a port outside 1..65535 was refused before."""
    mirror = urlsplit(unit.mirrors.hub_endpoint or "https:")
    return [_port(number) for number in sorted({WEB_PORTS["https"], mirror.port or WEB_PORTS[mirror.scheme]})]


def _dns() -> dict[str, Json]:
    """To any address: a resolver on the node itself (NodeLocal DNSCache) is in no namespace."""
    return {"egress": [{"ports": [_port(DNS_PORT, "UDP"), _port(DNS_PORT)]}]}


def _namespaces(label: str) -> Object:
    return {"namespaceSelector": {"matchLabels": {label: "true"}}}


def _port(number: int, protocol: str = "TCP") -> Object:
    return {"protocol": protocol, "port": number}


def _policy(view: View, name: str, pods: Fields, rules: Fields) -> Object:
    """Applies to pods with these labels, to all where there are none."""
    selector: Object = {"matchLabels": dict(pods)} if pods else {}
    types = [kind.capitalize() for kind in ("ingress", "egress") if kind in rules]
    metadata = Metadata(name, view.namespace, plan_labels(view.plan.name))
    kept = {key: value for key, value in rules.items() if value}
    spec = {"podSelector": selector, "policyTypes": types, **kept}
    return custom("networking.k8s.io/v1", "NetworkPolicy", metadata, spec)
