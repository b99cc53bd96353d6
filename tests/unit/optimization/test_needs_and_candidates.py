"""What a model must carry, the ways to run it, and why others are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rightslice.app.knowledge import known_names
from rightslice.app.planning import PLANNED_ENGINES
from rightslice.app.rating import ceiling
from rightslice.app.scenarios import server
from rightslice.catalogue.engines import engine
from rightslice.catalogue.models import resolve_model
from rightslice.core.rates import Rate, RateTable
from rightslice.memory.room import most_decoding
from rightslice.optimization.candidates import candidates
from rightslice.optimization.needs import Need, needs
from rightslice.optimization.options import Candidates, Option
from rightslice.optimization.propose import Market, propose
from rightslice.optimization.sites import sites
from rightslice.procurement.offers import offers, quota_limits
from rightslice.simulation.scenario import LlmServer
from rightslice.spec.loader import parse_workload
from rightslice.spec.workload import Workload
from workloads import CHAT, chat

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
GKE = {"gcp": "gke", "on-prem": "on-prem"}


def need_of(workload: Workload) -> Need:
    return needs(workload, {"llm": resolve_model(LLAMA)}, {})[0]


def found(workload: Workload) -> Candidates:
    offered, _ = offers(workload.fleet, interruptible=workload.models[0].interruptible)
    return candidates([need_of(workload)], sites(offered, GKE), PLANNED_ENGINES)


def test_lengths_and_load_are_those_of_the_classes() -> None:
    need = need_of(chat())
    assert need.planned_rate_per_s == 4.0
    assert need.mean_rate_per_s == 2.0
    assert need.input_tokens == pytest.approx(800, rel=0.02)
    assert need.output_tokens == pytest.approx(150, rel=0.02)
    assert need.max_model_len == 8192
    assert need.limit_s("ttft") == 2.0


@pytest.mark.parametrize(
    ("extra", "environment", "spare", "floor"),
    [
        ("", "production", True, 2),
        ("", "development", False, 1),
        ("min_replicas: 3", "production", False, 3),
        ("interruptible: true", "production", False, 1),
    ],
)
def test_production_has_a_spare_unless_the_file_says_otherwise(
    extra: str, environment: str, spare: bool, floor: int
) -> None:
    need = need_of(chat(extra, environment=environment))
    assert (need.spare, need.min_replicas) == (spare, floor)


def test_context_that_nobody_gave_comes_from_the_traffic_and_is_said() -> None:
    workload = chat()
    model = workload.models[0].model_copy(update={"max_context": None})
    need = need_of(workload.model_copy(update={"models": (model,)}))
    assert need.max_model_len % 1024 == 0
    assert 2000 < need.max_model_len < 32768
    assert any("max_model_len" in text for text in need.assumptions)


def test_options_cover_slices_and_parallelism_and_fit() -> None:
    options = found(chat()).options
    where = {(o.accelerator, o.partition, o.gpus) for o in options}
    assert ("A100-SXM-80GB", "whole", 1) in where
    assert ("A100-SXM-80GB", "3g.40gb", 1) in where
    assert ("A100-SXM-80GB", "1g.10gb", 1) not in where
    assert ("L4", "whole", 2) in where
    assert all(o.memory.used_bytes <= o.memory.device_bytes for o in options)
    assert all(o.gpus == 1 for o in options if o.partition != "whole")


def test_a_pinned_partition_leaves_only_that_one() -> None:
    assert {o.partition for o in found(chat("partition: 3g.40gb")).options} == {"3g.40gb"}
    refused = found(chat("partition: time-slicing"))
    assert not refused.options
    assert {r.code for r in refused.rejections} == {"RS4007"}  # GKE shares GPUs in its own way


def test_lower_precision_is_marked_and_needs_a_checkpoint_below_8_bits() -> None:
    lowered = found(chat("precision: [fp8]")).options
    assert lowered
    assert all(o.precision_lowered for o in lowered)
    refused = found(chat("precision: [int4]"))
    assert not refused.options
    assert all(r.code == "RS2005" and "checkpoint" in r.reason for r in refused.rejections)


@pytest.mark.parametrize(
    ("extra", "kept", "overridden"),
    [("", "fp8", False), ("kv_precision: [bf16]", "bf16", True), ("kv_precision: [fp8]", "fp8", False)],
)
def test_a_cache_that_the_checkpoint_declares_is_planned_as_the_engine_keeps_it(
    extra: str, kept: str, overridden: bool
) -> None:
    workload = chat(extra)
    model = replace(resolve_model(LLAMA), quantisation="modelopt", kv_dtype_published="fp8")
    offered, _ = offers(workload.fleet, interruptible=False)
    options = candidates(needs(workload, {"llm": model}, {}), sites(offered, GKE), ("vllm",)).options
    assert options
    for option in options:
        assert option.settings
        assert (option.settings.kv_dtype, option.cache_overridden) == (kept, overridden)
        args = engine("vllm").arguments(option.settings, "source", override=option.cache_overridden)
        assert args["--kv-cache-dtype"] == {"fp8": "fp8", "bf16": "bfloat16"}[kept]


def test_recurrent_models_are_planned_with_no_more_sequences_than_start() -> None:
    workload = chat()
    model = resolve_model("state-spaces/mamba-2.8b-hf")
    offered, _ = offers(workload.fleet, interruptible=False)
    options = candidates(needs(workload, {"llm": model}, {}), sites(offered, GKE), ("vllm",)).options
    assert options
    for option in options:
        assert option.settings
        most = most_decoding(model, option.device, option.settings)
        assert most is not None
        assert option.settings.max_num_seqs <= most


def test_a_precision_that_needs_its_own_checkpoint_names_one_or_the_command_that_makes_it() -> None:
    (known,) = {r.relaxation for r in found(chat("precision: [int4]")).rejections}
    assert known.startswith("source: RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16 or source: hugging")
    (made,) = {r.relaxation for r in found(chat("precision: [nvfp4]")).rejections}
    assert "--dtype nvfp4 -o DIR" in made
    assert {r.relaxation for r in found(chat("kv_precision: [fp4]")).rejections} == {"another precision"}


def test_only_interruptible_models_run_on_spot() -> None:
    for extra, capacity in (("interruptible: true", "spot"), ("interruptible: false", "on_demand")):
        workload = chat(extra, fleet=", purchase: [on_demand, spot]")
        offered, _ = offers(workload.fleet, interruptible=True)
        assert {offer.capacity for offer in offered} == {"on_demand", "spot"}
        need = need_of(workload)
        options = candidates([need], sites(offered, GKE), PLANNED_ENGINES).options
        rates = RateTable({o.key: Rate(1.0, simulated=False) for o in options})
        market = Market(offered, GKE, quota_limits(workload.fleet))
        proposal = propose([need], options, rates, {"llm": 4.0}, market)
        assert {proposal.offer_of[key].capacity for key, n in proposal.packing.nodes.items() if n} == {capacity}


def test_a_uniform_platform_gets_one_pool_per_profile_and_never_more_machines_than_there_are() -> None:
    fleet = ", owned: [{machine_type: a2-ultragpu-1g, count: 1}], purchase: [owned]"
    workload = chat("min_replicas: 2", fleet=fleet)
    workload = workload.model_copy(update={"fleet": workload.fleet.model_copy(update={"providers": ("on-prem",)})})
    offered, _ = offers(workload.fleet, interruptible=False)
    market = Market(offered, {"on-prem": "gke"}, {})
    need = need_of(workload)
    options = candidates([need], sites(offered, market.platform_of), PLANNED_ENGINES).options
    rates = RateTable({o.key: Rate(1.0, simulated=False) for o in options})
    proposal = propose([need], options, rates, {"llm": 2.0}, market)
    assert all(len(pool.layouts) == 1 for pool in proposal.problem.pools)
    assert sum(proposal.packing.nodes.values()) == 1
    assert sum(proposal.counts.values()) == 2


def r1_on(accelerator: str) -> Candidates:
    text = CHAT.replace(LLAMA, "deepseek-ai/DeepSeek-R1").replace("A100-SXM-80GB, L4", accelerator)
    text = text.replace("FLEET", ", purchase: [on_demand, reservation]").replace("EXTRA", "isolation: none")
    known = known_names()
    workload = parse_workload(text.replace("ENVIRONMENT", "development"), file="r1.yaml", known=known).workload
    offered, _ = offers(workload.fleet, interruptible=False)
    need = needs(workload, {"llm": resolve_model("deepseek-ai/DeepSeek-R1")}, {})[0]
    return candidates([need], sites(offered, GKE), ("vllm",))


def shapes(found: Candidates) -> dict[tuple[int, int, int], Option]:
    sizes = ((o, o.settings) for o in found.options)
    return {
        (s.tensor_parallel_size, s.pipeline_parallel_size, s.data_parallel_size): o for o, s in sizes if s is not None
    }


def test_what_no_machine_holds_is_split_by_stages_or_by_experts_over_two() -> None:
    """DeepSeek-R1 as published on H100: two machines of eight, tensor x pipeline or data parallel with experts."""
    found = shapes(r1_on("H100-SXM-80GB"))
    assert (8, 1, 1) not in found
    stages, ranks = found[8, 2, 1], found[1, 1, 16]
    assert stages.gpus == ranks.gpus == 16
    assert (stages.node_gpus, ranks.node_gpus) == (8, 8)
    assert ranks.settings is not None
    assert ranks.settings.expert_parallel
    assert ranks.engines == 16
    assert ranks.memory.kv_tokens > 2 * stages.memory.kv_tokens
    assert ranks.settings.max_num_batched_tokens == 2048  # as many over all ranks as their experts have room for


def test_one_machine_offers_both_splits_of_a_latent_cache_and_its_ranks_stay_together() -> None:
    found = shapes(r1_on("H200-SXM-141GB"))
    assert set(found) == {(8, 1, 1), (4, 1, 2), (2, 1, 4), (1, 1, 8)}
    assert found[1, 1, 8].node_gpus == 0
    assert ceiling(need_of(chat()), found[1, 1, 8], 1.0, None).requests_per_s > (
        ceiling(need_of(chat()), found[8, 1, 1], 1.0, None).requests_per_s
    )
    built = server(found[1, 1, 8], "r1", 2, 1.0)
    assert isinstance(built, LlmServer)
    assert built.replicas == 16
    assert built.kv_blocks == found[1, 1, 8].memory.kv_tokens // 8 // 16


def test_models_without_a_latent_cache_have_no_attention_replicas() -> None:
    assert all(o.engines == 1 for o in found(chat()).options)
