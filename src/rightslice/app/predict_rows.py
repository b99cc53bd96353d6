"""`rightslice predict --rows`: one prediction for every row of a table of measurements, or why there is none."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, cast, get_args

from rightslice.app import harnesses
from rightslice.app.predict import Deployment, Load, LoadKind, Prediction, engine_defaults, predict
from rightslice.app.predict_stages import TASKS, StagePrediction, predict_stage
from rightslice.catalogue.accelerators import device, resolve_accelerator, resolve_device
from rightslice.catalogue.aliases import split_partition
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engines import engines
from rightslice.catalogue.hardware import WHOLE, Device
from rightslice.catalogue.mig import geometry
from rightslice.catalogue.models import resolve_model
from rightslice.catalogue.unknown import usual_decoder
from rightslice.core.engine import Dtype, EngineSettings, KvDtype
from rightslice.core.errors import BadInputError, Diagnostic, Location, RightsliceError
from rightslice.core.estimate import Metric
from rightslice.memory.computation import cache_dtype
from rightslice.memory.weights import rank_weights_bytes

_NAMESPACE: Final = "calibration"
_NEEDED: Final = ("id", "model", "hw", "isl", "osl", "load")
_DTYPES: Final[dict[str, Dtype]] = {
    "w8a16": "fp8", "w8a8-fp8": "fp8", "w8a8-int8": "int8", "w4a16": "int4", "w4a8": "int4", "auto": "bf16", "": "bf16",
    "q4": "int4", "q4_k_m": "int4", "q4_0": "int4", "q8_0": "int8", "awq": "int4", "gptq": "int4",
    "f16": "fp16", "f32": "fp32",
}  # fmt: skip
"""Precisions that are not names of a weight format; the device decides how they are multiplied."""
_ENGINES: Final = {"llama.cpp": "llamacpp", "nim": "vllm"}
_RELEASES: Final = {
    ("vllm", 2023): "0.2.0", ("vllm", 2024): "0.5.0", ("vllm", 2025): "0.10.0",
    ("tensorrt-llm", 2023): "0.6.0", ("tensorrt-llm", 2024): "0.10.0", ("tensorrt-llm", 2025): "1.0",
    ("sglang", 2024): "0.3.0", ("sglang", 2025): "0.5.0",
}  # fmt: skip
"""Releases of the middle of a year, for versions that are given by their year only."""
_TUNED: Final = "0.21.0"
"""Audited submissions of mid-2025 name the TensorRT library instead of a release of TensorRT-LLM. Forks for such
submissions that carry the name are as fast as later releases."""
_ROOM_FOR_CACHE: Final = 0.5
"""A row without tensor parallelism gets the smallest that leaves this share of the device beside the weights."""
_METRICS: Final = {
    "output_tokens_s_total": "output_tokens_per_s", "ttft_ms_mean": "ttft_ms", "tpot_ms_mean": "tpot_ms",
    "e2e_ms_mean": "e2e_ms", "requests_s": "requests_per_s", "rtfx": "rtfx",
}  # fmt: skip
"""Columns of tables and fields of predictions."""
COLUMNS: Final = (
    "id",
    *(f"pred_{name}{end}" for name in _METRICS for end in ("", "_low", "_high")),
    "pred_tpot_ms_mean_high95",
    "pred_ttft_ms_mean_high95",
    "provenance",
    "cell",
    "error",
)
Row = Mapping[str, str]
Predicted = tuple[Row, Prediction | StagePrediction | None, str]
"""A row, its prediction, and why there is none."""


def read_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a CSV file. Raises BadInputError RS0401 or RS0402 for a file without the columns that are needed."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no text in UTF-8"
        raise BadInputError(Diagnostic("RS0401", reason, Location(str(path)[:200]))) from None
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        names = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        rows = tuple({key: (value or "").strip() for key, value in row.items() if key} for row in reader)
    except csv.Error as error:
        raise BadInputError(Diagnostic("RS0402", f"no CSV table: {error}", Location(str(path)[:200]))) from None
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        hint = f"needed are {', '.join(_NEEDED)}"
        message = f"columns are missing: {', '.join(missing)}"
        raise BadInputError(Diagnostic("RS0402", message, Location(str(path)[:200], 1), hint))
    return rows


def predicted_rows(rows: Iterable[Row]) -> Iterator[Predicted]:
    """Each row with its prediction, or with None and the reason."""
    for row in rows:
        try:
            yield row, predict_row(row), ""
        except RightsliceError as error:
            yield row, None, error.message
        except (ArithmeticError, LookupError, ValueError, TypeError) as error:
            yield row, None, f"not understood: {error}"[:200]


def predict_row(row: Row) -> Prediction | StagePrediction:
    """The statistic that the row states, the mean or the median, stands as the mean.

    Raises RightsliceError or ValueError with the reason where there is no prediction."""
    task = row.get("task") or "llm"
    if task in TASKS:
        return predict_stage(row, TASKS[task], _device(row), round(_number(row, "n_gpus", 1.0)))
    if task != "llm":
        raise ValueError(f"task {task[:40]}: known are llm, {', '.join(TASKS)}")
    prompt, answer = _number(row, "isl"), _number(row, "osl")
    found = predict(deployment_of(row), load_of(row), prompt, answer)
    return replace(
        found,
        ttft_ms=found.ttft_ms.at_median() if states_median(row, "ttft") else found.ttft_ms,
        tpot_ms=found.tpot_ms.at_median() if found.tpot_ms and states_median(row, "tpot") else found.tpot_ms,
        e2e_ms=found.e2e_ms.at_median() if states_median(row, "e2e") else found.e2e_ms,
    )


def states_median(row: Row, metric: str) -> bool:
    """Whether a row's figure is the median over requests, not their mean."""
    return row.get(f"{metric}_stat") == "p50"


def deployment_of(row: Row) -> Deployment:
    """Model, device and engine of a row; what it does not say is assumed, and an unknown model is a usual one."""
    architecture, guessed = _architecture(row)
    where = _device(row)
    weights, kv = _precision(row)
    name, version = _engine(row)
    accelerators = round(_number(row, "n_gpus", 1.0))
    settings = EngineSettings(
        engine=name,
        version=version,
        tensor_parallel_size=round(_number(row, "tp", 1.0)),
        pipeline_parallel_size=round(_number(row, "pp", 1.0)),
        data_parallel_size=round(_number(row, "dp", 1.0)),
        expert_parallel=bool(architecture.moe) and _number(row, "ep", 1.0) > 1.0,
        weight_dtype=weights,
        kv_dtype=_cache_dtype(architecture, name, version, kv),
        max_model_len=max(2, round(_number(row, "isl") + _number(row, "osl"))),
    )
    if architecture.moe and harnesses.splits_requests(row):
        ranks = settings.tensor_parallel_size
        settings = replace(settings, tensor_parallel_size=1, data_parallel_size=ranks, expert_parallel=ranks > 1)
    usual = engine_defaults(settings, where)
    settings = replace(
        settings,
        memory_fraction=usual.memory_fraction,
        max_num_seqs=harnesses.stated(row, "max_num_seqs", usual.max_num_seqs),
        max_num_batched_tokens=harnesses.batched_tokens(row, name, usual.max_num_batched_tokens),
        block_size_tokens=usual.block_size_tokens,
    )
    if not row.get("tp"):
        settings = _roomy(architecture, where, settings, accelerators)
    return Deployment(architecture, where, settings, accelerators, guessed)


def load_of(row: Row) -> Load:
    """The load of a row; what is known of its source's harness is taken into account."""
    kind = row["load"]
    if kind not in get_args(LoadKind):
        raise ValueError(f"unknown load {kind[:40]!r}")
    common = Load(
        kind,  # type: ignore[arg-type]
        shortest_share=harnesses.shortest_share(row),
        cached_tokens=harnesses.cached_tokens(row),
        waiting_steps=harnesses.waiting_steps(row, *_engine(row)),
    )
    if kind == "open":
        audited = harnesses.is_audited(row)
        return replace(
            common,
            rate_per_s=_number(row, "request_rate"),
            sent=harnesses.requests_sent(row),
            lasts_s=harnesses.AUDITED_S if audited else common.lasts_s,
            sustained=audited,
        )
    if kind == "saturated":
        return common
    given = row.get("concurrency_or_batch") or row.get("request_rate", "")
    return replace(common, requests=_number({"requests": given}, "requests"))


def table(found: Iterable[Predicted]) -> str:
    """The CSV text of predictions, columns COLUMNS."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(record(row, prediction, reason) for row, prediction, reason in found)
    return text.getvalue()


def record(row: Row, prediction: Prediction | StagePrediction | None, reason: str) -> dict[str, str]:
    """One line of the table, by column."""
    line = {"id": row["id"], "error": reason}
    if prediction is None:
        return line
    for name, field in _METRICS.items():
        metric: Metric | None = getattr(prediction, field, None)
        if metric is not None:
            line |= _columns(f"pred_{name}", metric)
    return line | {"provenance": prediction.provenance, "cell": prediction.cell}


def _columns(name: str, metric: Metric) -> dict[str, str]:
    found = {name: metric.mean, f"{name}_low": metric.low, f"{name}_high": metric.high}
    if f"{name}_high95" in COLUMNS:
        found[f"{name}_high95"] = metric.high95
    return {column: f"{value:.6g}" for column, value in found.items()}


def _number(row: Row, column: str, blank: float | None = None) -> float:
    """The positive number of a column; `blank` where it is empty. Raises ValueError."""
    text = row.get(column, "")
    if not text and blank is not None:
        return blank
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{column} is {text[:40]!r}")
    return value


def _architecture(row: Row) -> tuple[Architecture, bool]:
    """The model, and whether it is only one of that size."""
    try:
        return resolve_model(row["model"]), False
    except (BadInputError, KeyError):
        if not row.get("params_b"):
            raise
    total = _number(row, "params_b") * 1e9
    return usual_decoder(total, _number(row, "active_params_b", total / 1e9) * 1e9), True


def _device(row: Row) -> Device:
    """A partition that is given by its memory is the smallest profile with it."""
    found = resolve_device(row["hw"], _NAMESPACE) or resolve_device(row["hw"])
    if found is None:
        name = resolve_accelerator(row["hw"], _NAMESPACE) or resolve_accelerator(row["hw"])
        if name is None:
            raise ValueError(f"unknown accelerator {row['hw'][:60]!r}")
        memory = split_partition(row["hw"], _NAMESPACE)[1].lower()
        shapes = geometry(name)
        same = [p for p in (shapes.profiles if shapes else ()) if p.name.partition(".")[2] == memory]
        if not same:
            raise ValueError(f"unknown partition of {name}: {memory[:40]!r}")
        found = name, min(same, key=lambda p: p.sm_count).name
    return device(*found) if found[1] != WHOLE else device(found[0])


def _precision(row: Row) -> tuple[Dtype, str]:
    weights, _, kv = row.get("precision", "").lower().partition("/")
    dtype = _DTYPES.get(weights, weights)
    if dtype not in get_args(Dtype):
        raise ValueError(f"unknown precision {weights[:40]!r}")
    return dtype, kv  # type: ignore[return-value]


def _cache_dtype(architecture: Architecture, engine: str, version: str, kv: str) -> KvDtype:
    """`auto` is what the engine makes of the checkpoint."""
    asked = "fp8" if kv.startswith("fp8") else "" if kv == "auto" and engine in engines() else "bf16"
    return cast("KvDtype", cache_dtype(architecture, engine, version, "bf16", asked) if engine in engines() else asked)


def _engine(row: Row) -> tuple[str, str]:
    """Name in the catalogue (an unknown one as it is) and a version number, empty for the newest.

    `1cat-vllm` and `tensorrt-llm+triton` are variants of an engine; a version by its year becomes that year's release.
    """
    given = (row.get("engine") or "vllm").lower()
    parts = [part for part in re.split(r"[+/ ]|-(?=vllm)", given) if part]
    name = next((_ENGINES.get(part, part) for part in parts if _ENGINES.get(part, part) in engines()), given)
    text = row.get("engine_version", "").lower()
    if text.startswith("tensorrt 10"):
        return name, _TUNED
    if "mlperf" in text:
        return name, ""
    year = re.search(r"\b20(\d\d)\b", text)
    if year and not re.search(r"nightly|\d+\.\d+\.\d+", text):
        return name, _RELEASES.get((name, 2000 + int(year[1])), "")
    match = re.search(rf"{re.escape(name)}[ -]v?(\d+\.\d+[.\w]*)", text) or re.match(r"v?(\d+\.\d+[.\w]*)", text)
    return name, match[1] if match else ""


def _roomy(architecture: Architecture, where: Device, settings: EngineSettings, accelerators: int) -> EngineSettings:
    """The smallest tensor parallel size within a server whose weights leave room for a cache."""
    sizes = [size for size in (1, 2, 4, 8) if accelerators % size == 0] or [1]
    found = settings
    for size in sizes:
        found = replace(settings, tensor_parallel_size=size)
        if rank_weights_bytes(architecture, found) <= _ROOM_FOR_CACHE * where.memory_bytes:
            break
    return found
