"""Fit the laws of GPU sharing on the published YOLOS curves, check them on cases that were not fitted.

    python tools/fit_sharing.py [--write]

Two numbers are fitted, each the least sum of squared log errors: the switch cost of time-slicing (a property of the
mechanism) and the share of YOLOS-small's lone time that is bound by the GPU (a property of that model, used nowhere
else). The checks take the lone profile of each model only. That the embedding server overlaps host and GPU work was
concluded from its own rows (as fast on 60 SMs as on 132); taken as a serial loop it would come out 12 to 18 % too slow.
--write puts the fit into catalogue/data/sharing.json.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from rightslice.catalogue import datafiles
from rightslice.catalogue.accelerators import device
from rightslice.catalogue.models import resolve_model
from rightslice.core.engine import EngineSettings
from rightslice.performance.laws import step_costs
from rightslice.performance.sharing import Tenant, from_rates, mig, mps, of_engine, time_sliced

FILE = datafiles.DATA / "sharing.json"
Pairs = list[tuple[float, float]]
"""(predicted, measured)."""


def curves(data: dict[str, Any], bound: float, switch: float) -> dict[str, Pairs]:
    """Predicted and measured times of the fitted curves by mechanism, relative to the whole GPU alone."""
    one = Tenant(1.0, bound)
    part = device(data["accelerator"], data["slice"])
    pods = data["pods"]
    whole_ms = (data["time_slicing_ms"][0] + data["mps_ms"][0]) / 2.0
    relative = {name: [ms / whole_ms for ms in data[f"{name}_ms"]] for name in ("time_slicing", "mps", "mig")}
    laws: dict[str, Callable[[int], float]] = {
        "time_slicing": lambda n: time_sliced(one, [one] * (n - 1), switch),
        "mps": lambda n: mps(one, [one] * (n - 1)),
        "mig": lambda _: mig(one, part),
    }
    return {name: [(law(n), seen) for n, seen in zip(pods, relative[name], strict=True)] for name, law in laws.items()}


def squares(pairs: Iterable[tuple[float, float]]) -> float:
    """Sum of squared log errors."""
    return sum(math.log(predicted / measured) ** 2 for predicted, measured in pairs)


def least(cost: Callable[[float], float]) -> float:
    """Where a function with one minimum in 0 .. 1 has it, to six digits."""
    low, high = 0.0, 1.0
    while high - low > 1e-8:
        third = (high - low) / 3.0
        if cost(low + third) < cost(high - third):
            high -= third
        else:
            low += third
    return round((low + high) / 2.0, 6)


def fitted(data: dict[str, Any]) -> tuple[float, float]:
    """(bound share of YOLOS-small, switch cost)."""

    def on_shares(bound: float) -> float:
        found = curves(data, bound, 0.0)
        return squares([*found["mps"], *found["mig"]])

    bound = least(on_shares)
    return bound, least(lambda switch: squares(curves(data, bound, switch)["time_slicing"]))


def parakeet(case: dict[str, Any]) -> Pairs:
    """Two slices together, from the lone run on the whole GPU: at worst each request reads all weights."""
    frames = case["audio_s"] / case["frame_s"]
    rate = case["whole_requests_per_s"]
    whole, part = device(case["accelerator"]), device(case["accelerator"], case["slice"])
    weights = case["parameters"] * case["bytes_per_parameter"]
    tenant = from_rates(whole, 2.0 * case["parameters"] * frames * rate, weights * rate, busy=1.0)
    return [(2.0 * rate / mig(tenant, part), case["two_slices_requests_per_s"])]


def llm_tenant(case: dict[str, Any]) -> Tenant:
    """Bound shares from the step law at 512 streams half way through their answers; busy as measured alone."""
    settings = EngineSettings(weight_dtype="fp8", max_num_seqs=512, max_num_batched_tokens=8192)
    costs = step_costs(
        resolve_model("Qwen/Qwen3-30B-A3B-FP8"), device(case["accelerator"]), settings, typical_tokens=286
    )
    context = 512 * (30 + 256)
    return of_engine(costs, 512, context, busy=case["llm"]["sm_active"])


def llm_beside_embedding(case: dict[str, Any], switch: float) -> dict[str, Pairs]:
    """Rates of both tenants by mechanism; published ranges count by their middle."""
    llm, embedding = case["llm"], case["embedding"]
    whole = device(case["accelerator"])
    flop_per_s = 2.0 * embedding["parameters"] * embedding["tokens_per_sequence"] * embedding["alone_sequences_per_s"]
    tenants = {"LLM": llm_tenant(case), "embedding": from_rates(whole, flop_per_s, 0.0, overlaps=True)}
    rows = {"LLM": (llm, "tokens", case["slice"]), "embedding": (embedding, "sequences", embedding["mig_slice"])}
    found: dict[str, Pairs] = {}
    for name, (row, unit, part) in rows.items():
        one, others = tenants[name], [other for key, other in tenants.items() if key != name]
        slowdowns = {
            "time_slicing": time_sliced(one, others, switch),
            "mps": mps(one, others),
            "mig": mig(one, device(case["accelerator"], part)),
        }
        for mechanism, slowdown in slowdowns.items():
            measured = row[f"{mechanism}_{unit}_per_s"]
            middle = math.sqrt(math.prod(measured)) if isinstance(measured, list) else measured
            found[f"{name}, {mechanism}"] = [(row[f"alone_{unit}_per_s"] / slowdown, middle)]
    return found


def main() -> None:
    """Print what was fitted and how far off each case is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    document = json.loads(FILE.read_text())
    bound, switch = fitted(document["fitted_on"])
    print(f"switch cost {switch}, bound share of YOLOS-small {bound}")
    checks = document["checked_on"]
    groups = {f"fitted {name}": pairs for name, pairs in curves(document["fitted_on"], bound, switch).items()}
    groups["check Parakeet, two slices"] = parakeet(checks["parakeet"])
    beside = llm_beside_embedding(checks["llm_beside_embedding"], switch)
    groups |= {f"check H200: {name}": pairs for name, pairs in beside.items()}
    largest = 0.0
    for name, pairs in groups.items():
        for predicted, measured in pairs:
            error = predicted / measured - 1.0
            largest = max(largest, abs(math.log(predicted / measured)))
            print(f"{name:42} predicted {predicted:10.4g}  measured {measured:10.4g}  {error:+.1%}")
    ratio = [beside["LLM, time_slicing"][0][side] / beside["LLM, mig"][0][side] for side in (0, 1)]
    print(f"time-slicing over MIG: predicted {ratio[0]:.3f}, measured {ratio[1]:.3f}")
    if write:
        fit = {
            "tool": "tools/fit_sharing.py", "switch_cost": switch, "yolos_small_bound": bound,
            "largest_error": round(math.expm1(largest), 3),
        }  # fmt: skip
        text = re.sub(r'"fit": \{[^}]*\}', f'"fit": {json.dumps(fit)}', FILE.read_text())
        FILE.write_text(text)


if __name__ == "__main__":
    main()
