"""Whether a plan document keeps its promises, checked from its JSON and the workload alone.

Written without the planner's code: MIG geometry, platform rules and prices come from tables of its own or from the
catalogue's data; what is claimed of the objectives is compared with a simulation of the document.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rightslice.catalogue.machines import machines

Json = dict[str, Any]
SHARED = ("time-slicing", "mps")
HOURS = {"always": 730.0, "office": 650.0 / 3.0}
GIB = 2**30
FILLED = 0.95
"""Of a shared GPU's memory; nothing limits the engines there but their own arguments."""
SLACK = 1.0 + 1e-6
MAY_END = ("spot", "flex_start")

EIGHT = {
    "1g": (1, range(7)),
    "1g+": (2, (0, 2, 4, 6)),
    "2g": (2, (0, 2, 4)),
    "3g": (4, (0, 4)),
    "4g": (4, (0,)),
    "7g": (8, (0,)),
}
FOUR = {"1g": (1, range(4)), "2g": (2, (0, 2)), "4g": (4, (0,))}
TWELVE = {"1g": (3, (0, 3, 6, 9)), "2g": (6, (0, 6)), "4g": (12, (0,))}
Kinds = Mapping[str, tuple[int, Sequence[int]]]
SLICES: dict[str, tuple[int, Kinds, Mapping[str, float]]] = {
    "A30-24GB": (4, FOUR, {"1g.6gb": 5.81, "2g.12gb": 11.69, "4g.24gb": 23.44}),
    "A100-SXM-40GB": (
        8,
        EIGHT,
        {"1g.5gb": 4.75, "1g.10gb": 9.62, "2g.10gb": 9.62, "3g.20gb": 19.5, "4g.20gb": 19.5, "7g.40gb": 39.25},
    ),
    "A100-SXM-80GB": (
        8,
        EIGHT,
        {"1g.10gb": 9.5, "1g.20gb": 19.5, "2g.20gb": 19.5, "3g.40gb": 39.25, "4g.40gb": 39.25, "7g.80gb": 79.0},
    ),
    "H100-SXM-80GB": (
        8,
        EIGHT,
        {"1g.10gb": 9.75, "1g.20gb": 19.62, "2g.20gb": 19.62, "3g.40gb": 39.5, "4g.40gb": 39.5, "7g.80gb": 79.25},
    ),
    "RTX-PRO-6000": (12, TWELVE, {"1g.24gb": 23.12, "2g.48gb": 47.38, "4g.96gb": 95.0}),
}
SLICES["A100-PCIe-80GB"] = SLICES["A100-SXM-80GB"]
"""Accelerator -> memory units, profile -> (units, starts), usable GiB of each profile, as `nvidia-smi mig` lists them.

`1g+` is the profile of one compute slice with the memory of two.
"""


def problems(plan: Json, workload: Json) -> list[str]:
    """Everything that is wrong with a feasible plan of `workload`; empty when it keeps its word."""
    pools = {pool["name"]: pool for pool in plan["pools"]}
    wanted = {model["name"]: model for model in workload["models"]}
    found = [*_positions(plan, pools), *_replicas(plan, pools), *_money(plan, workload)]
    for placement in plan["placements"]:
        where = f"{placement['pool']} node {placement['node']} GPU {placement['gpu']}"
        texts = (*_memory(placement), *_geometry(pools[placement["pool"]], placement))
        found += [f"{where}: {text}" for text in texts]
    for pool in plan["pools"]:
        found += [f"{pool['name']}: {text}" for text in (*_layouts(pool, plan), *_bought(pool, workload))]
    for model in plan["models"]:
        mine = wanted[model["name"]]
        texts = (*_redundancy(model, mine, plan), *_isolation(model, mine, plan, pools), *_claims(model))
        found += [f"{model['name']}: {text}" for text in texts]
    return [*found, *_limits(plan, workload)]


def _positions(plan: Json, pools: Mapping[str, Json]) -> Iterator[str]:
    """Every GPU that is paid for appears once, none that is not."""
    seen = Counter((p["pool"], p["node"], p["gpu"]) for p in plan["placements"])
    bought = {(p["name"], n, g) for p in pools.values() for n in range(p["nodes"]) for g in range(p["gpus_per_node"])}
    yield from (f"{place} is placed {count} times" for place, count in seen.items() if count > 1)
    if set(seen) != bought:
        yield f"placed and paid for differ: {sorted(set(seen) ^ bought)[:3]}"


def _memory(placement: Json) -> Iterator[str]:
    slots, total = placement["slots"], placement["memory_bytes"]
    for slot in slots:
        if slot["used_bytes"] > slot["memory_bytes"]:
            yield f"{slot['model']} uses {slot['used_bytes']} of {slot['memory_bytes']} bytes"
    together = [slot for slot in slots if slot["partition"] in SHARED]
    if sum(slot["used_bytes"] for slot in together) > FILLED * total * SLACK:
        yield "its tenants take more than the GPU has"
    if sum(slot["memory_bytes"] for slot in slots if slot not in together) > total * 1.001:
        yield "its slices have more memory than the GPU"


def _kind(accelerator: str, profile: str) -> tuple[int, Sequence[int]]:
    """Memory units and legal starts; KeyError for a profile that the accelerator does not have."""
    _, kinds, sizes = SLICES[accelerator]
    compute = profile.partition(".")[0]
    twice = compute == "1g" and sizes[profile] > 1.5 * min(sizes.values())
    units, starts = kinds["1g+" if twice else compute]
    return units, list(starts)


def _geometry(pool: Json, placement: Json) -> Iterator[str]:
    slots = placement["slots"]
    partitions = {slot["partition"] for slot in slots}
    if "whole" in partitions and len(slots) > 1:
        yield "a whole GPU has two tenants"
    if partitions & set(SHARED) and len(partitions) > 1:
        yield f"{sorted(partitions)} on one GPU"
    taken: set[int] = set()
    for slot in slots:
        if slot["partition"] == "whole" or slot["partition"] in SHARED:
            continue
        units, starts = _kind(pool["accelerator"], slot["partition"])
        mine = set(range(slot["start"], slot["start"] + units))
        if slot["start"] not in starts or mine & taken:
            yield f"{slot['partition']} at {slot['start']} cannot be"
        if slot["memory_bytes"] > SLICES[pool["accelerator"]][2][slot["partition"]] * GIB * 1.002:
            yield f"{slot['partition']} has no {slot['memory_bytes']} bytes"
        taken |= mine


def _can_be_cut(accelerator: str, profiles: Mapping[str, int]) -> bool:
    """Whether these instances fit on one GPU together, by trying every combination of starts."""
    kinds = [_kind(accelerator, name) for name, count in profiles.items() for _ in range(count)]
    for starts in itertools.product(*(starts for _, starts in kinds)):
        spans = [set(range(at, at + units)) for at, (units, _) in zip(starts, kinds, strict=True)]
        if sum(map(len, spans)) == len(set().union(*spans)):
            return True
    return False


def _layouts(pool: Json, plan: Json) -> Iterator[str]:
    """Layouts can be made, by this platform, and hold what is placed on the pool's GPUs."""
    cut = [use for use in pool["layouts"] if use["profiles"]]
    if sum(use["gpus"] for use in pool["layouts"]) > pool["nodes"] * pool["gpus_per_node"]:
        yield "more layouts than GPUs"
    shared = pool["sharing"] in SHARED
    for use in cut:
        if shared and set(use["profiles"]) != {pool["sharing"]}:
            yield f"{use['profiles']} in a pool that is shared by {pool['sharing']}"
        if not shared and not _can_be_cut(pool["accelerator"], use["profiles"]):
            yield f"no {pool['accelerator']} can be cut into {use['profiles']}"
    kinds = {name for use in cut for name in use["profiles"]}
    if pool["platform"] == "gke" and (shared or len(kinds) > 1 or (kinds and len(pool["layouts"]) > 1)):
        yield f"gke alone makes one MIG profile in a node pool, not {sorted(kinds)}"
    if shared and len(pool["layouts"]) != 1:
        yield "the device plugin shares all GPUs of a node alike"
    if pool["platform"] == "aks" and len(kinds) > 1:
        yield "aks makes one MIG profile in a node pool"
    left = Counter({use["name"]: use["gpus"] for use in pool["layouts"]})
    for placement in (p for p in plan["placements"] if p["pool"] == pool["name"] and p["slots"]):
        use = next(use for use in pool["layouts"] if use["name"] == placement["layout"])
        left[use["name"]] -= 1
        offered = Counter(use["profiles"] or {"whole": 1})
        if Counter(slot["partition"] for slot in placement["slots"]) - offered:
            yield f"{placement['slots']} do not fit {use['profiles']}"
    yield from (f"layout {name} is placed more often than made" for name, count in left.items() if count < 0)


def _replicas(plan: Json, pools: Mapping[str, Json]) -> Iterator[str]:
    """Each replica has its GPUs, in one node where it can, or whole nodes."""
    homes: dict[tuple[str, int], list[tuple[str, int, int]]] = defaultdict(list)
    for p in plan["placements"]:
        for slot in p["slots"]:
            homes[slot["deployment"], slot["replica"]].append((p["pool"], p["node"], p["gpu"]))
    for model in plan["models"]:
        if model["replicas"] != sum(d["replicas"]["steady"] for d in model["deployments"]):
            yield f"{model['name']}: {model['replicas']} replicas are not those of its deployments"
        for deployment in model["deployments"]:
            mine = {r: gpus for (name, r), gpus in homes.items() if name == deployment["id"]}
            if len(mine) != deployment["replicas"]["steady"]:
                yield f"{deployment['id']}: {len(mine)} replicas are placed"
            size = pools[deployment["pool"]]["gpus_per_node"]
            for gpus in mine.values():
                nodes = {(pool, node) for pool, node, _ in gpus}
                wrong = len(set(gpus)) != deployment["gpus_per_replica"] or {g[0] for g in gpus} != {deployment["pool"]}
                if wrong or len(nodes) != -(-len(gpus) // size):
                    yield f"{deployment['id']}: a replica on {gpus}"


def _nodes(plan: Json, model: str) -> set[tuple[str, int]]:
    return {(p["pool"], p["node"]) for p in plan["placements"] for slot in p["slots"] if slot["model"] == model}


def _redundancy(model: Json, wanted: Json, plan: Json) -> Iterator[str]:
    floor = wanted.get("min_replicas")
    if floor is not None and model["replicas"] < floor:
        yield f"{model['replicas']} replicas, {floor} asked for"
    spare = plan["environment"] == "production" and floor is None
    if not spare or wanted.get("interruptible") or wanted.get("task") == "custom":
        return
    if model["replicas"] < 2:
        yield "production without a spare replica"
    if len(_nodes(plan, model["name"])) < 2:
        yield "all its replicas are on one node"


def _isolation(model: Json, wanted: Json, plan: Json, pools: Mapping[str, Json]) -> Iterator[str]:
    """Who has to be isolated shares no GPU; who must not be interrupted is on capacity that stays."""
    production = plan["environment"] == "production" and "partition" not in wanted
    isolated = wanted.get("isolation", "required" if production else "none") == "required"
    for deployment in model["deployments"]:
        if isolated and deployment["partition"] in SHARED:
            yield f"isolation is required, it runs by {deployment['partition']}"
        if pools[deployment["pool"]]["purchase"]["capacity"] in MAY_END and not wanted.get("interruptible"):
            yield "it is not interruptible and runs on capacity that is taken away"
        pinned = wanted.get("partition", deployment["partition"])
        if pinned != deployment["partition"]:
            yield f"partition {pinned} is pinned, it runs on {deployment['partition']}"


def _claims(model: Json) -> Iterator[str]:
    for result in model["slos"]:
        if not result["met"] or result["achieved_share"] < result["slo"]["share"]:
            yield f"{result['subject']} {result['slo']['metric']} is missed: {result['achieved_share']}"


def _money(plan: Json, workload: Json) -> Iterator[str]:
    cost, bound = plan["monthly_usd"], plan["bound"]
    total = sum(pool["nodes"] * pool["hourly_usd"] for pool in plan["pools"]) * HOURS[workload.get("hours", "always")]
    if abs(total - cost["compute"]) > 1e-6 * max(total, 1.0):
        yield f"the pools cost {total}, not {cost['compute']}"
    if abs(cost["compute"] + cost["licences"] + cost["other"] - cost["value"]) > 1e-6 * max(total, 1.0):
        yield "the parts of the cost do not add up"
    if not cost["low"] <= cost["value"] * SLACK or not cost["value"] <= cost["high"] * SLACK:
        yield f"{cost['value']} is outside {cost['low']}..{cost['high']}"
    if bound["monthly_usd"] > cost["value"] * SLACK:
        yield f"the plan is cheaper than its bound {bound['monthly_usd']}"
    elif bound["monthly_usd"] > 0 and abs(cost["value"] / bound["monthly_usd"] - 1.0 - bound["gap"]) > 1e-6:
        yield f"gap {bound['gap']} is not that of {bound['monthly_usd']}"
    yield from (
        f"alternative {a['option']} is cheaper than the plan"
        for a in plan["alternatives"]
        if a["monthly_usd"] * SLACK < cost["value"]
    )


def _bought(pool: Json, workload: Json) -> Iterator[str]:
    """The machine is sold so, at that price, where the workload looks for it."""
    fleet = workload["fleet"]
    rows = [
        m
        for m in machines()
        if (m.provider, m.region, m.machine_type) == (pool["provider"], pool["region"], pool["machine_type"])
    ]
    capacity = pool["purchase"]["capacity"]
    if capacity == "on_demand" and not any(m.on_demand_usd_per_hour == pool["hourly_usd"] for m in rows):
        yield f"{pool['hourly_usd']} is not its price"
    if rows and not any(
        (m.accelerator, m.accelerator_count) == (pool["accelerator"], pool["gpus_per_node"]) for m in rows
    ):
        yield f"{pool['machine_type']} has other GPUs"
    allowed = fleet.get("accelerators", {}).get("allow")
    if allowed and pool["accelerator"] not in allowed:
        yield f"{pool['accelerator']} is not allowed"
    if capacity != "owned" and fleet.get("regions") and pool["region"] not in fleet["regions"]:
        yield f"{pool['region']} is not allowed"
    for own in fleet.get("owned", ()) if capacity == "owned" else ():
        if own["machine_type"] == pool["machine_type"] and pool["nodes"] > own["count"]:
            yield f"{pool['nodes']} nodes, {own['count']} are owned"


def _limits(plan: Json, workload: Json) -> Iterator[str]:
    budget = workload.get("budget", {}).get("monthly")
    if budget is not None and plan["monthly_usd"]["value"] > float(str(budget).strip("$")) * SLACK:
        yield f"{plan['monthly_usd']['value']} is over the budget of {budget}"
    for quota in workload["fleet"].get("quota", ()):
        used = sum(
            pool["nodes"] * pool["gpus_per_node"]
            for pool in plan["pools"]
            if pool["purchase"]["capacity"] != "owned"
            and all(pool[key] == quota[key] for key in ("provider", "region", "accelerator"))
        )
        if used > quota["gpus"]:
            yield f"{used} GPUs of {quota['accelerator']}, the quota is {quota['gpus']}"
