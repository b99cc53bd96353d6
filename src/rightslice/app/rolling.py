"""`--rollout`: a rolling update of every deployment, as its emitted manifest does it unless told otherwise."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rightslice.app.horizons import check_instant
from rightslice.app.scenarios import Load
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.core.options import quantity_of
from rightslice.core.plan import Deployment, Plan
from rightslice.core.quantities import parse_seconds
from rightslice.manifests.layout import has_spare
from rightslice.manifests.timing import rollout_deadline_s
from rightslice.simulation.control.rollout import Rollout

_ROLLOUT: Final = re.compile(r"([^,=]+)((?:,(?:surge|unavailable)=\d{1,4})*)")


@dataclass(frozen=True, slots=True)
class AskedRollout:
    """When it begins; `surge` and `unavailable` None: the manifest's."""

    at_s: float
    surge: int | None
    unavailable: int | None


def parse_rollout(text: str) -> AskedRollout:
    """`30m`, or `30m,surge=1,unavailable=0`. Raises BadInputError RS0501."""
    match = _ROLLOUT.fullmatch(text.replace(" ", ""))
    if match is None:
        hint = "30m or 30m,surge=1,unavailable=0"
        raise BadInputError(Diagnostic("RS0501", f'--rollout "{text[:60]}" is not known', hint=hint))
    given = dict(part.split("=") for part in match[2].split(",")[1:])
    found = {key: int(value) for key, value in given.items()}
    surge, unavailable = found.get("surge"), found.get("unavailable")
    if surge is None and unavailable is not None:
        surge = 0
    elif unavailable is None and surge is not None:
        unavailable = 0
    if surge == unavailable == 0:
        raise BadInputError(Diagnostic("RS0501", "--rollout: surge and unavailable are both 0, so nothing may move"))
    return AskedRollout(quantity_of("--rollout", parse_seconds, match[1]), surge, unavailable)


def rollout_of(plan: Plan, deployment: Deployment, asked: AskedRollout, load: Load) -> Rollout:
    """The update of one deployment. Raises BadInputError RS0501 for a time outside the run."""
    check_instant("--rollout", asked.at_s, load.horizon_s, load.users)
    surge, unavailable = asked.surge, asked.unavailable
    if surge is None or unavailable is None:
        surge, unavailable = (1, 0) if has_spare(plan, deployment) else (0, 1)
    memory = deployment.memory
    weights = memory.weights_bytes * deployment.gpus_per_replica if memory else 0
    return Rollout(asked.at_s, surge, unavailable, float(rollout_deadline_s(weights)))
