"""The commands that put a plan in place, in order, for one cluster."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rightslice.core.text import visible
from rightslice.manifests.autoscalers import ADAPTER_VALUES, PROMETHEUS, scaled_units
from rightslice.manifests.clouds import cloud, versions
from rightslice.manifests.layout import describe
from rightslice.manifests.nodepools import (
    create_command,
    purchase_note,
    remove_command,
    software_commands,
    variables,
)
from rightslice.manifests.partitions import DISABLED, config_map_name, named_layouts, operator_namespace
from rightslice.manifests.pods import secret_keys, weights_claim
from rightslice.manifests.prose import plain, shell
from rightslice.manifests.sharing import DEFAULT, NODE_LABEL, shared_pools, sharing_map_name
from rightslice.manifests.timing import startup_budget_s
from rightslice.manifests.view import POOL_LABEL, Unit, View, is_local, weights_path
from rightslice.manifests.workloads import front_labels, objective_name

MIG_LABEL = "nvidia.com/mig.config"
MIG_STATE = r"{.metadata.labels.nvidia\.com/mig\.config\.state}"
MIG_TIMEOUT = "30m"
"""OpenShift's page allows 10 to 20 minutes for a change; a reboot comes on top."""


def steps(view: View, folder: str) -> list[str]:
    """Numbered sections, from node pools to a checked answer. `folder` is where this cluster's files lie."""
    made = [
        ("Connect", _connect(view)),
        ("Create the node pools", _pools(view)),
        ("Prepare the GPUs", _software(view, folder)),
        ("Cut the GPUs", _layouts(view, folder)),
        ("Share the GPUs", _sharing(view, folder)),
        ("Provide secrets and weights", _provisions(view, folder)),
        ("Put the gateway in front", _gateway(view)),
        ("Apply", _apply(view, folder)),
        ("Let the autoscalers see", _autoscaling(view, folder)),
        ("Verify", _verify(view)),
    ]
    kept = [(title, text) for title, text in made if text]
    return [f"### {number}. {title}\n\n{text}" for number, (title, text) in enumerate(kept, start=1)]


def _connect(view: View) -> str:
    made = cloud(view.pools[0].pool.platform)
    if made is None:
        return ""
    exports = [f"export {v.name}={v.value}  # {visible(v.meaning)}" for v in variables(view, made)]
    return shell(*exports, made.connect)


def _pools(view: View) -> str:
    parts: list[str] = []
    for pool in view.pools:
        planned = pool.pool
        bought = f"{planned.purchase.capacity.replace('_', ' ')}, {planned.purchase.price.replace('_', ' ')}"
        parts.append(
            f"`{pool.name}`: {pool.nodes} × {plain(planned.machine_type)} "
            f"({planned.gpus_per_node} × {plain(planned.accelerator)}), {plain(planned.region)}, {bought}."
        )
        made = cloud(planned.platform)
        if made is None:
            parts.append(
                f"No commands are known for {pool.platform.title}: label its nodes `{POOL_LABEL}={pool.name}`."
            )
            continue
        parts.append(shell(create_command(view, pool, made)))
        note = purchase_note(view, pool, made)
        if note:
            parts.append(f"Note: {plain(note)}.")
    return "\n\n".join(parts)


def _software(view: View, folder: str) -> str:
    made = cloud(view.pools[0].pool.platform)
    cut, shared = bool(named_layouts(view)), bool(shared_pools(view))
    if made is None:
        return ""
    at_creation = any(pool.profile for pool in view.pools)
    namespace = made.operator_namespace
    commands = list(
        software_commands(view.pools, made, cut_by_operator=cut, shared=shared, cut_at_creation=at_creation)
    )
    if cut or shared or made.quota:
        commands = [
            f"kubectl create namespace {namespace} --dry-run=client -o yaml | kubectl apply -f -",
            f"kubectl apply -k {folder}gpu-operator",
            *commands,
        ]
    if any(unit.grouped for unit in view.units):
        release = (
            f"https://github.com/kubernetes-sigs/lws/releases/download/{versions()['group_version']}/manifests.yaml"
        )
        commands.append(f"kubectl apply --server-side -f {release}")
    checks = [
        f"kubectl get nodes -l {POOL_LABEL}={pool.name} "
        "-o custom-columns='NODE:.metadata.name,GPUS:.status.allocatable.nvidia\\.com/gpu'"
        for pool in view.pools
    ]
    by_hand = f"First {made.by_hand}." if made.by_hand else ""
    if not commands and not by_hand:
        by_hand = "Nothing to do: the platform installs driver and device plugin."
    shown = "Every node must show its GPUs before you go on:"
    return "\n\n".join(part for part in (by_hand, shell(*commands) if commands else "", shown, shell(*checks)) if part)


def _layouts(view: View, folder: str) -> str:
    """Cordon, drain, label, wait, uncordon: the MIG Manager drains nothing and a failed change leaves no GPU."""
    named = named_layouts(view)
    if not named:
        return ""
    made = cloud(view.pools[0].pool.platform)
    policy = made.cluster_policy if made else "cluster-policy"
    patch = (
        '{"spec":{"mig":{"strategy":"mixed"},"migManager":{"config":'
        f'{{"name":"{config_map_name(view)}","default":"{DISABLED}"}}}}}}}}'
    )
    parts = [
        (
            f"The layouts are in `{folder}gpu-operator/{_file_of(view, config_map_name(view))}`. The operator reads one"
            " such ConfigMap: merge it with yours if the cluster has one already. A node that is replaced comes back"
            " uncut: repeat this step for it."
        ),
        shell(f"kubectl patch clusterpolicies.nvidia.com/{policy} --type merge -p '{patch}'"),
    ]
    if view.pools[0].platform.mig_needs_reboot is None:
        parts.append("Where the state of a node turns to `failed`, install the operator with `WITH_REBOOT=true`.")
    first: dict[str, int] = {}
    for layout in named:
        start = first.get(layout.pool.name, 1)
        last = start + layout.layout.nodes - 1
        first[layout.pool.name] = last + 1
        parts += [
            f"`{layout.name}`: {describe(layout.layout.gpus)}.",
            shell(*_relabel(layout.pool.name, layout.name, start, last)),
        ]
    return "\n\n".join(parts)


def _file_of(view: View, config_map: str) -> str:
    """The file of one of the operator's ConfigMaps."""
    return f"configmap-{config_map}.yaml" if named_layouts(view) and shared_pools(view) else "configmap.yaml"


def _sharing(view: View, folder: str) -> str:
    """Name the configuration, label the nodes, restart: the operator does not watch the ConfigMap (its MPS page)."""
    pools = shared_pools(view)
    if not pools:
        return ""
    made = cloud(view.pools[0].pool.platform)
    policy = made.cluster_policy if made else "cluster-policy"
    name = sharing_map_name(view)
    patch = f'{{"spec":{{"devicePlugin":{{"config":{{"name":"{name}","default":"{DEFAULT}"}}}}}}}}'
    restart = f"kubectl -n {operator_namespace(view)} rollout restart daemonset/nvidia-device-plugin-daemonset"
    labels = [
        f"kubectl label nodes -l {POOL_LABEL}={found.pool.name} {NODE_LABEL}={found.configuration} --overwrite"
        for found in pools
    ]
    checks = [
        f"kubectl get nodes -l {POOL_LABEL}={found.pool.name} -o"
        " custom-columns='NODE:.metadata.name,PLACES:.status.allocatable.nvidia\\.com/gpu\\.shared'"
        for found in pools
    ]
    shown = ", ".join(f"{found.places} on each node of `{found.pool.name}`" for found in pools)
    parts = [
        (
            f"How is in `{folder}gpu-operator/{_file_of(view, name)}`. The operator reads one such ConfigMap for its"
            " device plugin: merge it with yours if the cluster has one already. All GPUs of a labelled node are"
            " shared, so no pod that needs a GPU for itself may run there. After a change restart the plugin again."
        )
    ]
    parts.append(
        shell(f"kubectl patch clusterpolicies.nvidia.com/{policy} --type merge -p '{patch}'", *labels, restart)
    )
    parts += [f"Places for pods, {shown}:", shell(*checks)]
    return "\n\n".join(parts)


def _relabel(pool: str, layout: str, first: int, last: int) -> Iterator[str]:
    """A node that fails a step stays cordoned, and the nodes after it stay as they are."""
    yield f"kubectl get nodes -l {POOL_LABEL}={pool} -o name | sort | sed -n '{first},{last}p' | while read -r node; do"
    yield '  kubectl cordon "$node" &&'
    yield '  kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data --timeout=15m </dev/null &&'
    yield f'  kubectl label "$node" {MIG_LABEL}={layout} --overwrite &&'
    yield "  sleep 30 &&  # until the operator has marked the node as pending"
    yield f"  kubectl wait \"$node\" --for=jsonpath='{MIG_STATE}'=success --timeout={MIG_TIMEOUT} &&"
    yield '  kubectl uncordon "$node" || break'
    yield "done"


def _provisions(view: View, folder: str) -> str:
    """Secrets by name, from the reader's environment; never a value."""
    keys = dict.fromkeys(key for unit in view.units for key in secret_keys(unit))
    pulls = dict.fromkeys(unit.rule.pull_secret for unit in view.units if unit.rule)
    commands = [
        f'kubectl -n {view.namespace} create secret generic {key.secret} --from-literal={key.key}="${key.variable}"'
        + ("  # only for gated models" if key.optional else "")
        for key in keys
    ]
    commands += [
        f"kubectl -n {view.namespace} create secret docker-registry {name} "
        "--docker-server=nvcr.io --docker-username='$oauthtoken' --docker-password=\"$NGC_API_KEY\""
        for name in pulls
    ]
    made = cloud(view.pools[0].pool.platform)
    if made and made.account:
        accounts = dict.fromkeys(unit.service for unit in view.units)
        commands += [made.account.format(namespace=view.namespace, account=account) for account in accounts]
    parts = [shell(f"kubectl apply -f {folder}base/namespace.yaml", *commands)] if commands else []
    local = {unit.service: unit for unit in view.units if is_local(unit.model.source) and unit.deployment.engine.args}
    parts += [
        f"`{name}` was planned from a local folder. Put its files into the root of a claim `{weights_claim(unit)}` that"
        f" all its nodes can read; pods see them at `{weights_path(unit.model)}`."
        for name, unit in local.items()
    ]
    parts += [
        f"Set the image of {plain(unit.model.name)} in `{folder}base/kustomization.yaml` under `images:`. It must"
        f" answer GET {plain(unit.deployment.engine.health_path)} on port {unit.deployment.engine.port}."
        for unit in {unit.image: unit for unit in view.units if unit.needs_image}.values()
    ]
    return "\n\n".join(parts)


def _gateway(view: View) -> str:
    """What the emitted InferenceObjectives refer to, and what the simulation counts on."""
    fronts = {unit.service: unit for unit in view.units if unit.model.gateway}
    if not fronts:
        return ""
    first = (
        "The plan counts on an inference gateway. Install its CRDs and the llm-d router (an endpoint picker behind a"
        " proxy) before the objects below are applied, with these InferencePools in the plan's namespace:"
    )
    parts = [first, "\n".join(_pool_row(name, unit) for name, unit in fronts.items())]
    if any(unit.model.gateway and unit.model.gateway.holds for unit in fronts.values()):
        parts.append(
            "Requests wait in the gateway: set `featureGates: [flowControl]` in the endpoint picker's configuration."
            " Its `defaultRequestTTL` (60 s unless set) must be longer than a replica takes to start, or requests are"
            " dropped before they are served. Prometheus must scrape the endpoint picker."
        )
    return "\n\n".join(parts)


def _pool_row(name: str, unit: Unit) -> str:
    labels = ",".join(f"{key}={value}" for key, value in front_labels(unit).items())
    objectives = unit.model.gateway.priorities if unit.model.gateway else {}
    classes = ", ".join(f"`{objective_name(unit.model, found)}` (priority {p})" for found, p in objectives.items())
    return (
        f"- `{name}`: pods with `{labels}`, port {unit.deployment.engine.port}. Clients name one of {classes} in the"
        " header `x-llm-d-inference-objective`; without it a request has priority 0."
    )


def _apply(view: View, folder: str) -> str:
    return shell(f"kubectl apply --server-side -k {folder}base")


def _autoscaling(view: View, folder: str) -> str:
    """Metrics for the autoscalers, and who adds nodes."""
    found = scaled_units(view)
    if not found:
        return ""
    parts = ["Prometheus must scrape the pods with the labels `namespace` and `pod`."]
    if any(scaling.kind == "hpa" for _, scaling in found):
        parts += [
            "HPAs read their metrics from prometheus-adapter. Where the cluster has one, merge the rules with its own:",
            shell(
                "helm repo add prometheus-community https://prometheus-community.github.io/helm-charts",
                "helm upgrade --install prometheus-adapter prometheus-community/prometheus-adapter"
                f" --namespace monitoring --create-namespace -f {folder}{ADAPTER_VALUES}"
                ' --set prometheus.url="$PROMETHEUS_URL" --set prometheus.port="$PROMETHEUS_PORT"',
            ),
        ]
    if any(scaling.kind == "keda" for _, scaling in found):
        parts.append(
            f"KEDA must be installed. Set `serverAddress` of each ScaledObject to your Prometheus instead of"
            f" `{PROMETHEUS}`; a query that finds nothing reads as 0 and keeps the least size."
        )
    kinds = {"hpa": "horizontalpodautoscaler", "keda": "scaledobject.keda.sh"}
    checks = [f"kubectl -n {view.namespace} get {kinds[scaling.kind]}/{unit.name}" for unit, scaling in found]
    parts += ["`TARGETS` must show a number, not `<unknown>`, once a replica is ready:", shell(*checks)]
    made = cloud(view.pools[0].pool.platform)
    if made and made.scaling_note:
        parts.append(made.scaling_note)
    return "\n\n".join(parts)


def _verify(view: View) -> str:
    waits = [
        f"kubectl -n {view.namespace} wait leaderworkerset/{unit.name} --for=condition=Available"
        f" --timeout={startup_budget_s(unit.weights_bytes)}s"
        if unit.grouped
        else f"kubectl -n {view.namespace} rollout status deployment/{unit.name}"
        for unit in view.units
    ]
    fronts = {unit.service: unit.deployment.engine for unit in view.units}
    services = f"/api/v1/namespaces/{view.namespace}/services"
    checks = [
        f"kubectl get --raw {shlex.quote(f'{services}/{name}:http/proxy{facts.health_path}')}"
        for name, facts in fronts.items()
        if facts.health_path
    ]
    addresses = ", ".join(f"`http://{name}.{view.namespace}.svc:{facts.port}`" for name, facts in fronts.items())
    return (
        shell(*waits, f"kubectl -n {view.namespace} get pods -o wide", *checks)
        + f"\n\nClients in the cluster use {addresses}."
    )


def undo(view: View, folder: str) -> str:
    """Back one revision, and all the way out."""
    back = [
        f"kubectl -n {view.namespace} rollout undo deployment/{unit.name}" for unit in view.units if not unit.grouped
    ]
    out = [f"kubectl delete -k {folder}base"]
    out += [
        f"kubectl label nodes -l {POOL_LABEL}={name} {MIG_LABEL}={DISABLED} --overwrite"
        for name in dict.fromkeys(layout.pool.name for layout in named_layouts(view))
    ]
    out += [f"kubectl label nodes -l {POOL_LABEL}={found.pool.name} {NODE_LABEL}-" for found in shared_pools(view)]
    made = cloud(view.pools[0].pool.platform)
    out += [remove_command(view, pool, made) for pool in view.pools] if made else []
    text = "Remove everything. The pools cost money until they are gone:\n\n" + shell(*out)
    return ("Back to the version before:\n\n" + shell(*back) + "\n\n" if back else "") + text
