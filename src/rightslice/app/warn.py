"""What to watch out for in a plan, and what must be asked for before it can run."""

from __future__ import annotations

from collections.abc import Iterator

from rightslice.app.network import planned_network
from rightslice.app.state import Question
from rightslice.catalogue.accuracy import weight_risk
from rightslice.catalogue.hardware import ON_ONE_GPU, WHOLE
from rightslice.catalogue.mig import geometry
from rightslice.catalogue.platforms import platforms
from rightslice.core.engine import DTYPE_BITS
from rightslice.core.plan import Plan, PlanWarning, Request
from rightslice.core.quantities import format_seconds, format_usd
from rightslice.core.text import plural
from rightslice.optimization.assemble import Fleet
from rightslice.optimization.needs import Need
from rightslice.optimization.sharing import group_key
from rightslice.spec.workload import Workload
from rightslice.traffic.lengths import MAX_P95_OVER_MEAN

WIDE_BAND = 0.25
"""A half width of the 80 % band above which the plan points at the prediction."""


def requests_to_make(workload: Workload, made: Fleet) -> tuple[Request, ...]:
    """Quota that is not listed in the workload, and capacity that is not simply sold."""
    listed = {(q.provider, q.region, q.accelerator) for q in workload.fleet.quota}
    asked: dict[tuple[str, str, str], int] = {}
    reservations = []
    for pool in made.pools:
        if pool.purchase.capacity == "owned":
            continue
        key = (pool.provider, pool.region, pool.accelerator)
        if key not in listed:
            asked[key] = asked.get(key, 0) + pool.nodes * pool.gpus_per_node
        if pool.purchase.capacity in ("reservation", "future_reservation", "capacity_block"):
            subject = f"{pool.provider} {pool.region} {pool.machine_type}"
            reservations.append(Request("reservation", subject, f"{pool.nodes} nodes", "not sold on demand"))
    quota = [
        Request("quota", " ".join(key), f"{gpus} GPUs", "not listed under fleet.quota")
        for key, gpus in sorted(asked.items())
    ]
    return (*quota, *reservations)


def warnings(
    workload: Workload, question: Question, made: Fleet, spare_saving_usd: float | None
) -> tuple[PlanWarning, ...]:
    """Availability, prices, predictions, quality, and what this version does not model."""
    found: list[PlanWarning] = []
    for need in question.needs:
        found += _availability(need, made)
        found += _sharing(need, question, made)
        found += _prediction(need, question, made)
        found += _quality(need, made)
        found += _impossible_spread(need)
        found += _not_modelled(need)
        found += _serving(need)
    found += layout_warnings(made)
    if spare_saving_usd is not None and spare_saving_usd > 0:
        saved = format_usd(spare_saving_usd)
        found.append(PlanWarning("RS5004", "spare replicas", f"N + 1 costs {saved} a month; min_replicas: 1 drops it"))
    found += _network(workload)
    found += _prices(made)
    if workload.hours == "office":
        text = (
            "the cost counts office hours only; the manifests run always: scale the pools to zero outside those hours"
        )
        found.append(PlanWarning("RS5009", "hours", text))
    if workload.objective != "cost":
        found.append(
            PlanWarning("RS5009", "objective", f"{workload.objective}: this version plans for the lowest cost")
        )
    if workload.fleet.licences:
        found.append(
            PlanWarning("RS5009", "fleet.licences", "not counted: no licensed engine is planned by this version")
        )
    ignored = [name for name in workload.fleet.engines if name != "vllm"]
    if ignored:
        found.append(
            PlanWarning("RS5009", "fleet.engines", f"{', '.join(ignored)}: not considered, no performance model yet")
        )
    return tuple(found)


def _availability(need: Need, made: Fleet) -> Iterator[PlanWarning]:
    by_name = {pool.name: pool for pool in made.pools}
    sites = {(by_name[d.pool].provider, by_name[d.pool].region) for d in made.deployments[need.name]}
    if len(sites) > 1:
        where = ", ".join(" ".join(site) for site in sorted(sites))
        yield PlanWarning(
            "RS5012", need.name, f"runs in {where}: something must share its traffic between the clusters"
        )
    replicas = sum(d.replicas.steady for d in made.deployments[need.name])
    nodes = {(p.pool, p.node) for p in made.placements for slot in p.slots if slot.model == need.name}
    if replicas == 1:
        why = "you set min_replicas: 1" if need.model.min_replicas is not None else "nothing asks for two"
        yield PlanWarning("RS5007", need.name, f"a single replica ({why}): while its node is replaced nobody is served")
    elif len(nodes) == 1:
        yield PlanWarning("RS5010", need.name, f"all {replicas} replicas are on one node: one failure takes them all")


def _sharing(need: Need, question: Question, made: Fleet) -> Iterator[PlanWarning]:
    """What a shared GPU does not keep apart, and what cannot be seen on it."""
    key = group_key(need.model)
    if key is None:
        return
    others = [other.name for other in question.needs if group_key(other.model) == key and other.name != need.name]
    beside = f"{', '.join(others)} by {key[0]}" if others else f"its other replicas by {key[0]}"
    fault = "a fatal fault stops all of them" if key[0] == "mps" else "memory is limited by nobody"
    wanted = "production asks for isolation: " if need.isolation == "required" else ""
    yield PlanWarning("RS5010", need.name, f"shares its GPU with {beside}: {fault}; {wanted}a MIG slice isolates both")
    pools = {pool.name: pool for pool in made.pools}
    if others and any(pools[d.pool].gpus_per_node > 1 for d in made.deployments[need.name]):
        text = "on nodes of several GPUs the device plugin, not the plan, chooses which replicas meet on one"
        yield PlanWarning("RS5010", need.name, text)


def _prediction(need: Need, question: Question, made: Fleet) -> Iterator[PlanWarning]:
    used = {(d.accelerator, d.partition) for d in made.deployments[need.name]}
    for option in question.options_of(need.name):
        if (option.accelerator, option.partition) not in used or option.costs is None:
            continue
        band = f"± {option.relative_error:.0%} on {option.device.name}"
        if option.provenance == "unvalidated":
            yield PlanWarning("RS5011", need.name, f"no measurement backs its times ({band}): load-test first")
            return
        if option.relative_error > WIDE_BAND:
            yield PlanWarning("RS5003", need.name, f"its times are known to {band} only; a load test narrows that")
            return


def _quality(need: Need, made: Fleet) -> Iterator[PlanWarning]:
    """Weights below the published precision are a decision about answer quality, and said so."""
    if need.architecture is None:
        return
    published = need.architecture.published_dtype
    for dtype in sorted({d.engine.settings.weight_dtype for d in made.deployments[need.name] if d.engine.settings}):
        if DTYPE_BITS[dtype] < DTYPE_BITS.get(published, 16):
            risk = weight_risk(dtype, published).risk
            text = (
                f"{dtype} weights instead of the published {published}: a quality decision of {risk} accuracy risk; "
                "evaluate before use"
            )
            yield PlanWarning("RS5005", need.name, text)


def _impossible_spread(need: Need) -> Iterator[PlanWarning]:
    """A lognormal has no p95 beyond 3.87 times its mean: the mean is kept and the tail falls short."""
    for traffic in need.model.traffic:
        for name, side in (("input_tokens", traffic.input_tokens), ("output_tokens", traffic.output_tokens)):
            if side is not None and side.p95 is not None and side.p95 > MAX_P95_OVER_MEAN * side.mean:
                far = f"{traffic.name}: {name} p95 {side.p95:,} is more than {MAX_P95_OVER_MEAN:g} times the mean"
                text = f"{far}; a smaller tail is simulated"
                yield PlanWarning("RS5006", need.name, text)


def _not_modelled(need: Need) -> Iterator[PlanWarning]:
    model = need.model
    unused = [
        name
        for name, given in (
            ("the gain of speculative decoding (its memory is counted)", model.speculative is not None),
            ("gpu", model.gpu is not None and group_key(model) is None),
        )
        if given
    ]
    if unused:
        yield PlanWarning("RS5009", need.name, f"not used by this version: {', '.join(unused)}")


def _serving(need: Need) -> Iterator[PlanWarning]:
    """What the simulation counts on and the manifests alone do not bring about."""
    router = need.model.router
    if router is not None:
        text = (
            f"router {router.policy} is simulated: the manifests hold a plain Service, put a gateway that routes so "
            "before it"
        )
        yield PlanWarning("RS5013", need.name, text)
    if need.model.gated is not None:
        sheds = any(traffic.priority < 0 for traffic in need.model.traffic)
        what = "shed under saturation" if sheds else "held back under saturation"
        text = (
            f"requests are {what} by an inference gateway in the simulation: the manifests hold its InferenceObjectives"
            " and no gateway, install one before it"
        )
        yield PlanWarning("RS5013", need.name, text)
    if len(need.priorities) > 1:
        text = "clients must send their class's priority with each request; in vLLM a lower number goes first"
        yield PlanWarning("RS5014", need.name, text)


def _network(workload: Workload) -> Iterator[PlanWarning]:
    """What the verification counted, which is the most that the choice of a region can bring."""
    network = planned_network(workload)
    if network is None:
        return
    stated = "; as fleet.network says where it does" if workload.fleet.network else ""
    for client, way in zip(network.clients, network.round_trip_s[:, 0].tolist(), strict=True):
        if way > 0.0:
            where = f"{format_seconds(way)} from {client}, there and back, to {' or '.join(network.regions)}"
            yield PlanWarning("RS5016", "network", f"{where}, by distance{stated}; in every TTFT and end-to-end time")


def layout_warnings(made: Fleet) -> Iterator[PlanWarning]:
    """What the device plugin does not notice by itself, and slices whose size nobody has measured."""
    for pool in made.pools:
        if pool.sharing in ON_ONE_GPU:
            text = (
                f"shares its GPUs by {pool.sharing}: the device plugin does not read a changed configuration, "
                "restart it as kubernetes/README.md says"
            )
            yield PlanWarning("RS5022", pool.name, text)
        table = geometry(pool.accelerator)
        used = {profile for layout in pool.layouts for profile in layout.profiles}
        unsure = [p.name for p in table.profiles if p.name in used and p.estimated] if table else []
        if unsure:
            names = ", ".join(unsure)
            text = f"nobody has published the memory of {names}: compare nvidia-smi mig -lgip on the node first"
            yield PlanWarning("RS5023", pool.name, text)


def change_warnings(plan: Plan) -> Iterator[PlanWarning]:
    """What today's nodes need before they can be cut anew: the MIG manager drains nothing."""
    steps = [step for step in plan.changes.steps if step.action == "cut"] if plan.changes else []
    for pool in sorted({step.pool for step in steps}):
        nodes = sum(step.pool == pool for step in steps)
        text = (
            f"{plural(nodes, 'node')} to be cut anew: cordon and drain each, change its label, wait for "
            "nvidia.com/mig.config.state=success, then uncordon"
        )
        if platforms()[plan.pool(pool).platform].mig_needs_reboot:
            text += "; the node reboots when a GPU enters or leaves MIG mode"
        yield PlanWarning("RS5020", pool, text)
    for step in plan.changes.steps if plan.changes else ():
        if step.stops:
            where = f"{step.node} is drained" if step.node else step.machine_type
            yield PlanWarning("RS5007", ", ".join(step.stops), f"not served while {where}: add a node for that time")


def scaling_warnings(plan: Plan) -> Iterator[PlanWarning]:
    """Slices that are scaled from zero: the autoscaler's picture of an empty pool has no nvidia.com/mig-* in it."""
    places = {d.id: d for model in plan.models for d in model.deployments}
    for entry in plan.autoscaling:
        deployment = places[entry.deployment]
        if entry.min_replicas == 0 and deployment.partition not in (WHOLE, *ON_ONE_GPU):
            text = (
                f"asks for {deployment.partition} from zero replicas: an empty node pool shows the cluster autoscaler "
                "no MIG resource; keep one node, or give its template the resource"
            )
            yield PlanWarning("RS5021", deployment.id, text)


def _prices(made: Fleet) -> Iterator[PlanWarning]:
    for pool in made.pools:
        if pool.purchase.capacity == "owned" or pool.price_quality.startswith("exact"):
            continue
        rule = "RS5001" if "stale" in pool.price_quality else "RS5002"
        text = f"the price of {pool.machine_type} ({pool.price_date}) is {pool.price_quality.replace('_', ' ')}"
        yield PlanWarning(rule, pool.name, text)
