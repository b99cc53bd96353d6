"""The program as a process: what `--help` loads, pipes, full disks, locales, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rightslice.ui.cli.main import QUESTIONS, build

HEAVY = ("numpy", "numba", "highspy", "httpx", "aiohttp", "jinja2", "pydantic", "ruamel", "rich", "yaml")
PROGRAM = [sys.executable, "-m", "rightslice"]


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, check=False, timeout=60, env={**os.environ, **environment}
    )


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom rightslice.ui.cli.main import main\ncode = main(['--help'])\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        f"print(sorted(loaded & set({HEAVY!r})), code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "[] 0\n"
    assert [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("  ")] == [
        command for _, command in QUESTIONS
    ]
    assert max(len(line) for line in done.stdout.splitlines()) <= 110


def test_every_question_names_a_command_and_every_command_answers_one() -> None:
    commands = {name for name in build() if not name.startswith("-")}
    assert commands == {command for _, command in QUESTIONS}


@pytest.mark.parametrize("arguments", [["--version"], ["-h"], [], ["plan", "--help"], ["--help", "size"], ["catalog"]])
def test_help_and_version_are_answers(arguments: list[str]) -> None:
    done = _run(*arguments)
    assert done.returncode == 0
    assert done.stdout.strip()
    assert done.stderr == b""
    assert b"\x1b" not in done.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen([*PROGRAM, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PROGRAM, "schema"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error[RS0407] cannot write to <stdout>: ")
    assert done.stderr.count(b"\n") == 1


def test_a_plain_locale_gets_plain_text_but_utf8_json() -> None:
    plain = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert _run("init", "-", **plain).stdout.decode("ascii")
    assert _run("--help", **plain).returncode == 0
    assert "…".encode() not in _run("--help", **plain).stdout
    _run("schema", "--plan", **plain).stdout.decode("utf-8")


def test_ctrl_c_is_130_and_one_word() -> None:
    code = (
        "import sys, types, time\n"
        "module = types.ModuleType('rightslice.app.planning')\n"
        "def plan_workload(*a, **k):\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "module.plan_scaled = module.write_plan = plan_workload\n"
        "sys.modules['rightslice.app.planning'] = sys.modules['rightslice.app.autoscaling'] = module\n"
        "from rightslice.ui.cli.main import main\nsys.exit(main(['plan', 'w.yaml']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b"interrupted\n"


def test_a_terminal_sees_one_progress_line_and_the_source_of_a_mistake() -> None:
    code = (
        "import sys, types\n"
        "from rightslice.core.errors import BadInputError, Diagnostic, Location\n"
        "def plan_workload(path, *, seed, risk, progress, over_time, current, calibrations):\n"
        "    progress('packing')\n    progress('simulating')\n"
        "    place = Location('w.yaml', 3, 9)\n"
        "    raise BadInputError(Diagnostic('RS0312', 'unknown', place, 'try L4', 'error', 'allow: [H100]', 4))\n"
        "module = types.ModuleType('rightslice.app.planning')\n"
        "module.plan_scaled = module.write_plan = plan_workload\n"
        "sys.modules['rightslice.app.planning'] = sys.modules['rightslice.app.autoscaling'] = module\n"
        "from rightslice.ui.cli.main import main\nsys.exit(main(['plan', 'w.yaml']))"
    )
    master, slave = os.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=slave, check=False, timeout=60, env=environment
    )
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert done.returncode == 2
    assert done.stdout == b""
    progress, _, mistake = shown.rpartition("\r\x1b[K")
    assert progress == "\r\x1b[Kpacking\r\x1b[Ksimulating"
    assert mistake.startswith("error[RS0312] w.yaml:3:9: unknown")
    assert "^^^^ try L4" in mistake
