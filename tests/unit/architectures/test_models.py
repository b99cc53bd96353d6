"""Finding a model by its names, its folder or its file."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from rightslice.catalogue.models import advertised_parameters_b, model_exists, model_names, resolve_model
from rightslice.core.errors import BadInputError


def test_every_catalogue_name_resolves() -> None:
    for name in sorted(model_names()):
        assert model_exists(name)
        found = resolve_model(name)
        assert found.parameters > 0
        assert found.source


@pytest.mark.parametrize(
    ("source", "model", "billions"),
    [
        ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", 8.03),
        ("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B", 8.03),
        ("LLAMA-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct", 70.55),
        ("Llama-2-70B", "meta-llama/Llama-2-70b-hf", 68.98),
        ("Llama-4-Maverick", "meta-llama/Llama-4-Maverick-17B-128E-Instruct", 401.6),
        ("Mixtral-8x22B", "mistralai/Mixtral-8x22B-v0.1", 140.6),
        ("Falcon-180B", "tiiuae/falcon-180B", 179.5),
        ("BLOOM-176B", "bigscience/bloom", 176.2),
        ("Mistral-7B", "mistralai/Mistral-7B-v0.1", 7.2417),
        ("Yi-34B", "01-ai/Yi-34B", 34.4),
        ("gemma-3-27b", "google/gemma-3-27b-it", 27.43),
        ("Qwen3-32B", "Qwen/Qwen3-32B", 32.76),
    ],
)
def test_names(source: str, model: str, billions: float) -> None:
    found = resolve_model(source)
    assert found.name == model
    assert found.parameters / 1e9 == pytest.approx(billions, rel=1e-3)


def test_an_alias_may_change_keys_of_the_shipped_configuration() -> None:
    assert resolve_model("Llama-3-8B").context_max == 8192
    assert resolve_model("Llama-3.1-8B").context_max == 131_072


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(BadInputError) as caught:
        resolve_model("gemma-3-27")
    assert "gemma-3-27b" in caught.value.hint
    assert caught.value.next_command == "rightslice catalog models"


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("google/gemma-3-27b-it", 27.0),
        ("Qwen/Qwen3-30B-A3B", 30.0),
        ("HuggingFaceTB/SmolLM2-1.7B", 1.7),
        ("mistralai/Mixtral-8x7B-v0.1", 56.0),
        ("google/gemma-4-E2B-it", None),
        ("openai/whisper-large-v3", None),
        ("deepseek-ai/DeepSeek-R1", None),
    ],
)
def test_size_in_a_name(name: str, billions: float | None) -> None:
    assert advertised_parameters_b(name) == billions


def test_reading_is_quick_and_light() -> None:
    """Each of the largest shipped configurations within 20 ms, in a fresh process without heavy libraries."""
    code = (
        "import sys, time\n"
        "from rightslice.catalogue.models import resolve_model\n"
        "from rightslice.memory.footprint import footprint\n"
        "from rightslice.core.engine import EngineSettings\n"
        "resolve_model('Llama-3.1-8B')\n"
        "t = time.process_time()\n"
        "resolve_model('nvidia/GLM-5.1-NVFP4')\n"
        "print(time.process_time() - t)\n"
        "print(*sorted({'numba', 'pydantic', 'ruamel', 'numpy', 'highspy'} & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, heavy = ran.stdout.split("\n")[:2]
    assert heavy == ""
    assert float(seconds) < 0.1  # 0.013 s alone on the machine; generous for a busy one


def test_second_reading_is_free() -> None:
    resolve_model("DeepSeek-R1")
    started = time.process_time()
    for _ in range(100):
        resolve_model("DeepSeek-R1")
    assert time.process_time() - started < 0.1
