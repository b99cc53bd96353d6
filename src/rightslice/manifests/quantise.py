"""Files that bring a model to a lower precision and measure the result: recipe, Job, evaluation, page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from rightslice.catalogue.accuracy import weight_risk
from rightslice.kube.names import label_value, safe_name, slug
from rightslice.kube.objects import Metadata, Object, config_map, persistent_volume_claim
from rightslice.kube.writer import dump, dump_all
from rightslice.manifests.evaluate import BAR, LIMIT, TASKS, Evaluation, Served, evaluation_objects
from rightslice.manifests.jobs import Place, Step, Task, storage_gib, task
from rightslice.manifests.prose import plain
from rightslice.memory.recipe import LIBRARY, LIBRARY_VERSION, Recipe

IMAGE: Final = "docker.io/library/python:3.12-slim"
"""The library's wheels bring CUDA; the driver comes from the node."""
DATA: Final = "ultrachat_200k"
SAMPLES: Final = 512
SAMPLE_TOKENS: Final = 2048
"""Calibration data, samples and their length: the library's own default of samples and what its examples take."""
_RECIPE_PATH: Final = "/recipe"
_MODELS: Final = "/models"
_ORIGINAL: Final = "/original"


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What is asked. `model`: hub id; empty for weights that the reader provides in a claim. `gpus` hold the
    original and `quantised_gpus` the result on `accelerator`.
    """

    title: str
    model: str
    published: str
    dtype: str
    recipe: Recipe
    weights_bytes: int
    quantised_bytes: int
    accelerator: str
    gpus: int
    quantised_gpus: int
    context_tokens: int


def quantisation_files(asked: Quantisation) -> Mapping[str, str]:
    """recipe.yaml, quantise.yaml, evaluate.yaml and QUANTISE.md: equal questions give equal bytes."""
    name = safe_name(f"{slug(asked.title.rpartition('/')[2])}-{asked.dtype}", 40)
    text = dump(recipe_document(asked.recipe))
    return {
        "QUANTISE.md": _page(asked, name),
        "evaluate.yaml": dump_all(_evaluation(asked, name)),
        "quantise.yaml": dump_all(_quantisation(asked, name, text)),
        "recipe.yaml": text,
    }


def recipe_document(found: Recipe) -> Object:
    """The recipe as llm-compressor reads it."""
    given: Object = {"ignore": list(found.ignore)}
    if found.group_size:
        weights: Object = {
            "num_bits": 4,
            "type": "int",
            "symmetric": True,
            "strategy": "group",
            "group_size": found.group_size,
        }
        given["config_groups"] = {"group_0": {"targets": ["Linear"], "weights": weights}}
    else:
        given |= {"targets": ["Linear"], "scheme": found.method.scheme}
    return {"quant_stage": {"quant_modifiers": {found.method.modifier: given}}}


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": label_value(name), "app.kubernetes.io/managed-by": "rightslice"}


def _claims(asked: Quantisation, name: str) -> dict[str, str]:
    return {name: _MODELS} if asked.model else {name: _MODELS, f"{name}-original": _ORIGINAL}


def _quantisation(asked: Quantisation, name: str, recipe_text: str) -> list[Object]:
    script = f"{name}-recipe"
    call = (files("rightslice.manifests") / "data" / "quantise.txt").read_text(encoding="utf-8")
    method = asked.recipe.method
    command = ["python", f"{_RECIPE_PATH}/quantise.py", asked.model or _ORIGINAL, f"{_RECIPE_PATH}/recipe.yaml"]
    command += [f"{_MODELS}/{name}", *((DATA, str(SAMPLES), str(SAMPLE_TOKENS)) if method.calibrated else ())]
    install = ("python", "-m", "pip", "install", "--no-cache-dir", f"{LIBRARY}=={LIBRARY_VERSION}")
    made = Task(
        name=f"{name}-quantise",
        steps=(Step("quantise", IMAGE, (install, tuple(command)), gpus=1),),
        weights_bytes=asked.weights_bytes,
        claims=_claims(asked, name),
        scripts={script: _RECIPE_PATH},
        labels=_labels(name),
        annotations={"rightslice/note": "layer by layer: one GPU, and host memory for all 16-bit weights"},
    )
    return [
        config_map(Metadata(script, labels=_labels(name)), {"quantise.py": call, "recipe.yaml": recipe_text}),
        persistent_volume_claim(Metadata(name, labels=_labels(name)), storage_gib(asked.quantised_bytes)),
        task(made, Place()),
    ]


def _evaluation(asked: Quantisation, name: str) -> list[Object]:
    made = Evaluation(
        name=f"{name}-evaluate",
        original=Served(asked.model or _ORIGINAL, gpus=asked.gpus),
        quantised=Served(f"{_MODELS}/{name}", gpus=asked.quantised_gpus),
        weights_bytes=asked.weights_bytes,
        context_tokens=asked.context_tokens,
        claims=_claims(asked, name),
        labels=_labels(name),
        note=f"sized for {asked.accelerator}: {asked.gpus} for the original, {asked.quantised_gpus} for the result",
    )
    return evaluation_objects(made, Place())


def _page(asked: Quantisation, name: str) -> str:
    risk = weight_risk(asked.dtype, asked.published)
    figures = [f"- {plain(f.text)}: {plain(f.source)}, {f.date}" for f in risk.figures] or ["- not measured"]
    group = f" in groups of {asked.recipe.group_size}" if asked.recipe.group_size else ""
    provide = "" if asked.model else f"# first put the original's weights into a claim named {name}-original\n"
    text = (files("rightslice.manifests") / "data" / "quantise.md").read_text(encoding="utf-8")
    return text.format(
        title=plain(asked.title),
        dtype=asked.dtype,
        risk=risk.risk,
        method=plain(risk.method),
        figures="\n".join(figures),
        provide=provide,
        name=name,
        library=f"{LIBRARY} {LIBRARY_VERSION}",
        scheme=f"{asked.recipe.method.scheme}{group}",
        kept=", ".join(f"`{pattern}`" for pattern in asked.recipe.ignore),
        limit=f"{LIMIT:,}",
        tasks=", ".join(TASKS),
        bar=f"{BAR:.0%}",
        accelerator=plain(asked.accelerator),
        gpus=asked.gpus,
        quantised_gpus=asked.quantised_gpus,
    )
