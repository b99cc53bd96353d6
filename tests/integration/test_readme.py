"""What the README shows is what the program says. RIGHTSLICE_UPDATE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rightslice

ROOT = Path(__file__).parents[2]
FILE = ROOT / "README.md"
README = FILE.read_text(encoding="utf-8")
PROGRAM = Path(sys.executable).parent / "rightslice"
TRANSCRIPT = re.compile(r"```\n\$ rightslice (plan .*?)\n(.*?)```", re.DOTALL)


def test_the_workload_of_the_readme_plans(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(apiVersion: rightslice/v1.*?)```", README, re.DOTALL)
    assert found
    path = tmp_path / "workload.yaml"
    path.write_text(found[1])
    plan = rightslice.plan(path)
    assert plan.feasible, plan.binding
    assert plan.verification
    assert plan.verification.failed == 0
    assert any("max_model_len" in text for text in plan.assumptions)


@pytest.mark.parametrize("number", range(2))
def test_a_transcript_is_what_the_program_prints(number: int, tmp_path: Path) -> None:
    """`slow.yaml` is the Gemma example with the objective that the text before the transcript names."""
    command, shown = TRANSCRIPT.findall(README)[number]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    gemma = (ROOT / "examples" / "gemma-27b-chat.yaml").read_text()
    (tmp_path / "slow.yaml").write_text(gemma.replace("ttft_p95: 2s", "ttft_p95: 60ms"))
    done = subprocess.run(
        [str(PROGRAM), *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode == (1 if "slow" in command else 0)
    if os.environ.get("RIGHTSLICE_UPDATE_GOLDEN") == "1":
        FILE.write_text(FILE.read_text(encoding="utf-8").replace(shown, done.stdout), encoding="utf-8")
    else:
        assert done.stdout == shown
