"""Small random packing problems and their optima by CP-SAT, into tests/data/packing/oracle.json.gz.

Run in an environment with `requirements-bench.lock`; the tests read the file and need no OR-tools. The model here is
another one than the packing's: every node is a thing of its own, and nothing is merged, dropped or relaxed.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

from ortools.sat.python import cp_model

TARGET = Path(__file__).resolve().parent.parent / "tests" / "data" / "packing" / "oracle.json.gz"
INSTANCES = 240
SCALE = 100
"""Prices are multiples of 0.01 USD, rates multiples of 0.5/s."""
LAYOUTS = {
    "1g*7": {"1g": 7},
    "3g*2": {"3g": 2},
    "1g*4+3g": {"1g": 4, "3g": 1},
}
MOST_NODES = 14
"""Of a pool without a limit; more than any of these fleets needs."""
Instance = dict[str, Any]


def instance(seed: int) -> Instance:
    """Pools of one to four GPUs, cut, whole or shared; two to four models with floors, spares and spread."""
    pick = random.Random(seed)  # noqa: S311 - test data
    models = [f"m{number}" for number in range(pick.randint(2, 4))]
    pools: list[dict[str, Any]] = []
    for number in range(pick.randint(1, 3)):
        size = pick.choice([1, 1, 2, 4])
        pools.append(
            {
                "key": f"p{number}",
                "accelerator": pick.choice("AB") if number else "A",
                "gpus_per_node": size,
                "usd_per_hour": round(size * pick.choice([1.0, 1.3, 2.0]) * pick.choice([0.9, 1.0, 1.07]), 2),
                "layouts": pick.choice([[], [], ["3g*2"], list(LAYOUTS)]),
                "max_nodes": pick.choice([None, None, 1, 2]),
                "limits": pick.choice([[], [], ["quota"]]),
                "sharing": "",
            }
        )
    if pick.random() < 0.7:
        pools.append(
            {
                "key": "shared",
                "accelerator": pick.choice("AB"),
                "gpus_per_node": pick.choice([1, 1, 2]),
                "usd_per_hour": 1.0,
                "layouts": [],
                "max_nodes": pick.choice([None, 2, 4]),
                "limits": pick.choice([[], ["quota"]]),
                "sharing": "mps",
            }
        )
        size = pools[-1]["gpus_per_node"]
        pools[-1]["usd_per_hour"] = round(size * pick.choice([1.0, 1.5]), 2)
    demands = [
        {
            "model": model,
            "requests_per_s": pick.choice([0.0, 2.0, 3.0, 4.5]),
            "min_replicas": pick.randint(1, 2),
            "spare": pick.random() < 0.4,
            "min_nodes": pick.choice([1, 1, 2]),
        }
        for model in models
    ]
    options = []
    for model in models:
        for accelerator in "AB":
            for partition, gpus in pick.sample([("whole", 1), ("whole", 2), ("3g", 1), ("1g", 1)], pick.randint(1, 3)):
                rate = pick.choice([1.0, 1.5, 2.0, 3.0]) * gpus
                key = f"{model}/{accelerator}/{partition}/x{gpus}"
                options.append(
                    {"key": key, "model": model, "accelerator": accelerator, "partition": partition, "gpus": gpus}
                    | {"requests_per_s": rate}
                )
    groups = []
    for number in range(pick.randint(1, 5) if any(p["sharing"] for p in pools) else 0):
        members = [pick.choice(models) for _ in range(pick.randint(2, 4))]
        clients = [{"model": m, "requests_per_s": pick.choice([0.5, 1.0, 1.5])} for m in sorted(members)]
        groups.append({"key": f"g{number}", "accelerator": pools[-1]["accelerator"], "clients": clients})
    return {
        "pools": pools,
        "options": options,
        "demands": demands,
        "groups": groups,
        "limits": {"quota": pick.randint(2, 6)},
    }


class Oracle:
    """One instance, node by node."""

    def __init__(self, given: Instance) -> None:
        self.given = given
        self.model = cp_model.CpModel()
        self.cost: list[Any] = []
        self.quota: list[Any] = []
        self.hosts: dict[str, list[Any]] = {demand["model"]: [] for demand in given["demands"]}
        self.runs: dict[str, list[Any]] = {option["key"]: [] for option in given["options"]}
        self.shared: dict[str, list[Any]] = {group["key"]: [] for group in given["groups"]}

    def optimum(self) -> float | None:
        """USD per hour; None when nothing is feasible."""
        for pool in self.given["pools"]:
            self._pool(pool)
        for demand in self.given["demands"]:
            self._demand(demand)
        self.model.add(sum(self.quota) <= self.given["limits"]["quota"])
        self.model.minimize(sum(self.cost))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 2
        solver.parameters.max_deterministic_time = 60.0
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return None
        if status != cp_model.OPTIMAL:
            raise TimeoutError
        return float(solver.objective_value) / SCALE

    def _pool(self, pool: dict[str, Any]) -> None:
        before = None
        for _ in range(pool["max_nodes"] or MOST_NODES):
            used = self.model.new_bool_var("")
            if before is not None:
                self.model.add_implication(used, before)
            before = used
            self.cost.append(round(pool["usd_per_hour"] * SCALE) * used)
            if "quota" in pool["limits"]:
                self.quota.append(pool["gpus_per_node"] * used)
            self._node(pool, used)

    def _node(self, pool: dict[str, Any], used: Any) -> None:  # noqa: C901 - one family of rows after the other
        size = pool["gpus_per_node"]
        taken: list[Any] = []
        slices: dict[str, list[Any]] = {}
        here: dict[str, list[Any]] = {model: [] for model in self.hosts}
        for name in pool["layouts"]:
            cut = self.model.new_int_var(0, size, "")
            taken.append(cut)
            for partition, count in LAYOUTS[name].items():
                slices.setdefault(partition, []).append(count * cut)
        for option in self.given["options"] if not pool["sharing"] else ():
            if option["accelerator"] != pool["accelerator"] or option["gpus"] > size:
                continue
            if option["partition"] != "whole" and option["partition"] not in slices:
                continue
            run = self.model.new_int_var(0, 7 * size, "")
            self.runs[option["key"]].append(run)
            here[option["model"]].append(run)
            if option["partition"] == "whole":
                taken.append(option["gpus"] * run)
            else:
                slices[option["partition"]].append(-run)
        for group in self.given["groups"] if pool["sharing"] else ():
            gpus = self.model.new_int_var(0, size, "")
            taken.append(gpus)
            self.shared[group["key"]].append(gpus)
            for model in {client["model"] for client in group["clients"]}:
                here[model].append(gpus)
        self.model.add(sum(taken) <= size * used)
        for terms in slices.values():
            self.model.add(sum(terms) >= 0)
        for model, found in here.items():
            host = self.model.new_bool_var("")
            self.model.add(sum(found) >= host)
            self.hosts[model].append(host)

    def _demand(self, demand: dict[str, Any]) -> None:
        model = demand["model"]
        units: list[tuple[Any, int, int]] = []  # count, half requests/s lost at once, replicas
        for option in self.given["options"]:
            if option["model"] == model:
                units += [(run, round(2 * option["requests_per_s"]), 1) for run in self.runs[option["key"]]]
        for group in self.given["groups"]:
            rates = [round(2 * c["requests_per_s"]) for c in group["clients"] if c["model"] == model]
            if rates:
                units += [(gpus, sum(rates), len(rates)) for gpus in self.shared[group["key"]]]
        wanted = round(2 * demand["requests_per_s"])
        together = demand["spare"] and wanted == 0
        replicas = sum(count * (1 if together else each) for count, _, each in units)
        self.model.add(replicas >= max(demand["min_replicas"], 2 if demand["spare"] else 0))
        self.model.add(sum(self.hosts[model]) >= demand["min_nodes"])
        loss: Any = 0
        if demand["spare"]:
            loss = self.model.new_int_var(0, 1000, "")
            for count, rate, _ in units:
                some = self.model.new_bool_var("")
                self.model.add(count == 0).only_enforce_if(some.negated())
                self.model.add(loss >= min(rate, wanted) * some)
        self.model.add(sum(count * min(rate, wanted) for count, rate, _ in units) >= wanted + loss)


def main() -> None:
    """Record the instances that CP-SAT decides."""
    rows: list[Instance] = []
    seed = 0
    while len(rows) < INSTANCES:
        given = instance(seed)
        try:
            rows.append({"seed": seed, "usd_per_hour": Oracle(given).optimum(), **given})
        except TimeoutError:
            print(f"seed {seed}: not decided")
        seed += 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    text = "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n"
    TARGET.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(rows)} instances, {sum(r['usd_per_hour'] is None for r in rows)} infeasible; wrote {TARGET}")


if __name__ == "__main__":
    main()
