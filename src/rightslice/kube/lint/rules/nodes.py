"""Node pools: GKE ComputeClass, Karpenter NodePool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rightslice.catalogue.accelerators import accelerators
from rightslice.core.errors import nearest
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.finding import Hit, rule
from rightslice.kube.lint.hardware import families, machines_of, pool_machines, requirements
from rightslice.kube.lint.schema import known_kinds
from rightslice.kube.lint.values import Path, Value, dig, entries, fields, quantity, seconds, shown, text
from rightslice.kube.lint.workloads import GPU, Pod

_FAMILY_KEYS = ("karpenter.k8s.aws/instance-family", "eks.amazonaws.com/instance-family")
_OLD = frozenset({"g2", "g3", "g3s", "p2", "p3", "p3dn"})
_FIRST_USABLE = 7.5
_GPU_LIKE = ("g", "p", "trn", "inf", "dl", "vt")
_QUICK_S = 120.0
_GPU_SERIES = ("g2-", "g4-", "a2-", "a3-", "a4-", "a4x-")


def _rungs(document: Document) -> list[tuple[Path, dict[str, Value]]]:
    listed = entries(document.get("spec", "priorities"))
    return [(("spec", "priorities", index), dict(fields(entry))) for index, entry in enumerate(listed)]


def _gpu_pods(context: Context, document: Document) -> list[Pod]:
    """Pods that ask for GPUs of this class."""
    chosen = (pod for pod in context.pods if document.name in pod.node_labels.get("cloud.google.com/compute-class", ()))
    return [pod for pod in chosen if pod.gpus]


@rule(
    "RS6801", "error",
    title="A rule of the compute class without a gpu block",
    why="Node auto-provisioning attaches a GPU only where the rule says so: without the block no GPU pool is "
    "created and pods stay Pending (observed: 50 minutes).",
    fix="gpu: {type: …, count: …} in every rule",
    evidence=("GKE: ComputeClass reference", "a public manifest"),
)  # fmt: skip
def gpu_block(context: Context) -> Iterator[Hit]:
    """Classes that GPU pods select, and rules that name GPU machines."""
    for document in context.of("ComputeClass"):
        wanted = _gpu_pods(context, document)
        for path, found in _rungs(document):
            machine = shown(found.get("machineType"))
            family = shown(found.get("machineFamily"))
            gpu_machine = machine.startswith(_GPU_SERIES) or f"{family}-" in _GPU_SERIES
            created = document.get("spec", "nodePoolAutoCreation", "enabled") is True or not found.get("nodepools")
            if (wanted or gpu_machine) and created and not fields(found.get("gpu")) and not found.get("nodepools"):
                what = machine or family or "this rule"
                accelerator = next((row.accelerator for row in machines_of([machine])), "")
                fix = f"gpu: {{type: nvidia-{accelerator.lower()}, count: 1}}" if accelerator == "L4" else ""
                yield Hit(
                    document,
                    path,
                    f"{what} without gpu: {{type, count}}: no GPU pool is created, pods stay Pending",
                    fix,
                )


@rule(
    "RS6802", "warn",
    title="DoNotScaleUp beside flex-start",
    why="Together they made the autoscaler fail in an observed run.",
    fix="leave whenUnsatisfiable out, or the flex-start rung",
    evidence=("a public manifest",),
)  # fmt: skip
def unsatisfiable_with_flex(context: Context) -> Iterator[Hit]:
    """Both in one class."""
    for document in context.of("ComputeClass"):
        flex = any(dig(found, "flexStart", "enabled") is True for _, found in _rungs(document))
        if flex and document.get("spec", "whenUnsatisfiable") == "DoNotScaleUp":
            yield Hit(document, ("spec", "whenUnsatisfiable"), "DoNotScaleUp together with a flexStart rung")


@rule(
    "RS6803", "warn",
    title="No on-demand rung",
    why="Where spot and flex-start are sold out, pods stay Pending for ever.",
    fix="an on-demand rule at the end, or a reservation",
    evidence=("a public manifest",),
)  # fmt: skip
def no_on_demand(context: Context) -> Iterator[Hit]:
    """Every rule is spot or flex-start."""
    for document in context.of("ComputeClass"):
        rungs = _rungs(document)
        taken = [found for _, found in rungs if found.get("spot") is True or dig(found, "flexStart", "enabled") is True]
        if rungs and len(taken) == len(rungs):
            yield Hit(document, ("spec", "priorities"), "only spot and flex-start: a stock-out leaves pods Pending")


@rule(
    "RS6811", "error",
    title="Zones beside a specific reservation",
    why="GKE refuses location.zones in a rule whose reservation affinity is Specific: the reservation has its zone.",
    fix="leave the zones out",
    evidence=("GKE: ComputeClass reference",),
)  # fmt: skip
def zones_with_reservation(context: Context) -> Iterator[Hit]:
    """In the rule, or as default of all."""
    for document in context.of("ComputeClass"):
        default = entries(document.get("spec", "priorityDefaults", "location", "zones"))
        for path, found in _rungs(document):
            zones = entries(dig(found, "location", "zones")) or default
            if zones and dig(found, "reservations", "affinity") == "Specific":
                yield Hit(
                    document, path, f"zones {', '.join(map(shown, zones[:3]))} beside a Specific reservation: refused"
                )


@rule(
    "RS6812", "error",
    title="A compute class of a group that does not exist",
    why="The API server knows ComputeClass as cloud.google.com/v1 only.",
    fix="apiVersion: cloud.google.com/v1",
    evidence=("seen in a generator of manifests",),
)  # fmt: skip
def class_version(context: Context) -> Iterator[Hit]:
    """By kind."""
    for document in context.of("ComputeClass"):
        if document.api_version != "cloud.google.com/v1":
            yield Hit(document, ("apiVersion",), f"ComputeClass is not served as {document.api_version}")


def _gpu_families(document: Document) -> list[str]:
    asked = requirements(document)
    return [value for key in _FAMILY_KEYS for value in asked.get(key, ())]


def _starts_gpus(document: Document) -> bool:
    """Whether a Karpenter pool is for GPUs: its machines, its families, or its taint."""
    if pool_machines(document) or any(name in families() or name in _OLD for name in _gpu_families(document)):
        return True
    taints = entries(document.get("spec", "template", "spec", "taints"))
    named = any("gpu" in key for key in requirements(document))
    return named or any(text(fields(taint).get("key")) == GPU for taint in taints)


@rule(
    "RS6804", "error",
    title="A GPU pool without a limit of GPUs",
    why="A limit on CPU alone lets one bad Deployment start machines of eight GPUs each until the CPUs are used up.",
    fix="limits: {nvidia.com/gpu: …} with what may be spent",
    evidence=("public manifest: walidshaari/sample-aws-eks-auto-mode",),
)  # fmt: skip
def no_gpu_limit(context: Context) -> Iterator[Hit]:
    """limits without nvidia.com/gpu."""
    for document in context.of("NodePool"):
        if not document.api_version.startswith("karpenter.sh/") or not _starts_gpus(document):
            continue
        limits = fields(document.get("spec", "limits"))
        if GPU in limits:
            continue
        cpus = quantity(limits.get("cpu"))
        rows = [row for row in pool_machines(document) if row.vcpu]
        largest = max(rows, key=lambda row: (row.accelerator_count, row.on_demand_usd_per_hour or 0.0), default=None)
        worst = ""
        if cpus and largest is not None and largest.vcpu:
            count = int(cpus // largest.vcpu)
            gpus = f"{largest.vcpu} vCPU, {largest.accelerator_count:g} GPUs each"
            worst = f": up to {count} x {largest.machine_type} ({gpus}) may be started"
        stated = f"limits.cpu {cpus:g} and no nvidia.com/gpu limit" if cpus else "no limits at all"
        path: Path = ("spec", "limits") if limits else ("spec",)
        yield Hit(document, path, stated + worst)


@rule(
    "RS6805", "error",
    title="A taint with an operator",
    why="Taints have key, value and effect; operators belong to tolerations. The API server refuses the pool.",
    fix="leave operator out",
    evidence=("Karpenter: NodePool CRD", "public manifest: walidshaari/sample-aws-eks-auto-mode"),
)  # fmt: skip
def taint_operator(context: Context) -> Iterator[Hit]:
    """In pools whose version has no schema here; for others the schema says it."""
    for document in context.of("NodePool"):
        if f"{document.api_version}/NodePool" in known_kinds():
            continue
        for index, taint in enumerate(map(fields, entries(document.get("spec", "template", "spec", "taints")))):
            if "operator" in taint:
                path = ("spec", "template", "spec", "taints", index, "operator")
                yield Hit(document, path, "taints have no operator field (tolerations have): refused")


@rule(
    "RS6806", "warn",
    title="An instance family that does not exist",
    why="A name that matches nothing narrows the pool silently.",
    fix="the family's full name",
    evidence=("Karpenter: instance types", "public manifest: walidshaari/sample-aws-eks-auto-mode"),
)  # fmt: skip
def family_unknown(context: Context) -> Iterator[Hit]:
    """Names that begin like accelerated families and are none."""
    for document in context.of("NodePool"):
        unknown = [
            name for name in _gpu_families(document)
            if name not in families() and name not in _OLD and name.rstrip("0123456789") in _GPU_LIKE
        ]  # fmt: skip
        if unknown:
            meant = {
                name: [full for full in families() if full.startswith(name)] or nearest(name, families())
                for name in unknown
            }
            hints = "; ".join(f"{name}: {', '.join(sorted(full)[:4])}" for name, full in meant.items())
            named = ", ".join(f'"{name}"' for name in unknown)
            path = ("spec", "template", "spec", "requirements")
            yield Hit(document, path, f"families {named} do not exist and match nothing", hints)


@rule(
    "RS6807", "warn",
    title="GPUs that current engines do not run on",
    why="Current images of vLLM and CUDA 13 need compute capability 7.5 or more; pods land on older cards and crash.",
    fix="families from g4dn on",
    evidence=("public manifest: walidshaari/sample-aws-eks-auto-mode",),
)  # fmt: skip
def old_generation(context: Context) -> Iterator[Hit]:
    """Families of Kepler to Volta, and machines of the catalogue with such cards."""
    for document in context.of("NodePool"):
        old = [name for name in _gpu_families(document) if name in _OLD]
        for row in pool_machines(document):
            capability = accelerators()[row.accelerator].compute_capability
            if capability[:1].isdigit() and float(capability) < _FIRST_USABLE:
                old.append(row.machine_type.partition(".")[0])
        if old:
            named = ", ".join(dict.fromkeys(old))
            path = ("spec", "template", "spec", "requirements")
            yield Hit(document, path, f"{named}: Kepler to Volta, no current engine image runs there")


@rule(
    "RS6808", "warn",
    title="Nodes go before the next burst comes",
    why="A GPU node takes minutes to come back, and the weights are loaded again.",
    fix="consolidateAfter of the cold start or more: 10m",
    evidence=("public manifest: walidshaari/sample-aws-eks-auto-mode",),
)  # fmt: skip
def consolidate_fast(context: Context) -> Iterator[Hit]:
    """Below two minutes, on GPU pools."""
    for document in context.of("NodePool"):
        after = seconds(document.get("spec", "disruption", "consolidateAfter"))
        if after is not None and after < _QUICK_S and _starts_gpus(document):
            message = (
                f"consolidateAfter {after:.0f} s: a node is removed right after scale-in, every burst pays a cold start"
            )
            yield Hit(document, ("spec", "disruption", "consolidateAfter"), message)


@rule(
    "RS6809", "warn",
    title="Idle GPU nodes are never removed",
    why="With consolidation off and a disruption budget of 0 a node stays, and is paid, when nothing runs on it.",
    fix="consolidationPolicy: WhenEmpty, consolidateAfter: 10m, and a budget for empty nodes",
    evidence=("public manifest: WebRTCventures/colocating-voiceai-models-eks, 2026-08",),
)  # fmt: skip
def never_consolidates(context: Context) -> Iterator[Hit]:
    """consolidateAfter Never, or a budget of no nodes at all times."""
    for document in context.of("NodePool"):
        if not _starts_gpus(document):
            continue
        block = fields(document.get("spec", "disruption"))
        never = block.get("consolidateAfter") == "Never"
        shut = any(_closed(fields(budget)) for budget in entries(block.get("budgets")))
        if never or shut:
            said = [
                *(["consolidateAfter Never"] if never else []),
                *(["a disruption budget of 0 nodes"] if shut else []),
            ]
            yield Hit(document, ("spec", "disruption"), f"{' and '.join(said)}: idle GPU nodes are never removed")


def _closed(budget: Mapping[str, Value]) -> bool:
    """A budget of no nodes, for every reason and at all times."""
    always = not budget.get("schedule") and not budget.get("reasons")
    return always and shown(budget.get("nodes")) in ("0", "0%")


@rule(
    "RS6810", "info",
    title="Spot and on-demand in one pool",
    why="Karpenter takes spot first: pods must expect to be interrupted.",
    fix="interruption handling, a PodDisruptionBudget, and graceful drains",
    evidence=("public manifest: walidshaari/sample-aws-eks-auto-mode",),
)  # fmt: skip
def spot_first(context: Context) -> Iterator[Hit]:
    """Both values of the capacity type."""
    for document in context.of("NodePool"):
        types = requirements(document).get("karpenter.sh/capacity-type", ())
        if {"spot", "on-demand"} <= set(types) and _starts_gpus(document):
            message = "spot and on-demand in one pool: spot is taken first, pods will be interrupted"
            yield Hit(document, ("spec", "template", "spec", "requirements"), message)


@rule(
    "RS6813", "info",
    title="One zone",
    why="Scarce machines sell out by zone; with one zone and one replica there is no fail-over.",
    fix="more zones, or a fallback pool",
    evidence=(
        "public manifest: WebRTCventures/colocating-voiceai-models-eks, 2026-08",
        "public manifest: andrewaddo/gke-vllm-hdml",
    ),
)  # fmt: skip
def single_zone(context: Context) -> Iterator[Hit]:
    """A GPU pool whose requirement names a single zone."""
    for document in context.of("NodePool"):
        zones = requirements(document).get("topology.kubernetes.io/zone", ())
        if len(zones) == 1 and _starts_gpus(document):
            yield Hit(
                document,
                ("spec", "template", "spec", "requirements"),
                f"one zone ({zones[0]}): no failover on a stock-out",
            )
