"""A Job that compares a quantised model with the original, by lm-evaluation-harness."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.engines import engine
from rightslice.catalogue.hardware import WHOLE
from rightslice.core.engine import DTYPE_BITS
from rightslice.kube.names import safe_name
from rightslice.kube.objects import Metadata, Object, config_map
from rightslice.manifests.jobs import Place, Step, Task, task
from rightslice.manifests.pods import node_selector, tolerations, weights_claim
from rightslice.manifests.view import Unit, View, is_local, model_labels, weights_path

HARNESS: Final = "lm_eval[api]==0.4.13"
"""The release whose command line the flags were read with."""
TASKS: Final = ("arc_challenge", "gsm8k", "winogrande")
"""Knowledge, arithmetic in steps and common sense: 1,172, 1,319 and 1,267 questions."""
LIMIT: Final = 1000
"""Questions of each task. Two standard errors of a score of 0.8 are then 2.5 points a task."""
BAR: Final = 0.99
"""Share of the original's score to keep: MLPerf Inference's bar of 99 %."""
CONTEXT_TOKENS: Final = 4096
"""Room for a prompt with its examples and the answer: assumed to hold the longest, which was not measured."""
FILLED: Final = 0.8
"""Share of a device that the original's weights may take; the rest is for cache and graphs: an assumption."""
_COUNTS: Final = (1, 2, 4, 8, 16)
_SCRIPTS: Final = "/compare"
EVALUATION_FOLDER: Final = "evaluation"
"""Of a plan's tree: outside the kustomization, applied when the reader wants it."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model under evaluation: `endpoint` of a running server, or weights that the Job loads onto `gpus` devices."""

    model: str
    gpus: int = 0
    endpoint: str = ""
    tokenizer: str = ""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Two models, where the Job runs, and the claims (name -> path) that hold their weights."""

    name: str
    original: Served
    quantised: Served
    weights_bytes: int
    context_tokens: int
    claims: dict[str, str]
    labels: dict[str, str]
    note: str


def evaluation_objects(asked: Evaluation, place: Place) -> list[Object]:
    """The script that compares, and the Job: original, quantised, comparison."""
    script = safe_name(f"{asked.name}-compare")
    text = (files("rightslice.manifests") / "data" / "compare.txt").read_text(encoding="utf-8")
    compare = ("python3", f"{_SCRIPTS}/compare.py", f"{BAR:g}")
    steps = (
        _run("original", asked.original, asked.context_tokens),
        _run("quantised", asked.quantised, asked.context_tokens),
        Step("compare", _image(), (compare,)),
    )
    made = Task(
        name=asked.name,
        steps=steps,
        weights_bytes=asked.weights_bytes,
        claims=asked.claims,
        scripts={script: _SCRIPTS},
        labels=asked.labels,
        annotations={"rightslice/note": asked.note},
    )
    metadata = Metadata(script, place.namespace, asked.labels)
    return [config_map(metadata, {"compare.py": text}), task(made, place)]


def _image() -> str:
    facts = engine("vllm")
    return facts.image(facts.latest_version)


def _run(name: str, served: Served, context_tokens: int) -> Step:
    """Install the harness beside the engine of the image, then answer all tasks."""
    if served.endpoint:
        backend = "local-completions"
        given = {
            "model": served.model,
            "base_url": served.endpoint,
            "tokenizer": served.tokenizer,
            "tokenizer_backend": "huggingface",
            "num_concurrent": "16",
            "max_retries": "3",
            "max_length": str(context_tokens),
        }
    else:
        backend = "vllm"
        given = {
            "pretrained": served.model,
            "tensor_parallel_size": str(served.gpus),
            "max_model_len": str(context_tokens),
        }
    command = (
        *("python3", "-m", "lm_eval", "run", "--model", backend),
        *("--model_args", ",".join(f"{key}={value}" for key, value in given.items())),
        *("--tasks", ",".join(TASKS), "--limit", str(LIMIT)),
        *("--batch_size", "1" if served.endpoint else "auto", "--seed", "0"),
        *("--output_path", f"/results/{name}"),
    )
    install = ("python3", "-m", "pip", "install", "--no-cache-dir", HARNESS)
    return Step(name, _image(), (install, command), served.gpus)


def evaluations(view: View) -> dict[str, list[Object]]:
    """Model -> objects that evaluate it, for each model whose engine lowers the precision while loading."""
    made: dict[str, list[Object]] = {}
    for unit in view.units:
        settings, facts = unit.deployment.engine.settings, engine("vllm")
        if settings is None or unit.deployment.engine.name != facts.name or unit.model.name in made:
            continue
        if facts.quantises(unit.deployment.engine.args):
            made[unit.model.name] = _of_unit(unit, DTYPE_BITS[settings.weight_dtype], settings.max_model_len)
    return made


def _of_unit(unit: Unit, bits: int, max_model_len: int) -> list[Object]:
    weights = unit.weights_bytes * 16 // bits
    count, place = _place(unit, weights)
    local = is_local(unit.model.source)
    model = weights_path(unit.model) if local else unit.model.source
    port = unit.deployment.engine.port
    endpoint = f"http://{unit.service}.{unit.namespace}.svc:{port}/v1/completions"
    name = safe_name(f"{unit.model.name}-evaluate")
    asked = Evaluation(
        name=name,
        original=Served(model, gpus=count),
        quantised=Served(model, endpoint=endpoint, tokenizer=model),
        weights_bytes=weights,
        context_tokens=min(CONTEXT_TOKENS, max_model_len),
        claims={weights_claim(unit): model} if local else {},
        labels={**model_labels(unit.plan, unit.model), "app.kubernetes.io/instance": name},
        note=f"needs {count} x {place.resource} beside the deployment, for the original of 16 bit",
    )
    return evaluation_objects(asked, place)


def _place(unit: Unit, weights_bytes: int) -> tuple[int, Place]:
    """(devices for the original, where): the deployment's own kind where one or several hold it, else whole GPUs."""
    planned = unit.deployment
    whole = device(planned.accelerator)
    own = device(planned.accelerator, planned.partition)
    if planned.partition != WHOLE and weights_bytes <= FILLED * own.memory_bytes:
        return 1, Place(unit.namespace, unit.resource, node_selector(unit), tolerations(unit), unit.mirrors)
    held = [count for count in _COUNTS if weights_bytes <= FILLED * count * whole.memory_bytes]
    count = held[0] if held else _COUNTS[-1]
    resource = unit.pool.platform.gpu_resource(WHOLE, whole.accelerator.vendor)
    here = planned.partition == WHOLE and count <= unit.pool.pool.gpus_per_node
    selector = node_selector(unit) if here else {}
    return count, Place(unit.namespace, resource, selector, tolerations(unit), unit.mirrors)
