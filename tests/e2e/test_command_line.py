"""The program as a person runs it: exit codes, one clear message, whole files, machine-readable output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).parent / "rightslice"
VOICE = (ROOT / "examples" / "voice-assistant.yaml").read_text()
CUSTOM = (ROOT / "examples" / "260gb.yaml").read_text()


def run(*arguments: str, cwd: Path = ROOT, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROGRAM), *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines)


BAD_FILES = {
    "empty": (b"", "RS0405"),
    "binary": (bytes(range(256)) * 8, "RS0403"),
    "large": (b"# filler\n" * 5_600_000, "RS0404"),
    "aliases": (bomb().encode(), "RS0103"),
    "unknown-key": (VOICE.replace("max_context: 4096", "max_contxt: 4096").encode(), "RS0201"),
    "wrong-unit": (VOICE.replace("memory: 9.6GB", "memory: 80 GBs").encode(), "RS0107"),
    "negative-rate": (
        VOICE.replace("max_context: 4096", "traffic: {rate: -3/s, input_tokens: 10, output_tokens: 10}").encode(),
        "RS0106",
    ),
    "duplicate-name": (VOICE.replace("- name: tts", "- name: asr").encode(), "RS0301"),
    "missing-stage": (VOICE.replace("stages: [asr, llm, tts]", "stages: [asr, llm, voice]").encode(), "RS0302"),
    "unknown-accelerator": (VOICE.replace("allow: [A100-SXM-80GB]", "allow: [H100]").encode(), "RS0312"),
    "unknown-model": (VOICE.replace("meta-llama/Llama-3.1-8B-Instruct", "meta-lama/Nope").encode(), "RS0310"),
}


@pytest.mark.parametrize("kind", sorted(BAD_FILES))
def test_a_bad_file_ends_with_exit_2_and_one_clear_message(kind: str, tmp_path: Path) -> None:
    content, rule = BAD_FILES[kind]
    path = tmp_path / "workload.yaml"
    path.write_bytes(content)
    done = run("plan", str(path), "-o", str(tmp_path / "out"))
    assert done.returncode == 2
    assert f"error[{rule}]" in done.stderr
    assert "workload.yaml" in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    assert len(done.stderr.splitlines()) <= 12


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    for path, rule in ((tmp_path, "RS0402"), (tmp_path / "none.yaml", "RS0401")):
        done = run("plan", str(path))
        assert done.returncode == 2
        assert f"error[{rule}]" in done.stderr


def test_all_mistakes_are_told_at_once_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(VOICE.replace("allow: [A100-SXM-80GB]", "allow: [H100]").replace("memory: 9.6GB", "memory: 80 GBs"))
    done = run("plan", str(path), "--json")
    assert done.returncode == 2
    found = json.loads(done.stdout)["error"]["diagnostics"]
    assert [d["rule"] for d in found] == ["RS0107", "RS0312"]
    lines = path.read_text().splitlines()
    for diagnostic, token in zip(found, ("80 GBs", "H100"), strict=True):
        where = diagnostic["location"]
        assert lines[where["line"] - 1][where["column"] - 1 :].startswith(token)
    assert "H100-SXM-80GB" in found[1]["hint"]


def test_a_model_that_fits_nowhere_is_an_honest_no(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(CUSTOM.replace("weights: 200GB", "weights: 200TB"))
    done = run("plan", str(path))
    assert done.returncode == 1
    assert "No deployment meets this workload" in done.stdout
    assert "fits nothing that the fleet allows" in done.stdout
    document = json.loads(run("plan", str(path), "--json").stdout)
    assert document["feasible"] is False
    assert document["pools"] == []
    assert document["binding"]["what"]


def test_an_unreachable_objective_says_what_binds_and_offers_a_way_out(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "gemma-27b-chat.yaml").read_text().replace("ttft_p95: 2s", "ttft_p95: 5ms")
    path = tmp_path / "w.yaml"
    path.write_text(text)
    done = run("plan", str(path), "--json")
    assert done.returncode == 1
    binding = json.loads(done.stdout)["binding"]
    assert "ttft_p95" in binding["what"]
    assert any("ttft_p95" in way and "$" in way for way in binding["ways_out"])


def test_json_is_the_whole_of_stdout_and_files_are_whole(tmp_path: Path) -> None:
    done = run("plan", "examples/260gb.yaml", "--json", "-o", str(tmp_path / "out"))
    assert done.returncode == 0
    document = json.loads(done.stdout)
    timings = document.pop("timings")
    assert set(timings) >= {"read_s", "candidates_cpu_s", "pack_cpu_s", "simulate_cpu_s", "total_cpu_s"}
    assert json.loads((tmp_path / "out" / "plan.json").read_text()) == document
    written = sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert "report.html" in written
    assert "kubernetes/README.md" in written
    assert not [name for name in written if name.endswith(".part")]


def test_planning_again_into_the_same_folder_leaves_no_manifest_of_the_old_plan(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("plan", "examples/260gb.yaml", "-o", str(out)).returncode == 0
    mine = out / "kubernetes" / "mine.yaml"
    mine.write_text("kept: true\n")
    renamed = tmp_path / "w.yaml"
    renamed.write_text(CUSTOM.replace("name: large", "name: other"))
    assert run("plan", str(renamed), "-o", str(out)).returncode == 0
    names = {p.relative_to(out / "kubernetes").as_posix() for p in (out / "kubernetes").rglob("*") if p.is_file()}
    assert any(name.startswith("base/other/") for name in names)
    assert not any(name.startswith("base/large/") for name in names)
    assert mine.read_text() == "kept: true\n"


def test_the_gke_formula_and_what_the_exact_method_says_differs() -> None:
    asked = ("size", "google/gemma-3-27b-it", "--input-tokens", "1500", "--output-tokens", "200", "--json")
    formula = json.loads(run(*asked, "--method", "gke").stdout)
    assert formula["total_bytes"] / 1e9 == pytest.approx(56.44, abs=0.05)
    exact = json.loads(run(*asked).stdout)
    assert exact["total_bytes"] != formula["total_bytes"]
    notes = " ".join(exact["notes"])
    assert "27.4 B real parameters" in notes
    assert "128" in notes
    assert "1,024" in notes


def test_help_is_fast_to_load_and_names_the_questions() -> None:
    probe = (
        "import sys; from rightslice.ui.cli.main import main; main(['--help']); "
        "print(sorted(m for m in ('numpy','numba','highspy','httpx','aiohttp','jinja2') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Does it fit, on what?" in done.stdout


def test_init_writes_a_workload_that_plans(tmp_path: Path) -> None:
    assert run("init", cwd=tmp_path).returncode == 0
    done = run("plan", "workload.yaml", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["DEPLOY", "COST", "SLO"]


def test_size_answers_as_an_engine_would_at_start_up() -> None:
    asked = ("size", "meta-llama/Llama-3.1-8B-Instruct", "--accelerator", "RTX-3090", "--json", "--engine", "vllm")
    for arguments, verdict, code in (
        ("--max-model-len 60000", "does_not_start", 1),
        ("--max-model-len 4096", "starts", 0),
        ("-tp 3", "refused", 1),
    ):
        done = run(*asked, f"--engine-args={arguments}")
        document = json.loads(done.stdout)
        assert (document["verdict"], done.returncode) == (verdict, code), arguments
        assert bool(document["fix"]) == (verdict != "starts")
    assert run("size", "Llama-3.1-8B", "--engine", "vllm").returncode == 2


def test_an_interrupted_plan_ends_with_130_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(VOICE.replace("concurrent: 50,", "concurrent: 2000,").replace("$20000", "$9000000"))
    process = subprocess.Popen(
        [str(PROGRAM), "plan", str(path), "-o", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(3.0)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (stdout, stderr) == ("", "interrupted\n")
    assert not (tmp_path / "out").exists()


def test_a_closed_standard_output_is_no_failure() -> None:
    done = subprocess.run(
        ["sh", "-c", f"'{PROGRAM}' plan examples/260gb.yaml --no-emit >&-"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
