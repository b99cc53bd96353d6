"""vLLM itself, asked about every shipped configuration. Not collected by `make test`; run by `make oracle`.

`RIGHTSLICE_ORACLE_PYTHON` is an interpreter with the packages of `requirements.txt`. With
`RIGHTSLICE_UPDATE_GOLDEN=1` its answers are written to `tests/data/engine_cache`, which `make test` reads.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from engine_cache import (
    ANSWERS,
    PACKED_ANSWERS,
    disagreements,
    packed_disagreements,
    packed_questions,
    questions,
    updating,
)

HERE = Path(__file__).parent


def _asked(script: str, asked: dict[str, Any], folder: Path, written: Path) -> dict[str, Any]:
    """The engine's answers; written down where that is asked for."""
    python = os.environ.get("RIGHTSLICE_ORACLE_PYTHON")
    assert python, "RIGHTSLICE_ORACLE_PYTHON is not set: use `make oracle`"
    questions, answers = folder / "questions.json", folder / "answers.json"
    questions.write_text(json.dumps(asked))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([python, str(HERE / script), str(questions), str(answers)], check=True, env=environment)
    found: dict[str, Any] = json.loads(answers.read_text())
    if updating():
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(found, separators=(",", ":")).replace('],"', '],\n"') + "\n")
    return found


def test_the_engine_plans_compressed_latents_as_is_written_down(tmp_path: Path) -> None:
    found = _asked("ask_packed.py", packed_questions(), tmp_path, PACKED_ANSWERS)
    assert found == json.loads(PACKED_ANSWERS.read_text())
    assert not list(packed_disagreements(found))


def test_the_engine_gives_the_answers_that_are_written_down(tmp_path: Path) -> None:
    found = _asked("ask_vllm.py", questions(), tmp_path, ANSWERS)
    written = json.loads(ANSWERS.read_text())
    assert found["vllm"] == written["vllm"]
    assert sorted(found["not_built"]) == sorted(written["not_built"])
    assert found["models"] == written["models"]
    assert not list(disagreements(found))
