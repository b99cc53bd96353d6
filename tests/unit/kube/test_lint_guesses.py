"""What is guessed from names: models, accelerators, machines. Nothing is guessed where several things are meant."""

from __future__ import annotations

import pytest
import yaml

from lint_objects import FAMILY, Object, node_pool, on, server
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.documents import parse
from rightslice.kube.lint.hardware import Hardware, named_accelerators
from rightslice.kube.lint.models import GIB, named_model


@pytest.mark.parametrize(
    ("name", "gib", "precision", "exact"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 15.0, "bf16", True),
        ("/models/Llama-3.3-70B-Instruct", 131.4, "bf16", True),
        ("meta-llama/Llama-3.1-70B-Instruct", 131.4, "bf16", True),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", 38.6, "int4", True),
        ("neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8", 67.7, "fp8", True),
        ("deepseek-ai/DeepSeek-V3", 626.9, "fp8", True),
        ("somebody/Thing-13B", 24.2, "bf16", False),
        ("somebody/Thing-13B-GPTQ-Int4", 6.8, "int4", False),
        ("facebook/opt-125m", 0.2, "bf16", False),
        ("microsoft/phi-2", 5.2, "bf16", False),
    ],
)
def test_models_by_name(name: str, gib: float, precision: str, exact: bool) -> None:
    model = named_model(name)
    assert model is not None
    assert model.weights_bytes is not None
    assert round(model.weights_bytes / GIB, 1) == gib
    assert (model.precision, model.exact) == (precision, exact)


def test_models_that_say_nothing() -> None:
    nameless = named_model("/models/current")
    assert nameless is not None
    assert nameless.weights_bytes is None
    assert named_model("$MODEL") is None


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("nvidia-2080ti", ("RTX-2080-Ti",)),
        ("NVIDIA-L40S", ("L40S",)),
        ("nvidia-h100-80gb", ("H100-SXM-80GB",)),
        ("true", ()),
        ("gpu", ()),
        ("worker-1", ()),
    ],
)
def test_accelerators_by_label(value: str, names: tuple[str, ...]) -> None:
    assert named_accelerators(value) == names


def test_an_ambiguous_label_stands_for_all_forms() -> None:
    found = named_accelerators("a100")
    assert {"A100-SXM-40GB", "A100-SXM-80GB"} <= set(found)
    assert named_accelerators("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "nvidia.com/gpu.product") == ("A100-SXM-80GB",)


def hardware(*objects: Object) -> Hardware:
    context = Context(parse(yaml.safe_dump_all(objects), "a.yaml").documents)
    return context.hardware(next(pod for pod in context.pods if pod.document.name == "chat"))


def test_pods_land_on_the_only_pool_that_they_tolerate() -> None:
    free = server(pod={"nodeSelector": "(removed)"})
    found = hardware(free, node_pool(FAMILY))
    assert {seen.name for seen in found.devices} == {"A10G", "L4"}
    assert found.why == "NodePool gpu"
    assert (
        hardware(server(pod={"nodeSelector": "(removed)", "tolerations": "(removed)"}), node_pool(FAMILY)).devices == ()
    )
    other = {**node_pool(FAMILY), "metadata": {"name": "other"}}
    assert hardware(free, node_pool(FAMILY), other).devices == ()


def test_labels_come_before_pools() -> None:
    assert [seen.name for seen in hardware(server(pod=on("Tesla-T4")), node_pool(FAMILY)).devices] == ["T4"]


def test_labels_of_somebodys_own_pin_without_saying_what() -> None:
    pinned = hardware(server(pod={"nodeSelector": {"nvidia.com/gpu.product": "(removed)", "hardware": "gpu"}}))
    assert (pinned.devices, pinned.pinned) == ((), True)
    assert hardware(server(pod={"nodeSelector": "(removed)"})) == Hardware()
