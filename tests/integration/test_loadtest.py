"""The load client against servers with known times and known faults."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme
import yaml

from rightslice.adapters.endpoint import Run, Sending, new_event_loop, play
from rightslice.adapters.exchanging import Target
from rightslice.adapters.stub import Behaviour, Stub, serve
from rightslice.loadtesting.dialects import Prompt, Wanted
from rightslice.loadtesting.schedule import ClosedLoop, Limits, Load, OpenLoop
from rightslice.ui.cli.main import main

FAST = Behaviour(ttft_s=0.05, itl_s=0.005)


@contextmanager
def served(behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, Stub]]:
    """A stub in a thread of its own."""
    loop, stub = new_event_loop(), Stub(behaviour)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner, url = asyncio.run_coroutine_threadsafe(serve(stub, tls), loop).result(10)
    try:
        yield url, stub
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def played(
    url: str,
    load: Load = ClosedLoop(2),  # noqa: B008 - frozen
    requests: int = 6,
    tokens: int = 8,
    *,
    stream: bool = True,
    api: Any = "chat",
    timeout_s: float = 20.0,
    intended_s: tuple[float, ...] = (),
) -> Run:
    target = Target(url, timeout_s=timeout_s)
    wanted = Wanted(api, "stub", stream)
    loop = new_event_loop()
    try:
        return loop.run_until_complete(
            play(Sending(target, wanted, load, Limits(requests), lambda _: Prompt("a b c", tokens), intended_s))
        )
    finally:
        loop.close()


def test_times_agree_with_the_servers_own_request_by_request() -> None:
    with served(Behaviour(ttft_s=0.1, itl_s=0.02)) as (url, stub):
        run = played(url, ClosedLoop(16), 48, 12)
    log = {entry.request_id: entry for entry in stub.log}
    assert len(run.exchanges) == len(log) == 48
    first, last = [], []
    for exchange in run.exchanges:
        entry = log[exchange.request_id]
        assert (exchange.output_tokens, exchange.counted, exchange.error) == (entry.tokens, True, "")
        first.append(exchange.ttft_s - (entry.first_token_s - entry.received_s))
        last.append(exchange.e2e_s - (entry.last_token_s - entry.received_s))
        assert exchange.first_chunk_s < exchange.first_token_s < exchange.last_token_s <= exchange.end_s
    # A machine that runs other tests may delay some; the middle one shows what the client itself adds.
    assert 0.0 <= float(np.median(first)) < 0.02
    assert 0.0 <= float(np.median(last)) < 0.02


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(0.02, 0.002, role_first=False),
        Behaviour(0.02, 0.002, coalesce=5),
        Behaviour(0.02, 0.002, split=True),
        Behaviour(0.02, 0.002, comments=True),
        Behaviour(0.02, 0.002, header_delay_s=0.05),
    ],
)
def test_whatever_the_pieces_tokens_are_exact(behaviour: Behaviour) -> None:
    with served(behaviour) as (url, _):
        run = played(url, tokens=12)
    assert [(e.error, e.output_tokens, e.counted) for e in run.exchanges] == [("", 12, True)] * 6
    assert all(e.ttft_s > behaviour.ttft_s - 0.005 for e in run.exchanges)


def test_a_role_is_no_first_token() -> None:
    with served(Behaviour(ttft_s=0.2, itl_s=0.001)) as (url, _):
        run = played(url, requests=2)
    assert all(e.first_chunk_s - e.sent_s < 0.15 and e.ttft_s > 0.195 for e in run.exchanges)


def test_without_usage_chunks_are_counted_and_said_to_be() -> None:
    with served(Behaviour(0.02, 0.002, usage=False)) as (url, _):
        run = played(url, tokens=9)
    assert {(e.output_tokens, e.counted) for e in run.exchanges} == {(9, False)}


def test_an_answer_that_breaks_off_is_no_answer() -> None:
    with served(Behaviour(0.02, 0.002, close_after=3)) as (url, _):
        run = played(url, requests=3)
    assert {e.error for e in run.exchanges} <= {"closed_early", "disconnected"}
    assert {e.chunks for e in run.exchanges} == {3}


def test_statuses_are_counted_by_kind_with_what_the_server_said() -> None:
    with served(Behaviour(0.01, 0.001, statuses=(429, 500, 200, 429))) as (url, _):
        run = played(url, ClosedLoop(1), 5)
    assert [e.error for e in run.exchanges] == ["http_429", "http_500", "", "http_429", ""]
    assert "as told" in run.exchanges[0].detail


def test_a_request_that_takes_too_long_is_a_timeout() -> None:
    with served(Behaviour(ttft_s=5.0)) as (url, _):
        run = played(url, ClosedLoop(1), 1, timeout_s=0.3)
    assert [e.error for e in run.exchanges] == ["timeout"]


@pytest.mark.parametrize("api", ["completions", "embeddings"])
@pytest.mark.parametrize("stream", [True, False])
def test_other_interfaces(api: str, *, stream: bool) -> None:
    with served(FAST) as (url, _):
        run = played(url, api=api, stream=stream, tokens=5)
    assert {(e.error, e.input_tokens) for e in run.exchanges} == {("", 3)}
    assert {e.output_tokens for e in run.exchanges} == {0 if api == "embeddings" else 5}
    assert all(e.e2e_s > 0.045 for e in run.exchanges)


def test_an_open_loop_does_not_wait_for_answers() -> None:
    with served(Behaviour(ttft_s=0.5, itl_s=0.001)) as (url, _):
        run = played(url, OpenLoop(50.0), 10, intended_s=tuple(i * 0.02 for i in range(10)))
    assert [e.error for e in run.exchanges] == [""] * 10
    assert max(e.sent_s for e in run.exchanges) < 0.5


def test_latency_counts_from_the_intended_time() -> None:
    """One slot: the second of two requests meant for the same moment waits for the first."""
    with served(Behaviour(ttft_s=0.2, itl_s=0.001, slots=1)) as (url, _):
        run = played(url, OpenLoop(10.0), 2, intended_s=(0.0, 0.0))
    assert sorted(round(e.ttft_s, 1) for e in run.exchanges) == [0.2, 0.4]


def test_a_server_that_dies_ends_the_run_and_what_was_measured_stays() -> None:
    arguments = ("-m", "rightslice.adapters.stub", "--ttft-ms", "20", "--itl-ms", "2")
    with subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stub:
        assert stub.stdout is not None
        url = stub.stdout.readline().strip()
        threading.Timer(0.6, stub.kill).start()
        run = played(url, ClosedLoop(4), 100_000)
    assert "the server stopped answering" in run.stopped
    assert sum(e.completed for e in run.exchanges) > 4
    assert len(run.exchanges) < 10_000


def test_tls_is_refused_unless_it_is_trusted_or_asked_for() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with served(FAST, context) as (url, _):
        assert {e.error for e in played(url, ClosedLoop(1), 1).exchanges} == {"tls"}
        loop = new_event_loop()
        target, wanted = Target(url, verify_tls=False), Wanted("chat", "stub")
        run = loop.run_until_complete(play(Sending(target, wanted, ClosedLoop(1), Limits(2), lambda _: Prompt("a", 4))))
        loop.close()
        assert [e.error for e in run.exchanges] == ["", ""]


def answered(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, str, str]:
    code = main(["loadtest", *arguments])
    out, err = capsysbinary.readouterr()
    return code, out.decode(), err.decode()


def test_the_command_finds_the_knee_of_a_server_with_slots(
    capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    with served(Behaviour(ttft_s=0.03, itl_s=0.003, slots=4)) as (url, _):
        arguments = ("--find-knee", "--input-tokens", "100", "--output-tokens", "10", "--no-self-check", "--json")
        code, out, _ = answered(capsysbinary, f"{url}/v1", "--model", "m", *arguments, "-o", str(tmp_path / "out"))
    found = json.loads(out)
    assert code == 0
    assert 3 <= found["knee"]["concurrency"] <= 6
    assert [p["concurrency"] for p in found["points"]] == sorted(p["concurrency"] for p in found["points"])
    assert {p["input_tokens"] // p["completed"] for p in found["points"]} == {100}
    assert json.loads((tmp_path / "out" / "loadtest.json").read_text("utf-8")) == found
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Knee at" in page
    assert "<script" not in page
    assert page.count("<circle") == 7 * len(found["points"])  # speed, and p50 and p95 of three latencies
    rows = (tmp_path / "out" / "requests.csv").read_text("utf-8").splitlines()
    assert len(rows) > sum(p["requests"] for p in found["points"])


def test_the_command_for_people(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with served(FAST) as (url, _):
        arguments = ("--sweep", "1,3", "--output-tokens", "5", "--slo", "ttft_p95=2s", "--requests", "12")
        code, out, err = answered(capsysbinary, url, "--model", "m", *arguments)
    assert (code, err) == (0, "")
    assert "against a server with known times at 3 streams" in out.replace("\n", " ")
    assert "100 % of requests met all objectives" in out.replace("\n", " ").replace("100.0", "100")


def test_a_missed_objective_is_exit_code_1(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with served(FAST) as (url, _):
        code, out, _ = answered(
            capsysbinary, url, "--model", "m", "--slo", "ttft_p95=1ms", "--output-tokens", "2", "--no-self-check"
        )
    assert code == 1
    assert "misses ttft_p95" in out


def test_a_server_that_refuses_extensions_is_asked_without(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with served(Behaviour(0.01, 0.001, strict=True)) as (url, _):
        code, out, _ = answered(capsysbinary, url, "--model", "m", "--output-tokens", "4", "--no-self-check", "--json")
    found = json.loads(out)
    assert code == 0
    assert "refuses ignore_eos" in found["notes"][0]
    assert found["points"][0]["failed"] == 0


def uneven(text: str) -> int:
    """A tokenizer for which longer words are two tokens, and every text begins with one of its own."""
    return 1 + sum(1 if len(word) < 5 else 2 for word in text.split())


def test_prompts_are_exact_where_the_tokenizer_can_be_asked(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    arguments = ("--model", "m", "--input-tokens", "211", "--output-tokens", "2", "--no-self-check", "--json")
    with served(Behaviour(0.01, 0.001, tokens_of=uneven)) as (url, _):
        _, out, _ = answered(capsysbinary, url, *arguments)
    point = json.loads(out)["points"][0]
    assert point["input_tokens"] == 211 * point["completed"]


def test_nobody_there_is_exit_code_3(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, err = answered(capsysbinary, "http://127.0.0.1:9", "--model", "m", "--no-self-check")
    assert (code, out) == (3, "")
    assert "error[RS0602]" in err


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("ftp://host",), "RS0501"),
        (("http://",), "RS0501"),
        (("http://h:99999999",), "RS0501"),
        (("http://user:secret@h",), "RS0501"),
        (("http://h", "--sweep", "0"), "RS0501"),
        (("http://h", "--sweep", "1,²"), "RS0501"),
        (("http://h", "--rate", "0/s"), "RS0501"),
        (("http://h", "--rate", "1/s", "--sweep", "1"), "RS0502"),
        (("http://h", "--find-slo"), "RS0502"),
        (("http://h", "--slo", "speed=1"), "RS0501"),
        (("http://h", "--duration", "0s"), "RS0501"),
        (("http://h", "--api-key-env", "NO_SUCH_VARIABLE_HERE"), "RS0501"),
        (("http://h", "--input-tokens", "0"), "RS0501"),
        (("http://h", "--metrics-url", "file:///etc/passwd"), "RS0501"),
        (("http://h", "--processes", "0"), "RS0501"),
        (("http://h", "--trace", "t", "--prompts", "p"), "RS0502"),
        (("http://h", "--api", "speech", "--trace", "t"), "RS0502"),
        (("http://h", "--prompts", "p", "--api", "rerank"), "RS0502"),
    ],
)
def test_wrong_options(capsysbinary: pytest.CaptureFixture[bytes], arguments: tuple[str, ...], rule: str) -> None:
    code, out, err = answered(capsysbinary, *arguments)
    assert (code, out) == (2, "")
    assert f"error[{rule}]" in err
    assert "secret" not in err.replace("user:secret@", "")


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    with served(Behaviour(0.02, 0.002)) as (url, _):
        arguments = (
            "loadtest",
            url,
            "--model",
            "m",
            "--duration",
            "60s",
            "--no-self-check",
            "--json",
            "-o",
            str(tmp_path),
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "rightslice", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "RIGHTSLICE_KEY": "sk-hidden"},
        )
        time.sleep(4.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    found = json.loads(out)
    assert process.returncode == 130, err
    assert "interrupted" in found["stopped"]
    assert found["points"][0]["completed"] > 0
    assert (tmp_path / "requests.csv").exists()


def test_the_key_reaches_the_server_and_nothing_else(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ENDPOINT_KEY", "sk-very-secret")
    with served(FAST) as (url, _):
        code, out, err = answered(
            capsysbinary, url, "--model", "m", "--api-key-env", "ENDPOINT_KEY", "--no-self-check", "-o", str(tmp_path)
        )
    assert code == 0
    written = "".join(path.read_text("utf-8") for path in tmp_path.iterdir())
    assert "sk-very-secret" not in out + err + written


@pytest.mark.parametrize("api", ["transcriptions", "speech"])
def test_sound_is_measured_in_its_seconds(capsysbinary: pytest.CaptureFixture[bytes], api: str) -> None:
    """Ten seconds of sound go there and twenty words become two seconds of speech, a piece every 5 ms."""
    arguments = ("--model", "m", "--api", api, "--sweep", "2", "--requests", "6", "--input-tokens", "20")
    with served(FAST) as (url, _):
        code, out, _ = answered(capsysbinary, url, *arguments, "--no-self-check", "--json")
    point = json.loads(out)["points"][0]
    assert (code, point["completed"], point["failed"]) == (0, 4, 0)
    assert point["audio_s"] == pytest.approx(4 * (10.0 if api == "transcriptions" else 2.0))
    assert 0.0 < point["rtfx"] <= 2 * (10.0 / 0.05 if api == "transcriptions" else 2.0 / 0.145) * 1.5
    if api == "speech":
        assert 45.0 < point["ttft_ms"]["p50"] < point["e2e_ms"]["p50"]
        assert point["e2e_ms"]["p50"] > 140.0


def test_a_recording_must_be_sound(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    song = tmp_path / "song.mp3"
    song.write_bytes(b"ID3" + bytes(100))
    code, _, err = answered(capsysbinary, "http://127.0.0.1:9", "--api", "transcriptions", "--audio", str(song))
    assert code == 2
    assert "no WAV file" in err


def test_a_trace_is_replayed_with_its_times_lengths_and_shared_blocks(
    capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    rows = [
        {"timestamp": 1000 * i, "input_length": 1024 + 10 * i, "output_length": 2 + i, "hash_ids": [0, 10 * i + 1]}
        for i in range(5)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    arguments = ("--model", "m", "--trace", str(trace), "--speed", "10", "--no-self-check", "--json")
    with served(Behaviour(0.01, 0.001)) as (url, stub):
        code, out, _ = answered(capsysbinary, url, *arguments)
    point = json.loads(out)["points"][0]
    assert (code, point["completed"]) == (0, 5)
    assert point["rate"] == pytest.approx(10.0)
    assert point["output_tokens"] == sum(row["output_length"] for row in rows)  # type: ignore[misc]
    assert point["input_tokens"] == sum(row["input_length"] for row in rows)  # type: ignore[misc]
    texts = [text.split() for text in list(stub.prompts)[-5:]]
    assert all(text[:500] == texts[0][:500] for text in texts)
    assert texts[0][520:] != texts[1][520:]


def test_prompts_of_the_users_own(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "one two three"}, {"messages": [{"role": "user", "content": "four"}], "output_tokens": 3}]
    file.write_text("\n".join(json.dumps(line) for line in lines), "utf-8")
    arguments = ("--model", "m", "--prompts", str(file), "--requests", "4", "--output-tokens", "7", "--no-self-check")
    with served(Behaviour(0.01, 0.001)) as (url, stub):
        code, out, _ = answered(capsysbinary, url, *arguments, "--json")
    assert code == 0
    assert [p for p in stub.prompts if "one two" in p or p == "four"] == ["one two three", "four"] * 2
    assert json.loads(out)["points"][0]["output_tokens"] == sum((3, 7, 3))
    file.write_text('{"prompt": "fine"}\n{"prompt": 3}\n', "utf-8")
    code, _, err = answered(capsysbinary, url, "--prompts", str(file))
    assert code == 2
    assert f"{file}:2" in err


def test_the_servers_own_metrics_stand_beside_the_figures(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    arguments = ("--model", "m", "--sweep", "4", "--requests", "24", "--output-tokens", "40", "--no-self-check")
    with served(Behaviour(0.2, 0.02)) as (url, _):
        _, out, _ = answered(capsysbinary, url, *arguments, "--json")
        _, shown, _ = answered(capsysbinary, url, *arguments)
    server = json.loads(out)["points"][0]["server"]
    assert server["running_max"] == 4
    assert server["running"] > 3.0
    assert server["kv_use_max"] == pytest.approx(0.04)
    assert (server["preemptions"], server["prefix_hit_rate"]) == (0, None)
    assert "The server's own metrics" in shown


def test_the_key_is_not_sent_to_another_host_for_metrics(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENDPOINT_KEY", "sk-very-secret")
    with served(FAST) as (url, stub), served(FAST) as (other, elsewhere):
        arguments = ("--model", "m", "--api-key-env", "ENDPOINT_KEY", "--no-self-check", "--output-tokens", "2")
        code, _, _ = answered(capsysbinary, url, *arguments, "--metrics-url", f"{other}/metrics")
    assert code == 0
    assert set(stub.keys) == {"Bearer sk-very-secret"}
    assert set(elsewhere.keys) == {""}


@pytest.mark.parametrize("load", [("--sweep", "5", "--requests", "40"), ("--rate", "40/s", "--requests", "40")])
def test_several_processes_send_one_load(capsysbinary: pytest.CaptureFixture[bytes], load: tuple[str, ...]) -> None:
    arguments = ("--model", "m", *load, "--processes", "2", "--output-tokens", "6", "--no-self-check", "--json")
    with served(FAST) as (url, stub):
        code, out, _ = answered(capsysbinary, url, *arguments)
    found = json.loads(out)
    point = found["points"][0]
    assert (code, point["failed"], point["completed"]) == (0, 0, 35 if "--sweep" in load else 40)
    assert found["client"]["processes"] == 2
    sent = [prompt for prompt in stub.prompts if len(prompt.split()) > 200]
    assert len(sent) == 40
    assert len(set(sent)) == 40
    assert point["output_tokens"] == 6 * point["completed"]


def test_an_interrupt_reaches_every_process(tmp_path: Path) -> None:
    with served(Behaviour(0.02, 0.002)) as (url, _):
        arguments = ("loadtest", url, "--model", "m", "--sweep", "4", "--duration", "60s", "--no-self-check", "--json")
        process = subprocess.Popen(
            [sys.executable, "-m", "rightslice", *arguments, "--processes", "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(7.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert "interrupted" in found["stopped"]
    assert found["points"][0]["completed"] > 20


SHAPE = ("--model", "m", "--sweep", "8", "--requests", "64", "--input-tokens", "300", "--output-tokens", "20")


def test_loads_as_commands_of_other_tools(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, _ = answered(capsysbinary, "http://h:8000/v1", *SHAPE, "--export", "aiperf", "--tokenizer", "/a b")
    words = shlex.split(out)
    assert code == 0
    assert words[:4] == ["aiperf", "profile", "--url", "http://h:8000"]
    assert words[words.index("--concurrency") + 1] == "8"
    assert words[words.index("--tokenizer") + 1] == "/a b"
    code, out, _ = answered(capsysbinary, "http://h:8000", *SHAPE, "--export", "vllm")
    assert "--max-concurrency 8" in out
    code, _, err = answered(capsysbinary, "http://h:8000", "--find-knee", "--export", "vllm", "--model", "m")
    assert code == 2
    assert "--export needs" in err


def test_a_load_as_a_job_of_several_pods(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, _ = answered(
        capsysbinary, "http://h:8000", "--model", "m", "--rate", "400/s", "--requests", "100", "--export", "job"
    )
    job = yaml.safe_load(out)
    pod = job["spec"]["template"]["spec"]["containers"][0]
    assert code == 0
    assert (job["spec"]["completionMode"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Indexed", 4, 4)
    assert pod["args"][pod["args"].index("--rate") + 1] == "100/s"
    assert pod["args"][pod["args"].index("--requests") + 1] == "25"
    with served(FAST) as (url, _):
        told = ["1" if word == "$(JOB_COMPLETION_INDEX)" else word for word in pod["args"][2:]]
        code, out, _ = answered(capsysbinary, url, *told, "--no-self-check")
    assert (code, json.loads(out)["points"][0]["completed"]) == (0, 25)


FAKE = """#!{python}
import json, sys, pathlib
folder = pathlib.Path(sys.argv[sys.argv.index("--artifact-dir") + 1])
one = lambda value: {{"avg": value}}
found = {{"aiperf_version": "0.13.0", "input_config": {{"phases": [{{"kind": "profiling", "concurrency": 2}}]}}}}
names = {{"request_latency": 90.0, "request_throughput": 20.0, "time_to_first_token": 55.0,
          "input_sequence_length": 256.0, "output_sequence_length": 8.0}}
(folder / "profile_export_aiperf.json").write_text(json.dumps(found | {{k: one(v) for k, v in names.items()}}))
"""


def test_another_tool_stands_beside(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stand-in that writes what aiperf 0.13 writes: the tool itself has 139 packages."""
    arguments = ("--model", "m", "--sweep", "2", "--output-tokens", "8", "--no-self-check", "--engine", "aiperf")
    monkeypatch.setenv("PATH", str(tmp_path))
    with served(FAST) as (url, _):
        code, _, err = answered(capsysbinary, url, *arguments)
        assert (code, "aiperf is not installed" in err) == (3, True)
        program = tmp_path / "aiperf"
        program.write_text(FAKE.format(python=sys.executable), "utf-8")
        program.chmod(0o755)
        code, out, _ = answered(capsysbinary, url, *arguments)
        _, found, _ = answered(capsysbinary, url, *arguments, "--json")
    assert code == 0
    assert "2 streams: aiperf" in out
    assert json.loads(found)["peers"][0]["measured"]["tpot_ms"] == pytest.approx(5.0)
