from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from plans_scaled import scaled
from rightslice.core import plan as p
from rightslice.core.documents import to_json
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError
from rightslice.core.estimate import Estimate
from rightslice.core.slo import Slo
from rightslice.spec.plan_document import load_plan, parse_plan, plan_schema

ESTIMATE = Estimate(612.0, 550.123457, 700.0, "measured")
ENGINE = p.Engine("vllm", "0.11.0", "vllm/vllm-openai:v0.11.0", {"--max-model-len": "8192", "--enable": ""}, 8000,
                  "/health", "/metrics", EngineSettings(max_model_len=8192))  # fmt: skip
MEMORY = p.Memory(85_093_646_336, 16_060_522_496, 2**30, 2**29, 60 * 2**30, 491_520, 60)
DEPLOYMENT = p.Deployment("llm-a100", "unified", "pool-1", "A100-SXM-80GB", "whole", 1, p.Replicas(1, 2, 3), ENGINE,
                          MEMORY, ESTIMATE, "measured")  # fmt: skip
SLO = p.SloResult("chat", Slo("ttft", 0.8, 0.95), 612.0, 0.987, met=True)
PLAN = p.Plan(
    name="voice-assistant",
    feasible=True,
    reproducible=True,
    seed=7,
    environment="production",
    objective="cost",
    monthly_usd=p.MonthlyCost(7401.0, 6930.5, 7880.0, "2026-08-03", "exact", 7401.0),
    usd_per_million_input_tokens=0.1,
    usd_per_million_output_tokens=None,
    slo_probability=0.97,
    binding_slo="chat ttft_p95",
    pools=(
        p.Pool("pool-1", "gcp", "us-central1", "gke", "a2-ultragpu-1g", "A100-SXM-80GB", 1, 2, 3,
               p.Purchase("on_demand", "list"), 5.07, "2026-08-03", "exact", "mig",
               (p.LayoutUse("whole", 1, {}), p.LayoutUse("3g.40gb*2", 1, {"3g.40gb": 2}))),
    ),
    models=(
        p.PlannedModel("llm", "meta-llama/Llama-3.1-8B-Instruct", "generate", 2, 12.0,
                       p.Expected(ESTIMATE, ESTIMATE, None, None), (SLO,), True, None, (DEPLOYMENT,)),
    ),
    pipelines=(p.PlannedPipeline("voice", "heavy", 50, ("asr", "llm"), 8.5, ESTIMATE, (SLO,)),),
    placements=(p.Placement("pool-1", 0, 0, 2**36, (p.Slot("whole", 0, "llm", "llm-a100", 0, 2**36, 2**35),)),),
    autoscaling=scaled().autoscaling,
    verification=p.Verification(7, 50, 49, 3600.0, 100_000, 99_990, 10, 0.987, 2),
    bound=p.Bound(7300.0, 0.0138),
    baseline=p.Baseline(11_000.0, "one GPU for each replica"),
    rejected=(p.Rejection("1 × H100", "llm", "RS4003", "dearer", "", 3812.0),),
    alternatives=(p.Alternative("L4", "L4", 6990.0, -411.0, "“slower”", verified=False),),
    requests_to_make=(p.Request("quota", "gcp us-central1 A100-SXM-80GB", "2 GPUs", "none listed"),),
    warnings=(p.PlanWarning("RS5007", "llm", "single replica"),),
    assumptions=("prices of 2026-08-03",),
    binding=p.Binding("ttft_p95 ≤ 200 ms", ("ttft_p95: 480ms",)),
)  # fmt: skip
TEXT = to_json(PLAN)
INFEASIBLE = dataclasses.replace(
    PLAN, feasible=False, monthly_usd=None, bound=None, verification=None, pools=(), models=()
)


@pytest.mark.parametrize("plan", [PLAN, INFEASIBLE], ids=["feasible", "infeasible"])
def test_a_plan_comes_back_byte_for_byte(tmp_path: Path, plan: p.Plan) -> None:
    path = tmp_path / "plan.json"
    path.write_text(to_json(plan), encoding="utf-8")
    loaded = load_plan(path)
    assert loaded == plan
    assert to_json(loaded) == path.read_text(encoding="utf-8")


def test_the_schema_describes_the_document() -> None:
    schema: Any = plan_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(TEXT), schema)
    wrong = json.loads(TEXT) | {"feasible": "perhaps"}
    assert not jsonschema.Draft202012Validator(schema).is_valid(wrong)


def _edit(change: Callable[[Any], object]) -> str:
    document = json.loads(TEXT)
    change(document)
    return json.dumps(document, indent=2)


MISTAKES = {
    "value": (TEXT.replace('"nodes": 2', '"nodes": "two"'), "RS0105", '"two"', "expected a whole number"),
    "choice": (TEXT.replace('"sharing": "mig"', '"sharing": "migg"'), "RS0109", '"migg"', "did you mean mig"),
    "key": (TEXT.replace('"nodes_max"', '"nodes_maxx"'), "RS0202", "{", '"nodes_max" is missing'),
    "new key": (_edit(lambda d: d["pools"][0].update(zone="a")), "RS0201", '"zone"', "newer version"),
    "order": (TEXT.replace("550.123457", "900.0", 1), "RS0106", "{", "estimate out of order"),
    "version": (TEXT.replace("plan/v1", "plan/v2"), "RS0203", '"rightslice.plan/v2"', 'reads "rightslice.plan/v1"'),
}  # fmt: skip


@pytest.mark.parametrize(("text", "rule", "token", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_have_a_place(text: str, rule: str, token: str, words: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_plan(text, file="plan.json")
    found = caught.value.diagnostics[0]
    assert found.location is not None
    assert found.rule == rule
    assert found.excerpt[found.location.column - 1 :].startswith(token)
    assert words in f"{found.message} {found.hint}"


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        ("", "RS0405", "empty"),
        ("{", "RS0408", "not JSON"),
        ('{"a": NaN}', "RS0408", "NaN is no JSON number"),
        ("[" * 100_000, "RS0408", "nested too deep"),
        ('{"a": ' + "9" * 10_000 + "}", "RS0408", "not JSON"),
        ("[]", "RS0203", "not a plan"),
        ("{}", "RS0203", "not a plan"),
        ('{"schema": "\\ud800"}', "RS0203", "reads"),
        ('{"schema": {"a": [1]}}', "RS0203", "reads"),
    ],
)
def test_what_is_no_plan_is_said_once(text: str, rule: str, words: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_plan(text, file="plan.json")
    (found,) = caught.value.diagnostics
    assert found.rule == rule
    assert words in found.message
    assert caught.value.next_command.startswith("rightslice plan")


def test_a_plan_file_is_guarded(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="folder"):
        load_plan(tmp_path)
    with pytest.raises(BadInputError, match="no such file"):
        load_plan(tmp_path / "plan.json")
