"""Security and network: privileges, open doors, secrets, variables that services inject."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rightslice.core.errors import Severity
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.rules.granted import needs_cuda
from rightslice.kube.lint.values import Path, dig, entries, fields, shown, text
from rightslice.kube.lint.workloads import Container, Pod

_WITHOUT_CODE = frozenset({
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3",
    "gemma3_text", "opt", "falcon", "gpt_oss", "gpt2", "gpt_neox", "olmo2",
})  # fmt: skip
"""Families that the transformers library has had for long."""
_INJECTED = {"vllm": ("vllm",), "nim": ("nim-server", "nim-http-api", "nim-grpc-api")}
"""Engine -> Service names whose variables (X_PORT=tcp://…) it reads as settings of its own."""
_AGENTS = re.compile(r"dcgm|device-plugin|driver|toolkit|mig-manager|operator|exporter|csi|installer|cni|node-feature")
_SECRET = re.compile(r"(?:^|_)(?:TOKEN|API_KEY|PASSWORD|SECRET|ACCESS_KEY|SECRET_KEY)$")
_INTERNAL = (
    "networking.gke.io/load-balancer-type", "cloud.google.com/load-balancer-type",
    "service.beta.kubernetes.io/aws-load-balancer-internal", "service.beta.kubernetes.io/azure-load-balancer-internal",
)  # fmt: skip
_PLACEHOLDERS = re.compile(
    r"(?-i:[A-Z_]*)|.*(?:your|replace|example).*|none|dummy|empty|not-?needed|test|x+|changeme|token-abc123|\$.*|<.*>|\{\{.*",
    re.IGNORECASE,
)


@rule(
    "RS6902", "error",
    title="A privileged server",
    why="A privileged container, or one in the host's namespaces, owns the node and every GPU of it; inference "
    "needs neither.",
    fix="leave privileged and host namespaces out; a device plugin grants the GPU",
    evidence=(
        "Kubernetes: Pod Security Standards",
        "public manifest: opeyemibami/inferex, 2026-06",
        "public manifest: Angel-FulFilment-Services/Angel-Intelligence, 2026-02",
    ),
)  # fmt: skip
def privileged(context: Context) -> Iterator[Hit]:
    """Servers on GPUs; agents of the node are left out."""
    for pod in context.pods:
        if pod.document.kind == "DaemonSet":
            continue
        for container in pod.containers:
            on_gpu = container.nvidia or needs_cuda(container) or _served(context, container)
            if _AGENTS.search(container.image) or not on_gpu:
                continue
            found = ["privileged"] if dig(container.value, "securityContext", "privileged") is True else []
            found += [name for name in ("hostPID", "hostIPC", "hostNetwork") if pod.spec.get(name) is True]
            if "privileged" in found or "hostPID" in found:
                paths = [
                    text(dig(volume, "hostPath", "path")) for volume in pod.volumes.values() if "hostPath" in volume
                ]
                mounted = f", hostPath {paths[0]}" if paths else ""
                path = (*container.path, "securityContext")
                severity: Severity = "error" if "privileged" in found else "warn"
                message = f"{' + '.join(found)}{mounted}: the container owns the node"
                yield Hit(pod.document, path, message, "", severity)
                break


@rule(
    "RS6903", "error",
    title="An engine open to the internet",
    why="A load balancer in front of an engine without a key gives the GPUs to anybody who finds the address.",
    fix="--api-key from a secret, or a gateway with authentication and TLS; an internal load balancer",
    evidence=("public manifest: HarshithaJ28/llm-infrastructure", "public manifest: Lintasarta/vllm-helm"),
)  # fmt: skip
def public_no_auth(context: Context) -> Iterator[Hit]:
    """LoadBalancer and NodePort services of engines without a key."""
    for service in context.services:
        if service.get("spec", "type") != "LoadBalancer" or _private(service):
            continue
        for server in context.servers:
            if not context.selects(service, server.pod) or "--api-key" in server.flags or server.opaque:
                continue
            if {"VLLM_API_KEY", "API_KEY"} & set(server.container.variables):
                continue
            if len(server.pod.containers) > 1 and _fronted(service, server.container, server.pod):
                continue
            ports = ", ".join(shown(fields(port).get("port")) for port in entries(service.get("spec", "ports")))
            message = (
                f"LoadBalancer on port {ports} in front of {server.pod.document.name}, which has no "
                "--api-key: open to all"
            )
            yield Hit(service, ("spec", "type"), message)


def _served(context: Context, container: Container) -> bool:
    """Whether it starts an engine on something else than a TPU, whose older nodes need privileges."""
    tpu = any("tpu" in name for name in container.accelerators)
    return not tpu and context.server_in(container) is not None


def _private(service: Document) -> bool:
    marks = fields(service.get("metadata", "annotations"))
    ranges = entries(service.get("spec", "loadBalancerSourceRanges"))
    return any(key in marks for key in _INTERNAL) or (bool(ranges) and "0.0.0.0/0" not in ranges)


def _fronted(service: Document, container: Container, pod: Pod) -> bool:
    """Whether the service reaches another container of the pod."""
    targets = {shown(fields(port).get("targetPort")) for port in entries(service.get("spec", "ports"))}
    others = [
        shown(fields(entry).get(key)) for other in pod.containers if other is not container
        for entry in entries(other.value.get("ports")) for key in ("name", "containerPort")
    ]  # fmt: skip
    return bool(targets & set(others))


@rule(
    "RS6904", "error",
    title="A Service whose variables the engine takes for its own",
    why="A Service X injects X_PORT=tcp://… into the pods of its namespace; vLLM reads VLLM_PORT as a number "
    "and crashes.",
    fix="another name for the Service, or enableServiceLinks: false",
    evidence=(
        "vLLM: environment variables",
        "public manifest: TobiasEdman/des-chatbot, 2026-03",
        "public manifest: adityonugrohoid/gpu-autoscale-inference, 2026-03",
        "public manifest: ArchanaChetan07/ai-inference-observability-platform",
    ),
)  # fmt: skip
def service_variables(context: Context) -> Iterator[Hit]:
    """Services and engines of one namespace."""
    read = {name for names in _INJECTED.values() for name in names}
    for service in (service for service in context.services if service.name in read):
        for server in context.servers:
            same = service.namespace == server.pod.namespace and service.name in _INJECTED.get(server.engine, ())
            variable = f"{service.name.upper().replace('-', '_')}_PORT"
            if not same or server.pod.spec.get("enableServiceLinks") is False or variable in server.container.variables:
                continue
            message = (
                f"Service {service.name} injects {variable}=tcp://… into {server.pod.document.name}: the "
                "engine crashes on it"
            )
            yield Hit(service, ("metadata", "name"), message)


@rule(
    "RS6909", "info",
    title="Code from the model repository is run",
    why="--trust-remote-code runs Python from the repository with the rights of the server; most models have "
    "long had none.",
    fix="leave it out for models that the engine knows by itself",
    evidence=("public manifest: andrewaddo/gke-vllm-hdml",),
)  # fmt: skip
def trust_remote_code(context: Context) -> Iterator[Hit]:
    """Families that libraries and engines have by themselves."""
    for server in context.servers:
        model = context.model(server)
        family = model.architecture.family if model is not None and model.architecture is not None else ""
        if "--trust-remote-code" in server.flags and model is not None and family in _WITHOUT_CODE:
            path: Path = server.container.args_path
            yield Hit(server.container.document, path, f"{model.name} needs no --trust-remote-code")


@rule(
    "RS6910", "warn",
    title="A secret written in clear",
    why="Whoever reads the manifest or its history has the key.",
    fix="valueFrom.secretKeyRef",
    evidence=("Kubernetes: Secrets",),
)  # fmt: skip
def literal_secret(context: Context) -> Iterator[Hit]:
    """Variables of GPU pods whose name says that they hold a secret."""
    for pod in context.pods:
        if not (pod.accelerated or context.server(pod)):
            continue
        for container in (*pod.containers, *pod.init_containers):
            for index, entry in enumerate(map(fields, entries(container.value.get("env")))):
                name, value = text(entry.get("name")), shown(entry.get("value"))
                if _SECRET.search(name) and len(value) >= 8 and not _PLACEHOLDERS.fullmatch(value):
                    path = (*container.path, "env", index)
                    yield Hit(pod.document, path, f"{name} holds its value in clear ({len(value)} characters)")
