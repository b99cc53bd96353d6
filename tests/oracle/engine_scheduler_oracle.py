"""vLLM's own scheduler, asked what it does with many workloads. Not collected by `make test`; run by `make oracle`.

`RIGHTSLICE_ORACLE_PYTHON` is an interpreter with the packages of `requirements.txt`. With
`RIGHTSLICE_UPDATE_GOLDEN=1` a sample of its answers is written to `tests/data/scheduler/vllm.json`, which `make test`
reads.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from engine_cache import updating
from engine_scheduler import ANSWERS, COUNT, KEPT_EVERY, Iteration, Workload, agreement, packed, workloads

ASK = Path(__file__).parent / "ask_scheduler.py"


def test_the_reference_schedules_as_vllm_does(tmp_path: Path) -> None:
    python = os.environ.get("RIGHTSLICE_ORACLE_PYTHON")
    assert python, "RIGHTSLICE_ORACLE_PYTHON is not set: use `make oracle`"
    asked, answered = tmp_path / "workloads.json", tmp_path / "answers.json"
    asked.write_text(json.dumps(workloads()))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([python, str(ASK), str(asked), str(answered)], check=True, env=environment)
    found = json.loads(answered.read_text())
    played = found["workloads"]
    kept = {"vllm": found["vllm"], "workloads": [packed(answer) for answer in played[:COUNT:KEPT_EVERY]]}
    if updating():
        ANSWERS.parent.mkdir(parents=True, exist_ok=True)
        ANSWERS.write_text(json.dumps(kept, separators=(",", ":")).replace("]]],", "]]],\n") + "\n")
    assert json.loads(ANSWERS.read_text()) == kept
    assert share("one block an id", workloads()[:COUNT], played[:COUNT]) >= 0.999
    assert share("more blocks an id", workloads()[COUNT:], played[COUNT:]) >= 0.7


def share(name: str, asked: list[Workload], played: list[list[Iteration]]) -> float:
    """Of identical iterations; prints what differs."""
    same, total, kinds = agreement(asked, played)
    print(f"{name}: {same} of {total} iterations of {len(asked)} workloads identical; first differences: {dict(kinds)}")
    return same / total
