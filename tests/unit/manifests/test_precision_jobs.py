"""Jobs that quantise a model and compare it with the original: valid, reproducible, without a secret's value."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from emitted import Object, objects

from plans import LLAMA_8B, memory, model, placed, plan, pool, vllm
from rightslice.app.precision import write_quantisation
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import WHOLE
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError
from rightslice.core.plan import Plan
from rightslice.manifests.mirrors import Mirrors
from rightslice.manifests.render import render

FILES = ("QUANTISE.md", "evaluate.yaml", "quantise.yaml", "recipe.yaml")


def written(folder: Path, source: str = LLAMA_8B, dtype: str = "int4", accelerator: str | None = None) -> list[Object]:
    assert write_quantisation(source, dtype, accelerator, folder) == FILES
    texts = {name: (folder / name).read_text() for name in FILES}
    return [*objects(texts, "quantise.yaml"), *objects(texts, "evaluate.yaml")]


def lowered_plan(source: str = LLAMA_8B, partition: str = WHOLE, accelerator: str = "L4") -> Plan:
    settings = EngineSettings(version="0.33.0", weight_dtype="fp8", max_model_len=8192)
    facts = engine("vllm")
    lowered = replace(vllm(source, settings), args=facts.arguments(settings, source, quantise=True))
    machine = {"L4": "g2-standard-4", "A100-SXM-80GB": "a2-ultragpu-1g"}[accelerator]
    on = pool(
        machine, accelerator, provider="gcp", region="us-central1", platform="gke+operator", gpus_per_node=1, nodes=1
    )
    llm = model(
        "llm",
        on,
        lowered,
        memory(accelerator, partition, *((8.5, 8.0) if partition == WHOLE else (5.0, 1.0))),
        source=source,
        partition=partition,
    )
    return plan("chat", (on,), (llm,), (placed(on, 0, 0, (llm, 0, 0)),))


def job_of(found: list[Object]) -> Any:
    return next(made for made in found if made["kind"] == "Job" and "evaluate" in made["metadata"]["name"])


def commands(job: Any) -> dict[str, str]:
    pod = job["spec"]["template"]["spec"]
    return {c["name"]: c["command"][-1] for c in (*pod.get("initContainers", ()), *pod["containers"])}


@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
@pytest.mark.parametrize(
    ("source", "dtype"),
    [(LLAMA_8B, "int4"), ("Qwen/Qwen3-VL-30B-A3B-Instruct", "nvfp4"), ("Qwen/Qwen3-30B-A3B", "fp8")],
)
def test_every_object_validates_strictly(source: str, dtype: str, version: str, tmp_path: Path) -> None:
    found = written(tmp_path, source, dtype)
    kinds = ["ConfigMap", "PersistentVolumeClaim", "Job", "ConfigMap", "Job"]
    assert [made["kind"] for made in found] == kinds
    for made in found:
        kubernetes_validate.validate(made, version, strict=True)


def test_equal_questions_give_equal_bytes(tmp_path: Path) -> None:
    written(tmp_path / "a")
    written(tmp_path / "b")
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_token_comes_from_a_secret_and_pods_get_nothing_else(tmp_path: Path) -> None:
    for made in written(tmp_path):
        if made["kind"] != "Job":
            continue
        pod: Any = made["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            token = next(variable for variable in container["env"] if variable["name"] == "HF_TOKEN")
            reference = {"name": "huggingface-token", "key": "token", "optional": True}
            assert token == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}}
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_recipe_of_the_job_is_the_recipe_beside_it(tmp_path: Path) -> None:
    found = written(tmp_path)
    assert found[0]["data"]["recipe.yaml"] == (tmp_path / "recipe.yaml").read_text()
    recipe = yaml.safe_load((tmp_path / "recipe.yaml").read_text())
    stage = {"GPTQModifier": {"ignore": ["re:.*lm_head$"], "scheme": "W4A16", "targets": ["Linear"]}}
    assert recipe == {"quant_stage": {"quant_modifiers": stage}}


def test_a_format_without_calibration_asks_for_no_data(tmp_path: Path) -> None:
    command = commands(written(tmp_path / "a", dtype="fp8")[2])["quantise"]
    assert command.endswith("/recipe/recipe.yaml /models/llama-3-1-8b-instruct-fp8")
    assert commands(written(tmp_path / "b")[2])["quantise"].endswith(" ultrachat_200k 512 2048")


def test_the_evaluation_is_sized_for_the_accelerator_that_is_named(tmp_path: Path) -> None:
    run = commands(job_of(written(tmp_path, "meta-llama/Llama-3.1-70B-Instruct", "int4", "H100-SXM-80GB")))
    assert "tensor_parallel_size=2" in run["original"]
    assert "tensor_parallel_size=1" in run["quantised"]
    assert "pretrained=/models/llama-3-1-70b-instruct-int4," in run["quantised"]


def test_a_folder_becomes_a_claim_and_not_a_path_of_this_machine(tmp_path: Path) -> None:
    raw = {
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 1000, "torch_dtype": "bfloat16", "max_position_embeddings": 2048,
    }  # fmt: skip
    source = tmp_path / "my $(model)"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(raw))
    found = written(tmp_path / "out", str(source))
    job = job_of(found)
    assert "pretrained=/original," in commands(job)["original"]
    assert "max_model_len=2048" in commands(job)["original"]
    claims = [v["persistentVolumeClaim"]["claimName"] for v in job["spec"]["template"]["spec"]["volumes"] if
              "persistentVolumeClaim" in v]  # fmt: skip
    assert len(claims) == 2
    assert not any(
        str(tmp_path) in (tmp_path / "out" / name).read_text() for name in ("quantise.yaml", "evaluate.yaml")
    )
    for made in found:
        kubernetes_validate.validate(made, "1.34", strict=True)


@pytest.mark.parametrize(
    ("source", "dtype", "rule"),
    [
        (LLAMA_8B, None, "RS0502"),
        (LLAMA_8B, "bf16", "RS0502"),
        ("openai/gpt-oss-20b", "int4", "RS0502"),
        ("MiniMaxAI/MiniMax-M2.5", "nvfp4", "RS2005"),
        ("BAAI/bge-large-en-v1.5", "fp8", "RS2005"),
        ("no/such-model", "fp8", "RS0310"),
    ],
)
def test_what_cannot_be_quantised_writes_nothing(source: str, dtype: str | None, rule: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refused:
        write_quantisation(source, dtype, None, tmp_path / "out")
    assert refused.value.diagnostics[0].rule == rule
    assert not (tmp_path / "out").exists()


def test_a_plan_that_lowers_the_precision_brings_an_evaluation() -> None:
    tree = render(lowered_plan())
    found = objects(tree, "evaluation/llm.yaml")
    for made in found:
        kubernetes_validate.validate(made, "1.34", strict=True)
    job = job_of(found)
    run = commands(job)
    service = next(made for made in objects(tree) if made["kind"] == "Service")["metadata"]
    assert isinstance(service, dict)
    endpoint = f"http://{service['name']}.{service['namespace']}.svc:8000/v1/completions"
    assert f"--model local-completions --model_args model={LLAMA_8B},base_url={endpoint}," in run["quantised"]
    assert f"pretrained={LLAMA_8B},tensor_parallel_size=1" in run["original"]
    pod = job["spec"]["template"]["spec"]
    original, quantised = pod["initContainers"]
    assert original["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert "limits" not in quantised["resources"]
    assert pod["nodeSelector"]["rightslice/pool"]
    assert "evaluation" not in tree["kustomization.yaml"]
    assert "`evaluation/`: a Job for `llm`" in tree["README.md"]


def test_a_slice_that_is_too_small_for_the_original_asks_for_a_whole_gpu() -> None:
    made = lowered_plan(partition="1g.10gb", accelerator="A100-SXM-80GB")
    job = job_of(objects(render(made), "evaluation/llm.yaml"))
    pod = job["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert "nodeSelector" not in pod


def test_a_plan_in_the_published_precision_has_none() -> None:
    made = lowered_plan()
    planned = made.models[0].deployments[0]
    kept = replace(planned, engine=vllm(LLAMA_8B))
    tree = render(replace(made, models=(replace(made.models[0], deployments=(kept,)),)))
    assert not any(name.startswith("evaluation/") for name in tree)


def compared(folder: Path, original: dict[str, Any], quantised: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run the script of the Job on results as lm-evaluation-harness 0.4.13 writes them."""
    for name, results in (("original", original), ("quantised", quantised)):
        place = folder / name / "some__model"
        place.mkdir(parents=True)
        (place / "results_2026-12-01T00-03-30.193506.json").write_text(json.dumps({"results": results}))
    text = (files("rightslice.manifests") / "data" / "compare.txt").read_text(encoding="utf-8")
    script = text.replace("/results/", f"{folder}/")
    return subprocess.run([sys.executable, "-c", script, "0.99"], capture_output=True, text=True, check=False)


def result(score: float, error: float) -> dict[str, Any]:
    return {"gsm8k": {"alias": "gsm8k", "sample_len": 1000, "exact_match,strict-match": score,
                      "exact_match_stderr,strict-match": error}}  # fmt: skip


@pytest.mark.parametrize(
    ("score", "error", "code", "word"),
    [(0.80, 0.0005, 0, "KEPT"), (0.70, 0.005, 1, "LOST"), (0.795, 0.012, 0, "UNDECIDED")],
)
def test_the_comparison_says_kept_lost_or_undecided(
    score: float, error: float, code: int, word: str, tmp_path: Path
) -> None:
    done = compared(tmp_path, result(0.80, error), result(score, error))
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1].startswith(word)
    assert f"kept {score / 0.80:.1%}" in done.stdout


def test_the_comparison_refuses_runs_without_a_common_score(tmp_path: Path) -> None:
    done = compared(tmp_path, result(0.8, 0.01), {"other": {"acc,none": 0.5, "acc_stderr,none": 0.1}})
    assert done.returncode == 1
    assert "share no score" in done.stderr


def test_jobs_take_their_image_and_models_from_mirrors() -> None:
    files = render(lowered_plan(), Mirrors("registry.example/ai", "http://hub.example:8080"))
    pod = job_of(objects(files, "evaluation/llm.yaml"))["spec"]["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["image"].startswith("registry.example/ai/vllm/vllm-openai:v")
        assert {"name": "HF_ENDPOINT", "value": "http://hub.example:8080"} in container["env"]
