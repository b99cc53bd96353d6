"""`rightslice predict MODEL`: one deployment as it is named on the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from rightslice.app.models import find_model
from rightslice.app.predict import Deployment, Load, Prediction, engine_defaults, predict
from rightslice.catalogue.accelerators import device, resolve_device
from rightslice.catalogue.engines import engines
from rightslice.catalogue.hardware import Device
from rightslice.core.engine import Dtype, EngineSettings, KvDtype
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.memory.computation import cache_dtype
from rightslice.memory.legality import legal_parallelism, slice_parallelism

GENERATES = ("decoder", "encoder-decoder")


@dataclass(frozen=True, slots=True)
class Asked:
    """One deployment of `model`; `accelerators` 0: those of one replica. Formats None: as published."""

    model: str
    accelerator: str
    accelerators: int = 0
    engine: str = "vllm"
    engine_version: str = ""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel: bool = False
    dtype: Dtype | None = None
    kv_dtype: KvDtype | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What was asked, resolved, and what is predicted for it."""

    model: str
    accelerator: str
    accelerators: int
    engine: str
    settings: EngineSettings
    load: Load
    input_tokens: int
    output_tokens: int
    prediction: Prediction

    def document(self) -> dict[str, object]:
        """The metrics at the top level, beside what was asked."""
        found = {
            name: getattr(self.prediction, name) for name in Prediction.__dataclass_fields__ if name != "provenance"
        }
        asked = {name: getattr(self, name) for name in Answer.__dataclass_fields__ if name != "prediction"}
        return {**asked, **found}


def predict_one(asked: Asked, load: Load, input_tokens: int, output_tokens: int) -> Answer:
    """Raises BadInputError for unknown names and impossible parallel sizes, InfeasibleError where it does not fit."""
    architecture = find_model(asked.model)
    if architecture.kind not in GENERATES:
        raise BadInputError(Diagnostic("RS0501", f"{asked.model} does not generate text", hint="give a language model"))
    where = _device(asked.accelerator)
    if asked.engine not in engines():
        hint = did_you_mean(asked.engine, engines()) or f"known are {', '.join(engines())}"
        raise BadInputError(Diagnostic("RS0501", f'unknown engine "{asked.engine[:40]}"', hint=hint))
    settings = EngineSettings(
        engine=asked.engine,
        version=asked.engine_version,
        tensor_parallel_size=asked.tensor_parallel_size,
        pipeline_parallel_size=asked.pipeline_parallel_size,
        data_parallel_size=asked.data_parallel_size,
        expert_parallel=asked.expert_parallel and bool(architecture.moe),
        weight_dtype=asked.dtype or cast("Dtype", architecture.published_dtype),
        kv_dtype=cast(
            "KvDtype", cache_dtype(architecture, asked.engine, asked.engine_version, "bf16", asked.kv_dtype or "")
        ),
        max_model_len=input_tokens + output_tokens,
    )
    usual = engine_defaults(settings, where)
    settings = replace(
        settings,
        memory_fraction=usual.memory_fraction,
        max_num_seqs=usual.max_num_seqs,
        max_num_batched_tokens=usual.max_num_batched_tokens,
        block_size_tokens=usual.block_size_tokens,
    )
    if illegal := slice_parallelism(where, settings) or legal_parallelism(architecture, settings):
        raise BadInputError(Diagnostic("RS2006", illegal))
    if asked.accelerators % settings.gpus_per_replica:
        message = f"{asked.accelerators} accelerators for replicas of {settings.gpus_per_replica}"
        raise BadInputError(Diagnostic("RS0501", message, hint="a multiple of tp x pp x dp"))
    there = asked.accelerators or settings.gpus_per_replica
    found = predict(Deployment(architecture, where, settings, there), load, input_tokens, output_tokens)
    return Answer(
        architecture.name, where.name, there, asked.engine, settings, load, input_tokens, output_tokens, found
    )


def _device(text: str) -> Device:
    """The accelerator or slice of that name. Raises BadInputError with the nearest known ones."""
    found = resolve_device(text)
    try:
        if found is not None:
            return device(*found)
    except KeyError:
        pass
    from rightslice.app.sizing import asked_about  # noqa: PLC0415 - heavy, and only for its message

    return asked_about(text)[0]
