"""vLLM itself, asked about every shipped configuration. Not collected by `make test`; run by `make oracle`.

`RIGHTSLICE_ORACLE_PYTHON` is an interpreter with the packages of `requirements.txt`. With
`RIGHTSLICE_UPDATE_GOLDEN=1` its answers are written to `tests/data/engine_cache/vllm.json`, which `make test` reads.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from engine_cache import ANSWERS, disagreements, questions, updating

ASK = Path(__file__).parent / "ask_vllm.py"


def test_the_engine_gives_the_answers_that_are_written_down(tmp_path: Path) -> None:
    python = os.environ.get("RIGHTSLICE_ORACLE_PYTHON")
    assert python, "RIGHTSLICE_ORACLE_PYTHON is not set: use `make oracle`"
    asked, answered = tmp_path / "questions.json", tmp_path / "answers.json"
    asked.write_text(json.dumps(questions()))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([python, str(ASK), str(asked), str(answered)], check=True, env=environment)
    found = json.loads(answered.read_text())
    if updating():
        ANSWERS.parent.mkdir(parents=True, exist_ok=True)
        ANSWERS.write_text(json.dumps(found, separators=(",", ":")).replace('],"', '],\n"') + "\n")
    written = json.loads(ANSWERS.read_text())
    assert found["vllm"] == written["vllm"]
    assert sorted(found["not_built"]) == sorted(written["not_built"])
    assert found["models"] == written["models"]
    assert not list(disagreements(found))
