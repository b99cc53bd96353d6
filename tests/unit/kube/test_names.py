"""Names: legal for every kind, stable, and different for different texts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightslice.kube.names import (
    alphanumeric_name,
    label_value,
    namespace_name,
    safe_name,
    service_name,
    unique_names,
)

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")


@given(st.text(), st.integers(min_value=12, max_value=63))
def test_safe_names_are_dns_labels_and_fixed_points(text: str, limit: int) -> None:
    name = safe_name(text, limit)
    assert DNS_1035.fullmatch(name)
    assert len(name) <= limit
    assert safe_name(name, limit) == name


@given(st.lists(st.text(max_size=80), unique=True, max_size=8))
def test_different_texts_get_different_names(texts: list[str]) -> None:
    assert len({safe_name(text) for text in texts}) == len(texts)
    assert len(set(unique_names(texts, 40).values())) == len(texts)
    assert len({alphanumeric_name(text, 12) for text in texts}) == len(texts)


@given(st.text())
def test_label_values_and_node_pool_names_are_legal(text: str) -> None:
    assert LABEL.fullmatch(label_value(text))
    assert re.fullmatch(r"[a-z][a-z0-9]{0,11}", alphanumeric_name(text, 12))
    assert DNS_1035.fullmatch(service_name(text))
    assert DNS_1035.fullmatch(namespace_name(text))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("llm", "llm"),
        ("Llama_3.1", "llama-3-1-6a688d"),
        ("7b-chat", "n-7b-chat-e14c5e"),
        ("x" * 80, "x" * 56 + "-d929cd"),
        ("---", "n-cb3f91"),
    ],
)
def test_safe_name_examples(text: str, name: str) -> None:
    assert safe_name(text) == name


def test_services_never_shadow_an_engine_setting() -> None:
    assert service_name("vllm") == "vllm-model"
    assert service_name("nim-server") == "nim-server-model"
    assert service_name("llm") == "llm"


def test_namespaces_never_belong_to_the_system() -> None:
    assert namespace_name("kube-system") == "inference-kube-system"
    assert namespace_name("default") == "inference-default"
    assert namespace_name("voice") == "voice"


def test_short_names_stay_readable() -> None:
    assert unique_names(["p5.48xlarge", "a2-ultragpu-1g"]) == {
        "p5.48xlarge": "p5-48xlarge",
        "a2-ultragpu-1g": "a2-ultragpu-1g",
    }
    clash = unique_names(["p5.48xlarge", "p5_48xlarge"])
    assert len(set(clash.values())) == 2
    assert alphanumeric_name("gpupool", 12) == "gpupool"
