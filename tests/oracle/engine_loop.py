"""A real engine, measured, calibrated and predicted: vLLM on this machine's CPU. Not collected by `make test`; run by
`make e2e`, which takes some ten minutes and wants a quiet machine.

`RIGHTSLICE_ORACLE_PYTHON` is an interpreter with the packages of `requirements.txt`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from rightslice.app.calibrate import simulated
from rightslice.core.calibrated import StepLaw
from rightslice.loadtesting.calibration import Engine
from rightslice.loadtesting.imports import imported
from rightslice.ui.cli.main import main

SEQUENCES, STEP_TOKENS = 64, 2048
START_S = 600.0
FITTED = ((32, 128), (128, 64), (1024, 32), (128, 64))
"""Tokens of prompts and answers: long answers, long prompts, and one shape twice, to see the spread."""
UNSEEN = ((64, 32), (512, 64), (2048, 48))
BAR, LEFT_OUT_BAR = 0.15, 0.10
WORST = 0.5
"""A law that misses by more is no noise of a busy machine."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = os.environ.get("RIGHTSLICE_ORACLE_PYTHON")
    assert python, "RIGHTSLICE_ORACLE_PYTHON is not set: use `make e2e`"
    folder = tmp_path_factory.mktemp("engine")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    subprocess.run(
        [python, str(Path(__file__).with_name("tiny_model.py")), str(folder / "model")], check=True, env=environment
    )
    environment["PYTHONPATH"] = str(named_vllm(python, folder, environment))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "model")),
        *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"),
        *("--no-enable-prefix-caching", "--max-num-seqs", str(SEQUENCES), "--max-num-batched-tokens", str(STEP_TOKENS)),
    ]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            url = f"http://127.0.0.1:{port}"
            wait(url, process, folder / "server.log")
            yield url
        finally:
            process.terminate()
            process.wait(60)


def named_vllm(python: str, folder: Path, environment: dict[str, str]) -> Path:
    """The distribution is called vllm-cpu; vLLM asks for the version of `vllm`, and takes its platform from it."""
    asked = "from importlib.metadata import version; print(version('vllm-cpu'))"
    found = subprocess.run(
        [python, "-c", asked], check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()
    marked = folder / "named" / f"vllm-{found}+cpu.dist-info"
    marked.mkdir(parents=True)
    (marked / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {found}+cpu\n")
    return marked.parent


def wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with closing(HTTPConnection(url.removeprefix("http://"), timeout=5)) as connection:
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
        except OSError:
            time.sleep(1.0)
    pytest.fail(f"the engine did not start: {log.read_text()[-2000:]}")


def loadtest(url: str, folder: Path, *options: str) -> Any:
    assert main(["loadtest", url, "--model", "tiny", *options, "-o", str(folder), "--quiet"]) == 0
    return json.loads((folder / "loadtest.json").read_text())


def test_the_knee_of_a_real_engine_with_its_own_metrics(server: str, tmp_path: Path) -> None:
    shape = ("--input-tokens", "128", "--output-tokens", "64")
    found = loadtest(server, tmp_path / "knee", "--sweep", "1,4,16,64,160", "--requests", "320", *shape)
    assert found["knee"]["concurrency"] <= SEQUENCES
    for point in found["points"]:
        assert point["failed"] == 0
        assert point["input_tokens"] == 128 * point["completed"]
        assert point["output_tokens"] == 64 * point["completed"]
        seen = point["server"]
        assert seen["running_max"] <= min(point["concurrency"], SEQUENCES)
        assert 0.0 < seen["kv_use_max"] <= 1.0
        assert seen["preemptions"] == 0
    print(f"knee at {found['knee']['concurrency']} streams, {found['knee']['output_tokens_per_s']:.0f} tokens/s")


def test_a_calibrated_law_predicts_shapes_that_it_has_not_seen(server: str, tmp_path: Path) -> None:
    for number, (prompt, answer) in enumerate(FITTED):
        shape = ("--input-tokens", str(prompt), "--output-tokens", str(answer))
        loadtest(server, tmp_path / f"run{number}", "--sweep", "1,4,16", "--requests", "64", *shape, "--no-self-check")
    results = [str(tmp_path / f"run{number}" / "loadtest.json") for number in range(len(FITTED))]
    started = ("--max-num-seqs", str(SEQUENCES), "--max-num-batched-tokens", str(STEP_TOKENS))
    main(["calibrate", *results, *started, "-o", str(tmp_path / "calibration.json")])
    fitted = json.loads((tmp_path / "calibration.json").read_text())
    law, engine = StepLaw(**fitted["coefficients"]), Engine(SEQUENCES, STEP_TOKENS)
    errors = []
    for prompt, answer in UNSEEN:
        shape = ("--input-tokens", str(prompt), "--output-tokens", str(answer))
        folder = tmp_path / f"unseen-{prompt}"
        document = loadtest(server, folder, "--sweep", "8", "--requests", "48", *shape, "--no-self-check")
        (point,) = imported(document, "unseen")[1]
        found = simulated(law, point, engine)
        assert found is not None
        assert found.tpot_ms is not None
        off = found.tpot_ms.mean / point.tpot_ms - 1.0, found.e2e_ms.mean / point.e2e_ms - 1.0
        errors += [abs(error) for error in off]
        print(f"{prompt} in, {answer} out, 8 streams: TPOT {off[0]:+.1%}, e2e {off[1]:+.1%} (bar {BAR:.0%})")
    left_out, spread = fitted["leave_one_out"]["tpot"], fitted["repeat_spread"]
    print(f"left out: TPOT {left_out:.1%} (bar {LEFT_OUT_BAR:.0%}); repeats differ by {spread:.1%}")
    assert left_out < WORST
    assert median(errors) < WORST
