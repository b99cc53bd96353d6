"""Models by hub id, against a small hub on this machine: what is downloaded, kept, refused, and never shown."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rightslice.catalogue.models import resolve_model

PROGRAM = Path(sys.executable).parent / "rightslice"
REVISION = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_" + "verysecret" * 3
MODEL = "acme/tiny-llama"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32_000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


def safetensors(tensors: dict[str, list[int]], padding: int = 300_000) -> bytes:
    """A weight file of BF16 tensors whose data is not as long as its header says, behind a real header."""
    header: dict[str, object] = {}
    end = 0
    for name, shape in tensors.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    data = json.dumps(header).encode()
    return len(data).to_bytes(8, "little") + data + b"x" * padding


class Hub(ThreadingHTTPServer):
    """Knows one model; `status` answers everything instead; remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {
            "config.json": json.dumps(CONFIG).encode(),
            "model.safetensors.index.json": json.dumps({"metadata": {"total_size": 2_200_119_296}}).encode(),
            "model-00001-of-00001.safetensors": safetensors({"model.norm.weight": [2048]}),
        }
        self.ranges = True
        self.sizes = {name: len(data) for name, data in self.files.items()}
        self.status = 200
        self.weight_bytes = 0
        self.asked: list[str] = []
        self.tokens: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        hub, path = self.server, self.path.partition("?")[0]
        hub.asked.append(path)
        hub.tokens.add(self.headers.get("Authorization", ""))
        data, extra = b"{}", {}
        status = hub.status
        if status == 200 and path == f"/api/models/{MODEL}":
            siblings = [{"rfilename": name, "size": size} for name, size in hub.sizes.items()]
            data = json.dumps({"id": MODEL, "sha": REVISION, "siblings": siblings}).encode()
        elif status == 200 and path.startswith(f"/{MODEL}/resolve/"):
            name = path.rpartition("/")[2]
            data = hub.files.get(name, b"")
            status = 200 if data else 404
            extra = {"X-Repo-Commit": REVISION, "ETag": f'"{name}-1"'}
            asked = self.headers.get("Range", "")
            if asked.startswith("bytes=") and hub.ranges:
                first, last = (int(side) for side in asked.removeprefix("bytes=").split("-"))
                data, status = data[first : last + 1], 206
            if body and name.endswith(".safetensors"):
                hub.weight_bytes += len(data)
        elif status == 200:
            status = 404
        if status == 404:
            extra = {"X-Error-Code": "RepoNotFound"}
        if status == 403:
            extra = {"X-Error-Code": "GatedRepo"}
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), "Content-Type": "application/json", **extra}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def size(endpoint: str, home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROGRAM), "size", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={
            **os.environ,
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(home),
            "HF_TOKEN": TOKEN,
            "HF_HUB_OFFLINE": "0",
            **environment,
        },
    )


def test_a_model_is_read_by_its_id_and_kept(hub: Hub, tmp_path: Path) -> None:
    done = size(hub.url, tmp_path, MODEL, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text(json.dumps(CONFIG))
    assert report["model"] == MODEL
    assert report["parameters"] == resolve_model(str(tmp_path / "own")).parameters
    assert report["weights_bytes"] == 2_200_119_296
    assert REVISION in json.dumps(report)
    assert not [path for path in hub.asked if path.endswith(".safetensors")]
    assert f"Bearer {TOKEN}" in hub.tokens
    again = size("http://127.0.0.1:9", tmp_path, MODEL, "--json", HF_HUB_OFFLINE="1")
    assert json.loads(again.stdout) == report


WEIGHTS = {
    "model.embed_tokens.weight": [32_000, 2048],
    "model.layers.0.mlp.up_proj.weight": [5632, 2048],
    "model.layers.1.all_others": [499_501, 2048],
    "model.layers.22.eh_proj.weight": [2048, 4096],  # beyond the 22 layers: multi-token prediction
}


def with_headers(hub: Hub) -> None:
    name = "model-00001-of-00001.safetensors"
    hub.files[name] = safetensors(WEIGHTS)
    index = {"metadata": {"total_size": 2_200_119_296}, "weight_map": dict.fromkeys(WEIGHTS, name)}
    hub.files["model.safetensors.index.json"] = json.dumps(index).encode()
    hub.sizes = {key: len(data) for key, data in hub.files.items()}


def test_headers_give_the_exact_bytes_and_the_tensors_stay_where_they_are(hub: Hub, tmp_path: Path) -> None:
    with_headers(hub)
    first = size(hub.url, tmp_path, MODEL, "--json")
    assert (first.returncode, first.stderr) == (0, "")
    report = json.loads(first.stdout)
    assert report["weights_bytes"] == 2 * 2048 * (32_000 + 5632 + 499_501)
    assert any("safetensors headers" in note for note in report["notes"])
    assert any("multi-token-prediction weights on top" in note for note in report["notes"])
    assert 0 < hub.weight_bytes < 101_000 < len(hub.files["model-00001-of-00001.safetensors"])
    again = size("http://127.0.0.1:9", tmp_path, MODEL, "--json", HF_HUB_OFFLINE="1")
    assert json.loads(again.stdout) == report
    hub.weight_bytes = 0
    assert json.loads(size(hub.url, tmp_path, MODEL, "--json").stdout) == report
    assert hub.weight_bytes == 0


@pytest.mark.parametrize("fault", ["no ranges", "no header", "no file"])
def test_without_readable_headers_the_total_of_the_index_counts(hub: Hub, tmp_path: Path, fault: str) -> None:
    with_headers(hub)
    name = "model-00001-of-00001.safetensors"
    if fault == "no ranges":
        hub.ranges = False
    elif fault == "no header":
        hub.files[name] = b"x" * 200_000
    else:
        hub.files["model.safetensors.index.json"] = hub.files["model.safetensors.index.json"].replace(b"-of-", b"-or-")
    done = size(hub.url, tmp_path, MODEL, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["weights_bytes"] == 2_200_119_296


@pytest.mark.parametrize(
    ("status", "code", "told"), [(404, 2, "no such model"), (403, 2, "restricted"), (500, 3, "answered 500")]
)
def test_a_refusal_is_one_clear_line(hub: Hub, tmp_path: Path, status: int, code: int, told: str) -> None:
    hub.status = status
    done = size(hub.url, tmp_path, MODEL)
    assert done.returncode == code
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert TOKEN not in done.stdout + done.stderr


def test_a_hub_that_is_not_there_and_a_giant_configuration(hub: Hub, tmp_path: Path) -> None:
    gone = size("http://127.0.0.1:9", tmp_path, "meta-lama/Llama-3.1-8B-Instruct")
    assert gone.returncode == 3
    assert "did not answer" in gone.stderr
    assert "did you mean" in gone.stderr
    hub.sizes["config.json"] = 10**12
    giant = size(hub.url, tmp_path, MODEL)
    assert giant.returncode == 2
    assert "1,000,000,000,000 bytes" in giant.stderr


@pytest.mark.parametrize("name", ["foo/bar-", "foo/.bar", "a--b/c", "a/b/c", "foo/" + "x" * 200, "foo/b\u00e4r"])
def test_a_name_that_no_hub_has_is_unknown(hub: Hub, tmp_path: Path, name: str) -> None:
    done = size(hub.url, tmp_path, name)
    assert done.returncode == 2
    assert "error[RS0310] unknown model" in done.stderr
    assert hub.asked == []


def test_the_catalogue_asks_nobody(hub: Hub, tmp_path: Path) -> None:
    assert size(hub.url, tmp_path, "google/gemma-3-27b-it").returncode == 0
    assert hub.asked == []


def test_a_plan_takes_a_model_by_its_id(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        f"""apiVersion: rightslice/v1
kind: Workload
metadata: {{name: tiny}}
models:
  - name: llm
    source: {MODEL}
    traffic: {{rate: 1/s, input_tokens: {{mean: 500}}, output_tokens: {{mean: 50}}, slo: {{ttft_p95: 1s}}}}
fleet: {{providers: [gcp], accelerators: {{allow: [L4]}}}}
environment: development
"""
    )
    done = subprocess.run(
        [str(PROGRAM), "plan", str(path), "--json", "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_TOKEN": TOKEN,
            "HF_HUB_OFFLINE": "0",
        },
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["models"][0]["source"] == MODEL
    written = "".join(p.read_text() for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert MODEL in written
    assert TOKEN not in written + done.stdout + done.stderr
