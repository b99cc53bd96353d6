"""Hand-made plans for the reporting tests: numbers are placeholders, shapes are what the planner returns."""

from __future__ import annotations

from dataclasses import replace

from rightslice.core.engine import EngineSettings
from rightslice.core.estimate import Estimate
from rightslice.core.plan import (
    Alternative,
    Baseline,
    Binding,
    Bound,
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
    Pool,
    Purchase,
    Rejection,
    Replicas,
    Request,
    SloResult,
    Slot,
    Verification,
)
from rightslice.core.plan import (
    Warning as PlanWarning,
)
from rightslice.core.slo import Slo

GIB = 2**30
A100_BYTES = int(79.2 * GIB)
SLICE_BYTES = int(39.4 * GIB)


def _engine(name: str = "vllm", **args: str) -> Engine:
    flags = {"--" + key.replace("_", "-"): value for key, value in args.items()}
    return Engine(name, "0.11.0", f"vllm/{name}-openai:v0.11.0", flags, 8000, "/health", "/metrics", EngineSettings())


def _memory(device: int, weights: float, cache: float, sequences: int) -> Memory:
    return Memory(
        device, int(weights * GIB), int(1.2 * GIB), int(1.9 * GIB), int(cache * GIB), int(cache * 8192), sequences
    )


def _deployment(model: str, partition: str, memory: Memory | None, rate: Estimate, provenance: str) -> Deployment:
    return Deployment(
        f"{model}-0",
        "unified",
        "a2-ultragpu-1g",
        "A100-SXM-80GB",
        partition,
        1,
        Replicas(1, 1, 3),
        _engine(max_model_len="8192"),
        memory,
        rate,
        provenance,
    )


def _rejected() -> tuple[Rejection, ...]:
    return (
        Rejection(
            "time-slicing asr+tts",
            "asr",
            "RS4002",
            "isolation is required in production; keeps the SLO only to 31 users",
            "isolation: preferred",
        ),
        Rejection(
            "1 × a3-highgpu-1g (H100-SXM-80GB)",
            "llm",
            "RS4003",
            "+$3,812 / month; needed only above 84 users",
            "",
            11213.0,
        ),
        Rejection(
            "g2-standard-12 (L4) for asr and tts",
            "tts",
            "RS4001",
            "tts e2e p95 390 ms > 300 ms",
            "e2e_p95: 400ms",
            6991.0,
        ),
    )


def _voice_models() -> tuple[PlannedModel, ...]:
    llm_memory = _memory(A100_BYTES, 14.96, 53.1, 48)
    asr_memory = _memory(SLICE_BYTES, 5.6, 6.0, 16)
    ms = Estimate
    llm = PlannedModel(
        "llm",
        "meta-llama/Llama-3.1-8B-Instruct",
        "generate",
        1,
        1.86,
        Expected(
            ms(612.0, 540.0, 705.0, "calibrated"),
            ms(21.0, 19.2, 23.4, "calibrated"),
            ms(1790.0, 1600.0, 2010.0, "calibrated"),
            ms(2.6, 2.2, 2.9, "calibrated"),
        ),
        (
            SloResult("llm", Slo("ttft", 0.8), 612.0, 0.991, True),
            SloResult("llm", Slo("tpot", 0.05), 21.0, 1.0, True),
        ),
        True,
        0.98,
        (_deployment("llm", "whole", llm_memory, ms(2.6, 2.2, 2.9, "calibrated"), "calibrated on A100"),),
    )
    asr = PlannedModel(
        "asr",
        "profile",
        "transcribe",
        1,
        1.86,
        Expected(None, None, ms(141.0, 120.0, 166.0, "measured"), ms(9.4, 8.4, 10.1, "measured")),
        (SloResult("asr", Slo("e2e", 0.25), 141.0, 0.997, True),),
        True,
        0.99,
        (_deployment("asr", "3g.40gb", asr_memory, ms(9.4, 8.4, 10.1, "measured"), "profile you gave"),),
    )
    tts = PlannedModel(
        "tts",
        "profile",
        "synthesize",
        1,
        1.86,
        Expected(None, None, ms(187.0, 158.0, 221.0, "interpolated"), ms(5.1, 4.4, 5.9, "interpolated")),
        (SloResult("tts", Slo("e2e", 0.3), 187.0, 0.988, True),),
        True,
        0.97,
        (
            _deployment(
                "tts",
                "3g.40gb",
                _memory(SLICE_BYTES, 13.4, 5.0, 12),
                ms(5.1, 4.4, 5.9, "interpolated"),
                "profile you gave",
            ),
        ),
    )
    return (llm, asr, tts)


def voice() -> Plan:
    """Two A100: one whole for the LLM, one cut in two MIG slices for the speech stages."""
    pool = Pool(
        "a2-ultragpu-1g",
        "gcp",
        "us-central1",
        "gke",
        "a2-ultragpu-1g",
        "A100-SXM-80GB",
        1,
        2,
        4,
        Purchase("on_demand", "list"),
        5.0694,
        "2026-08-03",
        "exact",
        "mig",
        (LayoutUse("whole", 1, {}), LayoutUse("3g.40gb*2", 1, {"3g.40gb": 2})),
    )
    return Plan(
        name="voice-assistant",
        feasible=True,
        reproducible=True,
        seed=0,
        environment="production",
        objective="cost",
        monthly_usd=MonthlyCost(7401.0, 6930.0, 7880.0, "2026-08-03", "exact", 7401.0),
        usd_per_million_input_tokens=0.41,
        usd_per_million_output_tokens=2.15,
        slo_probability=0.97,
        binding_slo="voice e2e_p95",
        pools=(pool,),
        models=_voice_models(),
        pipelines=(
            PlannedPipeline(
                "voice",
                "heavy",
                50,
                ("asr", "llm", "tts"),
                1.86,
                Estimate(2310.0, 2080.0, 2590.0, "interpolated"),
                (SloResult("voice", Slo("e2e", 3.0), 2310.0, 0.987, True),),
            ),
        ),
        placements=(
            Placement(
                "a2-ultragpu-1g",
                0,
                0,
                A100_BYTES,
                (Slot("whole", 0, "llm", "llm-0", 0, A100_BYTES, int(71.2 * GIB)),),
            ),
            Placement(
                "a2-ultragpu-1g",
                1,
                0,
                A100_BYTES,
                (
                    Slot("3g.40gb", 0, "asr", "asr-0", 0, SLICE_BYTES, int(14.7 * GIB)),
                    Slot("3g.40gb", 4, "tts", "tts-0", 0, SLICE_BYTES, int(21.5 * GIB)),
                ),
            ),
        ),
        autoscaling=(),
        verification=Verification(0, 60, 58, 435.0, 693, 688, 0, 0.987, 2),
        bound=Bound(7401.0, 0.0),
        baseline=Baseline(11102.0, "one whole GPU per model"),
        rejected=_rejected(),
        alternatives=(
            Alternative("2 × a2-highgpu-1g", "A100-SXM-40GB", 7890.0, 489.0, "llm context limited to 4,096", True),
            Alternative("2 × a3-highgpu-1g", "H100-SXM-80GB", 11213.0, 3812.0, "needed only above 84 users", False),
            Alternative("1 × g4-standard-96", "RTX-PRO-6000-96GB", 6710.0, -691.0, "prediction not validated", False),
        ),
        requests_to_make=(Request("quota", "gcp us-central1 A100-SXM-80GB", "4 GPUs", "2 now, 4 when scaled out"),),
        warnings=(
            PlanWarning(
                "RS5007",
                "llm",
                "single replica (you set `min_replicas: 1`): a node loss costs about 4 min 40 s of service; "
                "2 adds $3,700 / month",
            ),
            PlanWarning("RS5010", "asr, tts", "both slices live on one GPU: one failure domain"),
        ),
        assumptions=(
            "Output length spread of llm: lognormal with p95 = 2.6 × mean, because only the mean was given.",
            "The licence price is not needed: no NIM engine in this plan.",
        ),
    )


def tp4() -> Plan:
    """Three nodes of eight H100, six replicas at tensor parallel 4; every GPU looks the same."""
    base = voice()
    memory = _memory(int(79.1 * GIB), 33.0, 36.0, 96)
    deployment = Deployment(
        "chat-0",
        "unified",
        "a3-highgpu-8g",
        "H100-SXM-80GB",
        "whole",
        4,
        Replicas(6, 6, 8),
        _engine(tensor_parallel_size="4"),
        memory,
        Estimate(7.2, 5.4, 9.1, "first-principles"),
        "first principles",
    )
    model = PlannedModel(
        "chat",
        "meta-llama/Llama-3.3-70B-Instruct",
        "generate",
        6,
        36.0,
        Expected(
            Estimate(705.0, 530.0, 990.0, "first-principles"),
            Estimate(41.0, 31.0, 57.0, "first-principles"),
            Estimate(11_900.0, 9000.0, 16_000.0, "first-principles"),
            Estimate(7.2, 5.4, 9.1, "first-principles"),
        ),
        (
            SloResult("chat/chat", Slo("ttft", 0.8), 705.0, 0.962, True),
            SloResult("chat/chat", Slo("tpot", 0.05), 41.0, 0.981, True),
            SloResult("chat/batch", Slo("e2e", 30.0, 0.9), 21_900.0, 0.955, True),
        ),
        True,
        0.95,
        (deployment,),
    )
    pool = Pool(
        "a3-highgpu-8g",
        "gcp",
        "us-central1",
        "gke",
        "a3-highgpu-8g",
        "H100-SXM-80GB",
        8,
        3,
        4,
        Purchase("reservation", "commitment_1y"),
        61.0,
        "2026-08",
        "estimated",
        "none",
        (LayoutUse("whole", 24, {}),),
        fabric="GPUDirect-TCPX",
    )
    placements = tuple(
        Placement(
            "a3-highgpu-8g",
            node,
            gpu,
            int(79.1 * GIB),
            (Slot("whole", 0, "chat", "chat-0", node * 2 + gpu // 4, int(79.1 * GIB), int(71.2 * GIB)),),
        )
        for node in range(3)
        for gpu in range(8)
    )
    return replace(
        base,
        name="chat-large",
        monthly_usd=MonthlyCost(133_590.0, 113_500.0, 153_600.0, "2026-08", "estimated", 131_400.0, 2190.0),
        slo_probability=0.95,
        binding_slo="chat/chat ttft_p95",
        pools=(pool,),
        models=(model,),
        pipelines=(),
        placements=placements,
        verification=Verification(7, 60, 57, 3600.0, 129_611, 129_480, 0, 0.958, 1),
        bound=Bound(129_800.0, 0.0292),
        baseline=None,
        rejected=(),
        alternatives=(
            Alternative(
                "2 × a3-ultragpu-8g",
                "H200-SXM-141GB",
                128_000.0,
                -5590.0,
                "no capacity on demand in us-central1",
                False,
            ),
        ),
        requests_to_make=(
            Request("reservation", "a3-highgpu-8g in us-central1", "3 nodes", "not sold on demand in this region"),
        ),
        warnings=(
            PlanWarning("RS5003", "chat", "80 % interval of TTFT is 530–990 ms: run a load test before you buy"),
        ),
        assumptions=(),
    )


def time_sliced() -> Plan:
    """Two tenants share one whole GPU's memory; a second node pool of another machine stays mostly empty."""
    base = voice()
    used = (int(14.7 * GIB), int(21.5 * GIB))
    shared = Placement(
        "a2-ultragpu-1g",
        1,
        0,
        A100_BYTES,
        (
            Slot("time-slicing", 0, "asr", "asr-0", 0, A100_BYTES, used[0]),
            Slot("time-slicing", 1, "tts", "tts-0", 0, A100_BYTES, used[1]),
        ),
    )
    return replace(
        base, pools=(replace(base.pools[0], sharing="time-slicing"),), placements=(base.placements[0], shared)
    )


def seven_slices() -> Plan:
    """One GPU in seven MIG slices, each with a model of its own; the other GPU stays empty."""
    base = voice()
    names = ("embedder", "reranker", "asr", "tts", "chat-small", "guard", "classifier")
    of_slice = base.models[1]
    models = tuple(
        replace(of_slice, name=name, deployments=(replace(of_slice.deployments[0], id=name, partition="1g.10gb"),))
        for name in names
    )
    slots = tuple(
        Slot("1g.10gb", start, name, name, 0, int(9.5 * GIB), int((3 + start * 0.8) * GIB))
        for start, name in enumerate(names)
    )
    placements = (replace(base.placements[0], slots=slots), replace(base.placements[1], slots=()))
    return replace(base, models=models, pipelines=(), placements=placements)


def infeasible() -> Plan:
    """An honest no: what binds and single changes that would help."""
    base = voice()
    return replace(
        base,
        name="long-context",
        feasible=False,
        monthly_usd=None,
        usd_per_million_input_tokens=None,
        usd_per_million_output_tokens=None,
        slo_probability=None,
        binding_slo=None,
        pools=(),
        models=(),
        pipelines=(),
        placements=(),
        verification=None,
        bound=None,
        baseline=None,
        alternatives=(),
        warnings=(),
        requests_to_make=(),
        binding=Binding(
            "ttft_p95 ≤ 200 ms with 32,000 input tokens: the fastest allowed (H200-SXM-141GB, fp8, TP 8) needs "
            "410 ms (365–470)",
            (
                "ttft_p95: 480ms → $63,300 / month on 1 × a3-ultragpu-8g (reservation; not sold on demand)",
                "input_tokens: p95 12k (now 32k) → $40,200 / month on 1 × p5.48xlarge",
            ),
        ),
    )


def over_budget() -> Plan:
    """A plan that works but costs too much: an honest no that still shows what was found."""
    slow = SloResult("voice", Slo("e2e", 2.0), 2310.0, 0.871, False)
    base = voice()
    return replace(
        base,
        feasible=False,
        slo_probability=0.12,
        binding=Binding("The budget: $5,000 a month, and the cheapest plan costs $7,401", ("budget.monthly: $7401",)),
        pipelines=(replace(base.pipelines[0], slos=(slow,)),),
    )


HOSTILE = "a\x1b[31m[bold]x[/bold]<script>alert(1)</script>\u202e\n\"'&\x9b2J"


def hostile() -> Plan:
    """Every name the user chooses tries to break out of the terminal, of rich markup and of HTML."""
    base = voice()
    models = tuple(replace(model, name=HOSTILE + model.name, source=HOSTILE, task=HOSTILE) for model in base.models)
    placements = tuple(
        replace(p, slots=tuple(replace(slot, model=HOSTILE + slot.model) for slot in p.slots)) for p in base.placements
    )
    return replace(
        base,
        name=HOSTILE,
        binding_slo=HOSTILE,
        models=models,
        placements=placements,
        pools=(replace(base.pools[0], region=HOSTILE, machine_type=HOSTILE),),
        pipelines=(replace(base.pipelines[0], name=HOSTILE, stages=(HOSTILE, HOSTILE)),),
        rejected=(Rejection(HOSTILE, HOSTILE, "RS4001", HOSTILE, HOSTILE, 7000.0),),
        alternatives=(Alternative(HOSTILE, HOSTILE, 8000.0, 599.0, HOSTILE, True),),
        warnings=(PlanWarning("RS5006", HOSTILE, HOSTILE),),
        requests_to_make=(Request("quota", HOSTILE, HOSTILE, HOSTILE),),
        assumptions=(HOSTILE,),
        baseline=Baseline(9000.0, HOSTILE),
    )
