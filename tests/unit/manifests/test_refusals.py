"""Plans that no cluster could run are refused with every reason, before a file is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plans import large_llm, two_nodes, voice, voice_shared
from rightslice.core.errors import BadInputError, InfeasibleError
from rightslice.core.plan import LayoutUse, Plan, Replicas
from rightslice.manifests.render import render


def with_deployment(plan: Plan, index: int = 0, **changes: Any) -> Plan:
    models = list(plan.models)
    deployment = replace(models[index].deployments[0], **changes)
    models[index] = replace(models[index], deployments=(deployment,))
    return replace(plan, models=tuple(models))


def with_engine(plan: Plan, index: int = 0, **changes: Any) -> Plan:
    return with_deployment(plan, index, engine=replace(plan.models[index].deployments[0].engine, **changes))


def with_pool(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, pools=(replace(plan.pools[0], **changes), *plan.pools[1:]))


def overfull(plan: Plan) -> Plan:
    first = plan.placements[0]
    slot = replace(first.slots[0], used_bytes=first.slots[0].memory_bytes + 1)
    return replace(plan, placements=(replace(first, slots=(slot,)), *plan.placements[1:]))


def one_node(plan: Plan) -> Plan:
    """Both GPUs in one machine of a platform that cuts all GPUs of a node alike."""
    placements = tuple(replace(p, node=0, gpu=p.node) for p in plan.placements)
    return replace(with_pool(plan, platform="gke", nodes=1, gpus_per_node=2), placements=placements)


def places(replicas: int) -> Plan:
    """The shared pool with so many replicas on its GPU."""
    made = voice_shared()
    joint = replace(made.pools[1], layouts=(LayoutUse("time-slicing", 1, {"time-slicing": replicas}),))
    return replace(made, pools=(made.pools[0], joint))


def on_platform(plan: Plan, platform: str) -> Plan:
    return replace(plan, pools=tuple(replace(pool, platform=platform) for pool in plan.pools))


def crowded(plan: Plan) -> Plan:
    """Each tenant fits the GPU, both do not."""
    first = plan.placements[1]
    slots = tuple(replace(slot, used_bytes=first.memory_bytes * 6 // 10) for slot in first.slots)
    return replace(plan, placements=(plan.placements[0], replace(first, slots=slots)))


def twice(plan: Plan) -> Plan:
    return replace(plan, models=plan.models * 2)


REFUSED: list[tuple[str, str, Callable[[], Plan]]] = [
    ("RS0316", "unknown platform", lambda: with_pool(voice(), platform="gek")),
    ("RS0204", "has no pool", lambda: with_deployment(voice(), pool="elsewhere")),
    ("RS4015", "some GPUs are shared and others are not", lambda: with_pool(voice(), sharing="time-slicing")),
    ("RS4015", "49 replicas of one GPU; the device plugin takes 2 to 48", lambda: places(49)),
    ("RS4015", "1 replicas of one GPU", lambda: places(1)),
    ("RS4015", "whose GPUs are not shared so", lambda: with_deployment(voice_shared(), 1, partition="mps")),
    ("RS4015", "whose GPUs are not shared so", lambda: with_deployment(voice(), partition="time-slicing")),
    ("RS4015", "need 1 of whole, its GPUs make 0", lambda: with_deployment(voice_shared(), 1, partition="whole")),
    ("RS4007", "does not share GPUs by time-slicing", lambda: on_platform(voice_shared(), "gke")),
    ("RS4007", "does not share GPUs by mps", lambda: on_platform(voice_shared("mps"), "openshift")),
    ("RS2006", "cannot have 2 places", lambda: with_deployment(voice_shared(), 1, gpus_per_replica=2)),
    ("RS2001", "bytes are needed of", lambda: crowded(voice_shared())),
    ("RS4007", "vm-fraction", lambda: with_deployment(voice(), partition="vm-fraction")),
    ("RS2006", "cannot span 2 MIG slices", lambda: with_deployment(voice(), 1, gpus_per_replica=2)),
    ("RS4015", "cannot cut A100-SXM-80GB into 3g.20gb", lambda: with_deployment(voice(), 1, partition="3g.20gb")),
    ("RS4015", "cannot cut", lambda: with_pool(voice(), platform="eks-auto")),
    ("RS4015", "into one profile, not GPU 0: whole, GPU 1: 2 × 3g.40gb", lambda: one_node(voice())),
    ("RS4015", "need 2 of whole, its GPUs make 1", lambda: with_deployment(voice(), replicas=Replicas(2, 2, 2))),
    ("RS2001", "bytes of", lambda: overfull(voice())),
    ("RS4010", "does not support MIG", lambda: with_engine(voice(), 1, name="nim", version="1.12.0")),
    ("RS2006", "do not divide", lambda: with_deployment(two_nodes(), gpus_per_replica=12)),
    ("RS0106", "not pinned", lambda: with_engine(voice(), image="vllm/vllm-openai")),
    ("RS0106", "not pinned", lambda: with_engine(voice(), image="registry:5000/vllm/vllm-openai:latest")),
    ("RS0106", "port 70000", lambda: with_engine(voice(), port=70000)),
    ("RS0303", "read as a flag", lambda: replace(voice(), models=(replace(voice().models[0], source="--help"),))),
    ("RS0301", 'Deployment "chat"', lambda: twice(with_deployment(large_llm(), replicas=Replicas(1, 1, 1)))),
]


@pytest.mark.parametrize(("code", "words", "made"), REFUSED)
def test_refusals(code: str, words: str, made: Callable[[], Plan]) -> None:
    with pytest.raises(BadInputError) as caught:
        render(made())
    found = [d for d in caught.value.diagnostics if d.rule == code]
    assert any(words in diagnostic.message for diagnostic in found), caught.value.diagnostics


def test_all_reasons_come_at_once() -> None:
    with pytest.raises(BadInputError) as caught:
        render(with_engine(with_deployment(voice(), 1, gpus_per_replica=2), image="vllm/vllm-openai:latest"))
    assert {diagnostic.rule for diagnostic in caught.value.diagnostics} == {"RS2006", "RS0106", "RS4015"}


def test_nothing_to_deploy() -> None:
    with pytest.raises(InfeasibleError, match="deploys nothing"):
        render(replace(voice(), feasible=False))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"version": "0.12.0"}, "needs 0.28.0 or later"), ({"name": "tensorrt-llm"}, "is not known")],
)
def test_groups_that_cannot_be_written_down_are_named(changes: dict[str, Any], words: str) -> None:
    files = render(with_engine(two_nodes(), **changes))
    assert "LeaderWorkerSet" not in files["all.yaml"]
    assert words in files["README.md"].partition("## Not emitted yet")[2]


def test_nim_on_a_slice_from_the_version_that_supports_it() -> None:
    files = render(with_engine(voice(), 1, name="nim", version="1.13.0"))
    assert "nvidia.com/mig-3g.40gb: 1" in files["base/asr/deployment.yaml"]
