"""Hand-made plans: the shapes are what the planner returns, the figures are placeholders of a believable size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import WHOLE
from rightslice.core.engine import EngineSettings
from rightslice.core.estimate import Estimate
from rightslice.core.plan import (
    Capacity,
    Deployment,
    Engine,
    Expected,
    LayoutUse,
    Memory,
    MonthlyCost,
    Placement,
    Plan,
    PlannedModel,
    PlannedPipeline,
    PlanWarning,
    Pool,
    Purchase,
    Replicas,
    Request,
    SloResult,
    Slot,
)
from rightslice.core.slo import Slo

GIB = 2**30
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"


def vllm(source: str, settings: EngineSettings | None = None) -> Engine:
    """vLLM as the catalogue describes it."""
    used = settings or EngineSettings(version="0.33.0", max_model_len=8192)
    facts = engine("vllm")
    return Engine(
        name="vllm",
        version=used.version,
        image=facts.image(used.version),
        args=facts.arguments(used, source),
        port=facts.port,
        health_path=facts.health_path,
        metrics_path=facts.metrics_path,
        settings=used,
    )


def own_image(image: str = "", port: int = 8000, health_path: str = "/health") -> Engine:
    """A model that we cannot read: an image of its own, or none known."""
    return Engine("custom", "", image, {}, port, health_path, "/metrics" if not image else "")


def memory(accelerator: str, partition: str, weights_gib: float, cache_gib: float) -> Memory:
    """Bytes on one device of the replica."""
    seen = device(accelerator, partition)
    return Memory(seen.memory_bytes, int(weights_gib * GIB), GIB, GIB, int(cache_gib * GIB), 100_000, 64)


def pool(
    machine_type: str,
    accelerator: str,
    *,
    provider: str,
    region: str,
    platform: str,
    gpus_per_node: int,
    nodes: int = 1,
    layouts: tuple[LayoutUse, ...] = (),
    capacity: Capacity = "on_demand",
) -> Pool:
    """Equal nodes."""
    whole = (LayoutUse(WHOLE, gpus_per_node * nodes, {}),)
    return Pool(
        name=f"{provider}/{region}/{machine_type}/{capacity}",
        provider=provider,
        region=region,
        platform=platform,
        machine_type=machine_type,
        accelerator=accelerator,
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        nodes_max=nodes,
        purchase=Purchase(capacity, "spot" if capacity == "spot" else "list"),
        hourly_usd=5.07,
        price_date="2026-08-03",
        price_quality="exact",
        sharing="mig" if any(use.profiles for use in layouts) else "none",
        layouts=layouts or whole,
    )


def model(
    name: str,
    on: Pool,
    served_by: Engine,
    held: Memory,
    *,
    source: str = "",
    task: str = "generate",
    partition: str = WHOLE,
    gpus: int = 1,
    replicas: int = 1,
    rate: Estimate | None = None,
) -> PlannedModel:
    """One model with one deployment."""
    deployment = Deployment(
        id=name,
        role="unified",
        pool=on.name,
        accelerator=on.accelerator,
        partition=partition,
        gpus_per_replica=gpus,
        replicas=Replicas(replicas, replicas, replicas),
        engine=served_by,
        memory=held,
        max_rate=rate,
        provenance=rate.provenance if rate else "",
    )
    expected = Expected(None, None, Estimate(6200.0, 5100.0, 7900.0, "interpolated") if rate else None, rate)
    return PlannedModel(name, source, task, replicas, 1.0, expected, (), True, 0.97, (deployment,))


def placed(on: Pool, node: int, gpu: int, *tenants: tuple[PlannedModel, int, int]) -> Placement:
    """One GPU and its tenants: (model, replica, start)."""
    slots = []
    for tenant, replica, start in tenants:
        deployment = tenant.deployments[0]
        held = deployment.memory
        assert held is not None
        slots.append(
            Slot(deployment.partition, start, tenant.name, deployment.id, replica, held.device_bytes, held.used_bytes)
        )
    return Placement(on.name, node, gpu, device(on.accelerator).memory_bytes, tuple(slots))


def plan(
    name: str, pools: tuple[Pool, ...], models: tuple[PlannedModel, ...], placements: tuple[Placement, ...]
) -> Plan:
    """The document around them."""
    monthly = sum(p.hourly_usd * p.nodes for p in pools) * 730
    return Plan(
        name=name,
        feasible=True,
        reproducible=True,
        seed=0,
        environment="production",
        objective="cost",
        monthly_usd=MonthlyCost(monthly, monthly * 0.95, monthly * 1.05, "2026-08-03", "exact", monthly),
        usd_per_million_input_tokens=None,
        usd_per_million_output_tokens=None,
        slo_probability=0.97,
        binding_slo=None,
        pools=pools,
        models=models,
        pipelines=(),
        placements=placements,
        autoscaling=(),
        verification=None,
        bound=None,
        baseline=None,
        rejected=(),
        alternatives=(),
        requests_to_make=(),
        warnings=(),
    )


def voice() -> Plan:
    """Speech pipeline: the LLM on a whole A100, ASR and TTS on two slices of another; GKE with the GPU Operator."""
    cut = LayoutUse("3g.40gb*2", 1, {"3g.40gb": 2})
    on = pool(
        "a2-ultragpu-1g",
        "A100-SXM-80GB",
        provider="gcp",
        region="us-central1",
        platform="gke+operator",
        gpus_per_node=1,
        nodes=2,
        layouts=(cut, LayoutUse(WHOLE, 1, {})),
    )
    asr_nim = own_image("nvcr.io/nim/nvidia/parakeet-1-1b-ctc-en-us:1.5.0", 9000, "/v1/health/ready")
    tts_nim = own_image("nvcr.io/nim/nvidia/magpie-tts-multilingual:1.6.0", 9000, "/v1/health/ready")
    slice_rate = Estimate(9.4, 7.2, 12.1, "measured")
    llm = model(
        "llm", on, vllm(LLAMA_8B), memory("A100-SXM-80GB", WHOLE, 15.0, 52.0),
        source=LLAMA_8B, rate=Estimate(2.6, 1.9, 3.6, "interpolated"),
    )  # fmt: skip
    asr = model(
        "asr", on, asr_nim, memory("A100-SXM-80GB", "3g.40gb", 9.6, 0.0),
        task="transcribe", partition="3g.40gb", rate=slice_rate,
    )  # fmt: skip
    tts = model(
        "tts", on, tts_nim, memory("A100-SXM-80GB", "3g.40gb", 13.4, 0.0),
        task="synthesize", partition="3g.40gb", rate=slice_rate,
    )  # fmt: skip
    placements = (placed(on, 0, 0, (llm, 0, 0)), placed(on, 1, 0, (asr, 0, 0), (tts, 0, 4)))
    made = plan("voice-assistant", (on,), (llm, asr, tts), placements)
    pipeline = PlannedPipeline("voice", "heavy", 50, ("asr", "llm", "tts"), 2.0, None, ())
    quota = Request("quota", "gcp us-central1 A100-SXM-80GB", "2 GPUs", "no quota is listed for it")
    alone = PlanWarning("RS5007", "llm", "a single replica: a node loss interrupts service")
    return replace(made, pipelines=(pipeline,), requests_to_make=(quota,), warnings=(alone,))


def large_llm() -> Plan:
    """A 70 B model, tensor parallel 4, two replicas on the eight GPUs of one machine; EKS, reserved."""
    on = pool(
        "p5.48xlarge",
        "H100-SXM-80GB",
        provider="aws",
        region="us-east-1",
        platform="eks",
        gpus_per_node=8,
        capacity="reservation",
    )
    settings = EngineSettings(version="0.33.0", tensor_parallel_size=4, max_model_len=32768, max_num_seqs=256)
    chat = model(
        "chat", on, vllm(LLAMA_70B, settings), memory("H100-SXM-80GB", WHOLE, 32.9, 32.0),
        source=LLAMA_70B, gpus=4, replicas=2, rate=Estimate(7.4, 5.0, 10.9, "interpolated"),
    )  # fmt: skip
    placements = tuple(placed(on, 0, gpu, (chat, gpu // 4, 0)) for gpu in range(8))
    made = plan("chat-large", (on,), (chat,), placements)
    asked = Request("reservation", "aws us-east-1 p5.48xlarge", "1 machine", "the plan buys it as a reservation")
    return replace(made, requests_to_make=(asked,))


def custom_memory() -> Plan:
    """A model that nobody can read, split over eight GPUs; AKS, image not known."""
    on = pool(
        "Standard_ND96isr_H100_v5",
        "H100-SXM-80GB",
        provider="azure",
        region="eastus",
        platform="aks",
        gpus_per_node=8,
    )
    big = model("big", on, own_image(), memory("H100-SXM-80GB", WHOLE, 30.0, 6.0), task="custom", gpus=8)
    return plan("research", (on,), (big,), tuple(placed(on, 0, gpu, (big, 0, 0)) for gpu in range(8)))


def two_nodes() -> Plan:
    """One replica over two machines: tensor parallel 8, pipeline parallel 2; on-premises."""
    on = pool(
        "dgx-h100",
        "H100-SXM-80GB",
        provider="on-prem",
        region="dc1",
        platform="on-prem",
        gpus_per_node=8,
        nodes=2,
        capacity="owned",
    )
    settings = EngineSettings(
        version="0.33.0", tensor_parallel_size=8, pipeline_parallel_size=2, weight_dtype="fp8", max_model_len=16384
    )
    source = "deepseek-ai/DeepSeek-V3"
    giant = model(
        "giant", on, vllm(source, settings), memory("H100-SXM-80GB", WHOLE, 42.0, 20.0), source=source, gpus=16
    )
    placements = tuple(placed(on, node, gpu, (giant, 0, 0)) for node in range(2) for gpu in range(8))
    return plan("giant", (on,), (giant,), placements)


def two_nodes_of_ranks() -> Plan:
    """The same machines and model as `two_nodes`: sixteen attention replicas with the experts spread over them."""
    planned = two_nodes()
    settings = EngineSettings(
        version="0.33.0", data_parallel_size=16, expert_parallel=True, weight_dtype="fp8", max_model_len=16384
    )
    source = "deepseek-ai/DeepSeek-V3"
    on = planned.pools[0]
    giant = model(
        "giant", on, vllm(source, settings), memory("H100-SXM-80GB", WHOLE, 56.0, 12.0), source=source, gpus=16
    )
    return plan(
        "ranks", (on,), (giant,), tuple(placed(on, node, gpu, (giant, 0, 0)) for node in range(2) for gpu in range(8))
    )


def uniform_slices() -> Plan:
    """Seven embedding servers on slices of one GPU that is cut at the creation of its pool; GKE, spot."""
    on = pool(
        "a2-ultragpu-1g",
        "A100-SXM-80GB",
        provider="gcp",
        region="us-central1",
        platform="gke",
        gpus_per_node=1,
        layouts=(LayoutUse("1g.10gb*7", 1, {"1g.10gb": 7}),),
        capacity="spot",
    )
    source = "BAAI/bge-m3"
    embed = model(
        "embed", on, vllm(source), memory("A100-SXM-80GB", "1g.10gb", 2.0, 4.0),
        source=source, task="embed", partition="1g.10gb", replicas=6, rate=Estimate(80.0, 60.0, 110.0, "unvalidated"),
    )  # fmt: skip
    tenants = tuple((embed, replica, replica) for replica in range(6))
    return plan("search", (on,), (embed,), (placed(on, 0, 0, *tenants),))


def voice_uniform() -> Plan:
    """The speech pipeline on GKE's own GPU stack: one node pool for whole GPUs, one for slices."""
    made = voice()
    return replace(made, pools=(replace(made.pools[0], platform="gke"),))


def voice_shared(mode: str = "time-slicing") -> Plan:
    """The speech pipeline with ASR and TTS together on one GPU, in a pool of their own."""
    made = voice()
    first = made.pools[0]
    whole = replace(first, name=f"{first.name}-whole", nodes=1, sharing="none", layouts=(LayoutUse(WHOLE, 1, {}),))
    joint = replace(
        whole, name=f"{first.name}-{mode}", sharing=cast("Any", mode), layouts=(LayoutUse(mode, 1, {mode: 2}),)
    )
    models = []
    for planned in made.models:
        deployment = planned.deployments[0]
        on = whole if deployment.partition == WHOLE else joint
        if on is joint:
            held = deployment.memory
            assert held is not None
            held = replace(held, device_bytes=device(first.accelerator).memory_bytes)
            deployment = replace(deployment, partition=mode, memory=held)
        models.append(replace(planned, deployments=(replace(deployment, pool=on.name),)))
    llm, asr, tts = models
    placements = (placed(whole, 0, 0, (llm, 0, 0)), placed(joint, 0, 0, (asr, 0, 0), (tts, 0, 1)))
    return replace(made, pools=(whole, joint), models=tuple(models), placements=placements)


def voice_mps() -> Plan:
    """The same by MPS."""
    return voice_shared("mps")


GOLDEN = {"voice": voice, "large-llm": large_llm, "custom-memory": custom_memory}
EVERY = {
    **GOLDEN,
    "two-nodes": two_nodes,
    "two-nodes-of-ranks": two_nodes_of_ranks,
    "uniform-slices": uniform_slices,
    "voice-uniform": voice_uniform,
    "voice-shared": voice_shared,
    "voice-mps": voice_mps,
}


def with_objectives(plan: Plan) -> Plan:
    """The plan with three objectives for every model, and a budget."""
    slos = (Slo("ttft", 0.8), Slo("tpot", 0.05), Slo("e2e", 12.0))
    asked = tuple(SloResult("class", slo, slo.at_most_s * 500.0, 0.99, True) for slo in slos)
    models = tuple(replace(model, slos=asked) for model in plan.models)
    return replace(plan, models=models, workload={"budget": {"monthly": "$100000"}})
