"""Each mistake in an otherwise right workload: one diagnostic, its rule, and the very token it points at."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.spec.fields import Known
from rightslice.spec.loader import load_workload, parse_workload

DATA = Path(__file__).parents[2] / "data" / "workloads"
RIGHT = (DATA / "voice-assistant.yaml").read_text(encoding="utf-8")
KNOWN = Known(
    accelerators=frozenset({"A100-SXM-80GB", "H100-SXM-80GB", "H100-PCIe-80GB", "L4"}),
    machine_types=frozenset({"a2-ultragpu-1g", "a3-highgpu-8g"}),
    providers=frozenset({"gcp", "aws", "azure", "on-prem"}),
    regions=frozenset({"us-central1", "us-east4"}),
    engines=frozenset({"vllm", "nim"}),
    platforms=frozenset({"gke", "gke+operator", "eks"}),
    partitions=frozenset({"whole", "3g.40gb", "1g.10gb"}),
    models=frozenset({"meta-llama/Llama-3.1-8B-Instruct"}),
    model_exists=lambda source: source == "meta-llama/Llama-3.1-8B-Instruct",
)


def diagnostics(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(BadInputError) as caught:
        parse_workload(text, file="w.yaml", known=KNOWN)
    return caught.value.diagnostics


def token(diagnostic: Diagnostic) -> str:
    assert diagnostic.location is not None
    start = diagnostic.location.column - 1
    return diagnostic.excerpt[start : start + diagnostic.excerpt_width]


# old text, new text, rule, token, words in the message or hint
MISTAKES = [
    ("memory: 9.1GiB", "memory: 80 GBs", "RS0107", "80 GBs", "try 80GB or 80GiB"),
    ("memory: 9.1GiB", "memory: 80", "RS0108", "80", "needs a unit of bytes"),
    ("mean: 12/s", "mean: -12/s", "RS0106", "-12/s", "above zero"),
    ("peak: 30/s", "peak: 30", "RS0108", "30", "try 30/s or 30/min"),
    ("peak: 30/s", "peak: 3/s", "RS0204", "3/s", "below mean"),
    ("p95: 4000", "p95: 400", "RS0204", "400", "below the mean 1500"),
    ("mean: 1500", "mean: 1e300", "RS0106", "1e300", "too large"),
    ("prefix_hit_rate: 0.3", "prefix: {distinct: 3}", "RS0202", "{distinct: 3}", 'prefix needs "tokens"'),
    ("prefix_hit_rate: 0.3", "prefix: {tokens: 0}", "RS0106", "0", "above zero"),
    (
        "prefix_hit_rate: 0.3",
        "prefix_hit_rate: 0.3\n        prefix: {tokens: 900}",
        "RS0204",
        "prefix_hit_rate",
        "follows from the tokens in common",
    ),
    ("rate: {mean: 12/s, peak: 30/s}", "trace: day.csv", "RS0204", "sessions", "contradicts trace"),
    ("isolation: required", "router: prefix_awar", "RS0109", "prefix_awar", "prefix_aware"),
    ("isolation: required", "router: {polcy: kv_aware}", "RS0201", "polcy", "did you mean policy"),
    ("isolation: required", "engine: {prefix_cache: true}", "RS0201", "prefix_cache", "prefix_caching"),
    ("priority: 1", "timeout: 0s", "RS0106", "0s", "above zero"),
    ("priority: 1", "from: {us-central1: 0.6}", "RS0204", "{us-central1: 0.6}", "add up to 0.6"),
    ("priority: 1", "from: {us-centrl1: 1}", "RS0314", "us-centrl1", "us-central1"),
    ("priority: 1", "priority: -1001", "RS0106", "-1001", "at least -1,000"),
    ("isolation: required", "gateway: {kv_us: 0.5}", "RS0201", "kv_us", "kv_use"),
    ("gap: 30s", "gap: 100d", "RS0106", "100d", "at most 90d"),
    ("gap: 30s", "gap: [30s]", "RS0107", "[30s]", "expected a quantity of time"),
    ("monthly: $20000", "monthly: 20000", "RS0108", "20000", "needs a currency"),
    ("shape: diurnal", "shape: diurnall", "RS0109", "diurnall", "did you mean diurnal?"),
    ("precision: [bf16]", "precision: [bf16, bf17]", "RS0109", "bf17", "did you mean bf16"),
    ("isolation: required", "isolation: [required]", "RS0109", "[required]", "a list is not one of required"),
    ("turns: 6", "turns: 6.5", "RS0105", "6.5", "expected a whole number, got 6.5"),
    ("turns: 6", "turns: 0", "RS0106", "0", "at least 1 is needed"),
    ("turns: 6", f"turns: {'9' * 60}", "RS0106", "9" * 60, "too large"),
    ("turns: 6", f"turns: {'9' * 10_000}", "RS0106", "9" * 10_000, "too large"),
    ("max_rank: 16", "max_rank: 1600", "RS0106", "1600", "at most 512 is possible"),
    ("prefix_hit_rate: 0.3", "prefix_hit_rate: .nan", "RS0106", ".nan", "not a finite number"),
    ("prefix_hit_rate: 0.3", "prefix_hit_rate: .inf", "RS0106", ".inf", "not a finite number"),
    ("prefix_hit_rate: 0.3", "prefix_hit_rate: 30%", "RS0105", "30%", 'expected a number, got "30%"'),
    ("interruptible: false", "interruptible: maybe", "RS0105", "maybe", "expected true or false"),
    ("name: voice-assistant", "name: Voice_Assistant", "RS0303", "Voice_Assistant", "lower-case letters"),
    ("name: voice-assistant", "name: 12", "RS0105", "12", 'put it in quotes: "12"'),
    ("name: voice-assistant", "name: 2026-08-03", None, "", ""),
    ('deadline: "06:00"', "deadline: 06:00", None, "", ""),
    ('deadline: "06:00"', "deadline: 6pm", "RS0107", "6pm", "not a time of day"),
    ("ttft_p95: 800ms", "ttft_p95: 800", "RS0108", "800", "ttft_p95: 800 needs a unit of time"),
    ("ttft_p95: 800ms", "ttfb_p95: 800ms", "RS0201", "ttfb_p95", "did you mean ttft_p95"),
    ("ttft_p95: 800ms", "ttft: {at_most: 800ms, for: 95}", "RS0106", "95", "above 0 and below 1"),
    ("ttft_p95: 800ms", "ttft: {at_most: 800ms, share: 0.9}", "RS0201", "share", "known: at_most, for"),
    ("ttft_p95: 800ms", "ttft: 800ms", "RS0202", "800ms", "ttft needs at_most"),
    ("tpot_p95: 50ms", "ttft: {at_most: 1s}", "RS0301", "ttft", 'a second limit for "ttft_p95"'),
    ("slo: {e2e_p95: 3s}", "slo: 3s", "RS0105", "3s", "objectives are a mapping"),
    ("max_context: 8192", "max_contxt: 8192", "RS0201", "max_contxt", "did you mean max_context"),
    ("max_context: 8192", "zzz: 8192", "RS0201", "zzz", "known: autoscaling, engine, gateway, gpu, interruptible"),
    ("class: chat", "name: chat", "RS0201", "name", "unknown key"),
    ("hours: always", "xyz: 1", "RS0201", "xyz", "known: apiVersion, budget"),
    ("adapters: 4, ", "", "RS0202", "{max_rank: 16}", '"adapters" is missing'),
    ("kind: Workload\n", "", "RS0202", "apiVersion", "write kind: Workload"),
    ("apiVersion: rightslice/v1", "apiVersion: rightslice/v2", "RS0203", "rightslice/v2", "rightslice/v1"),
    ("kind: Workload", "kind: Layout", "RS0203", "Layout", "a Workload document is expected"),
    ("kind: Workload", "kind: Wrkload", "RS0203", "Wrkload", "write kind: Workload"),
    ("stages: [asr, llm, tts]", "stages: asr", "RS0105", "asr", "expected a list"),
    ("stages: [asr, llm, tts]", "stages: []", "RS0106", "[]", "at least 1 entry is needed"),
    ("stages: [asr, llm, tts]", "stages: [asr, llm, ttz]", "RS0302", "ttz", "did you mean tts?"),
    ("lengths: {llm:", "lengths: {llx:", "RS0302", "llx", "no stage of this pipeline"),
    ("users: {heavy:", "users: {Heavy:", "RS0303", "Heavy", "not a usable name"),
    ("name: big", "name: asr", "RS0301", "asr", 'two models are called "asr"'),
    ("class: nightly", "class: chat", "RS0301", "chat", "two traffic classes"),
    ("tokens: 2e9,", "tokens: 2e9, rate: 1/s,", "RS0204", "tokens", "tokens contradicts rate"),
    ("tokens: 2e9,", "", "RS0202", "{class: nightly,", "one of rate, trace, tokens"),
    (", output_tokens: 300", "", "RS0202", "{class: nightly,", '"output_tokens" is missing'),
    ("task: custom", "task: embed", "RS0204", "{weights:", "memory belongs to task: custom"),
    ("latency: [103ms, 180ms, 2488ms], sm", "latency: [103ms, 180ms], sm", "RS0204", "[103ms, 180ms]", "2 latencies"),
    ("streams: [1, 8, 16], lat", "streams: [1, 16, 8], lat", "RS0106", "8", "streams must increase"),
    ("latency: [103ms, 180ms, 2488ms], sm", "latency: [3s, 180ms, 4s], sm", "RS0106", "180ms", "must not fall"),
    ("allow: [A100-SXM-80GB]", "allow: [H100, L4]", "RS0312", "H100", "or H100-SXM-80GB?"),
    ("machine_type: a2-ultragpu-1g", "machine_type: a2-ultra-1g", "RS0313", "a2-ultra-1g", "a2-ultragpu-1g"),
    ("regions: [us-central1]", "regions: [us-centrl1]", "RS0314", "us-centrl1", "us-central1"),
    ("engines: [vllm, nim]", "engines: [vlm, nim]", "RS0315", "vlm", "did you mean vllm?"),
    ("gcp: gke+operator", "gcp: gkee", "RS0316", "gkee", "gke"),
    ("platform: {gcp: gke+operator, aws: eks}", "platform: 3", "RS0105", "3", "expected text"),
    ("platform: {gcp: gke+operator, aws: eks}", "platform: gkee", "RS0316", "gkee", "gke"),
    ("gcp: gke+operator", "gpc: gke", "RS0318", "gpc", "did you mean gcp"),
    ("partition: 3g.40gb", "partition: 3g.40", "RS0317", "3g.40", "3g.40gb"),
    ("source: meta-llama/Llama-3.1-8B-Instruct", "source: llama", "RS0310", "llama", "meta-llama/Llama-3.1-8B"),
    ("objective: cost", "objective: cost\nobjective: cost", "RS0102", "objective", "written twice; first in line 63"),
    ("objective: cost", "? [a]\n: b", "RS0105", "[a]", "a key must be text"),
    ("objective: cost", "1: cost", "RS0201", "1", "unknown key"),
    ("budget: {", "pipes:\nbudget: {", "RS0201", "pipes", "did you mean pipelines"),
    ("lora: {adapters: 4, max_rank: 16}", "lora: 4", "RS0105", "4", "expected a mapping, got 4"),
    ("accelerators: {allow: [A100-SXM-80GB], deny: []}", "accelerators:", "RS0105", "accelerators", "got nothing"),
    ("owned: [{machine_type: a2-ultragpu-1g, count: 2}]", "owned: [7]", "RS0105", "7", "expected a mapping, got 7"),
]


@pytest.mark.parametrize(("old", "new", "rule", "culprit", "words"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_one_mistake(old: str, new: str, rule: str | None, culprit: str, words: str) -> None:
    assert old in RIGHT
    text = RIGHT.replace(old, new, 1)
    if rule is None:
        assert parse_workload(text, file="w.yaml", known=KNOWN).warnings == ()
        return
    (found,) = diagnostics(text)
    assert (found.rule, found.location and found.location.file) == (rule, "w.yaml")
    assert token(found) == culprit or (culprit[-1] in ",:" and token(found).startswith(culprit))
    assert words in f"{found.message} {found.hint}"


def test_duplicates_and_missing_stages_show_beside_all_other_mistakes_in_file_order() -> None:
    text = RIGHT
    for old, new in (
        ("shape: diurnal", "shape: diurnall"),
        ("name: tts", "name: asr"),
        ("stages: [asr, llm, tts]", "stages: [asr, llm, tts]\n    stage: [asr]"),
        ("allow: [A100-SXM-80GB]", "allow: [H100]"),
    ):
        text = text.replace(old, new, 1)
    found = diagnostics(text)
    assert [item.rule for item in found] == ["RS0109", "RS0301", "RS0302", "RS0201", "RS0312"]
    assert [token(item) for item in found] == ["diurnall", "asr", "tts", "stage", "H100"]


@pytest.mark.parametrize(
    ("old", "new", "next_command"),
    [
        ("allow: [A100-SXM-80GB]", "allow: [H100]", "rightslice catalog accelerators"),
        ("engines: [vllm, nim]", "engines: [vlm]", "rightslice catalog engines"),
        ("shape: diurnal", "shape: x", "rightslice schema"),
        ("shape: diurnal", "shape: [", "rightslice init"),
    ],
)
def test_next_command(old: str, new: str, next_command: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_workload(RIGHT.replace(old, new, 1), file="w.yaml", known=KNOWN)
    assert caught.value.next_command == next_command


def test_mistakes_behind_aliases_and_merge_keys_are_shown_where_they_stand() -> None:
    text = (DATA / "shared-settings.yaml").read_text(encoding="utf-8")
    (found,) = diagnostics_without_names(text.replace("min_replicas: 1", "min_replicas: -1"))
    assert (token(found), found.location and found.location.line) == ("-1", 15)
    (found,) = diagnostics_without_names(text.replace("tpot_p95: 50ms", "tpot_p95: 50"))
    assert (token(found), found.location and found.location.line) == ("50", 14)


def diagnostics_without_names(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(BadInputError) as caught:
        parse_workload(text, file="w.yaml")
    return caught.value.diagnostics


def test_values_of_the_long_example() -> None:
    loaded = load_workload(DATA / "voice-assistant.yaml", KNOWN)
    chat, nightly = loaded.workload.model("llm").traffic
    assert chat.rate is not None
    assert (chat.rate.mean, chat.rate.planned_per_s) == (12.0, 30.0)
    assert [(slo.name, slo.at_most_s) for slo in chat.slo] == [("ttft_p95", 0.8), ("tpot_p95", 0.05), ("e2e_p95", 12.0)]
    assert (nightly.tokens, nightly.deadline) == (2_000_000_000, "06:00")
    assert loaded.workload.model("big").memory is not None
    assert loaded.workload.fleet.platform == {"gcp": "gke+operator", "aws": "eks"}


def test_merge_keys_and_short_forms() -> None:
    small, large, replayed = load_workload(DATA / "shared-settings.yaml").workload.models
    assert (small.source, large.source) == (
        ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("meta-llama/Llama-3.3-70B-Instruct",),
    )
    assert (small.precision, large.precision) == (("bf16",), ("bf16",))
    assert large.traffic[0].rate is not None
    assert large.traffic[0].rate.peak == 2.5
    assert large.traffic[0].output_tokens is not None
    assert large.traffic[0].output_tokens.mean == 200
    assert [slo.share for slo in replayed.traffic[0].slo] == [0.99, 0.95]


def test_a_model_that_nobody_calls_is_a_warning() -> None:
    text = RIGHT.replace("stages: [asr, llm, tts]", "stages: [asr, llm]", 1)
    (found,) = parse_workload(text, file="w.yaml").warnings
    assert (found.rule, found.severity, found.excerpt) == ("RS0304", "warn", "  - name: tts")
