"""Runs inside the oracle's environment: vLLM's V1 scheduler over many workloads, without a model, as JSON.

    python ask_scheduler.py WORKLOADS.json ANSWERS.json

The scheduler and its KV-cache manager are vLLM's own. What stands in for the engine around them: a clock in whole
picoseconds that each step advances by the workload's step-time law, and a model that answers every request with tokens
of its own. A request of a workload is [arrival ps, prompt tokens, answer tokens, priority (higher first), ids of the
blocks that the prompt starts with]; equal ids become equal tokens. Asynchronous scheduling is off.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from ask_vllm import prepare

_MODEL = {
    "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 16, "ffn_dim": 16, "num_hidden_layers": 1,
    "num_attention_heads": 1, "vocab_size": 64, "max_position_embeddings": 65536, "word_embed_proj_dim": 16,
}  # fmt: skip


def _config(folder: str) -> Any:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()  # the stand-ins of `prepare` are in this process only
    (Path(folder) / "config.json").write_text(json.dumps(_MODEL))
    return EngineArgs(
        model=folder, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, async_scheduling=False
    ).create_engine_config()


def _scheduler(config: Any, workload: dict[str, Any]) -> Any:
    """vLLM's scheduler with the workload's limits; the first block of its cache is never handed out."""
    import torch
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    block, limits = workload["block_size"], config.scheduler_config
    limits.max_num_seqs = workload["max_num_seqs"]
    limits.max_num_batched_tokens = workload["max_num_batched_tokens"]
    limits.enable_chunked_prefill = workload["chunked_prefill"]
    limits.policy = workload["policy"]
    config.model_config.max_model_len = workload["max_model_len"]
    config.cache_config.block_size = block
    config.cache_config.num_gpu_blocks = workload["kv_blocks"] + 1
    config.cache_config.enable_prefix_caching = workload["prefix_caching"]
    layer = FullAttentionSpec(block_size=block, num_kv_heads=1, head_size=1, dtype=torch.bfloat16)
    cache = KVCacheConfig(workload["kv_blocks"] + 1, [], [KVCacheGroupSpec(["layer"], layer)])
    return Scheduler(config, cache, StructuredOutputManager(config), block, include_finished_set=True)


def _request(number: int, asked: list[Any], block: int, known: int) -> Any:
    """Equal ids, equal `known` tokens; every other token is the request's own."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    _, prompt, answer, priority, ids = asked
    tokens = [10**6 * (1 + i) + at for i in ids for at in range(known)][:prompt]
    tokens += [_own_token(number, at) for at in range(len(tokens), prompt)]
    asked_for = SamplingParams(max_tokens=answer, ignore_eos=True, temperature=0.0)
    hasher = get_request_block_hasher(block, sha256)
    # no two requests come at the same time: their number is their time
    return Request(
        str(number), tokens, asked_for, None, arrival_time=float(number), priority=-priority, block_hasher=hasher
    )


def _own_token(number: int, at: int) -> int:
    return -(10**6 * (1 + number) + at)


class _Engine:
    """The loop around the scheduler: one step after the other."""

    def __init__(self, config: Any, workload: dict[str, Any]) -> None:
        self.scheduler = _scheduler(config, workload)
        self.costs = workload["costs"]
        self.block, self.id_blocks = workload["block_size"], workload["id_blocks"]
        self.coming = list(enumerate(workload["requests"]))
        self.decoding: set[str] = set()
        self.now = 0

    def play(self) -> list[list[Any]]:
        """[tokens by request in order, preempted, finished, end of the step], iteration by iteration."""
        records = []
        while self.coming or self.scheduler.has_unfinished_requests():
            if not self.scheduler.has_unfinished_requests():
                self.now = max(self.now, self.coming[0][1][0])
            while self.coming and self.coming[0][1][0] <= self.now:
                number, asked = self.coming.pop(0)
                self.scheduler.add_request(_request(number, asked, self.block, self.block * self.id_blocks))
            records.append(self.step())
        return records

    def step(self) -> list[Any]:
        from vllm.v1.outputs import ModelRunnerOutput

        plan = self.scheduler.schedule()
        tokens = plan.num_scheduled_tokens
        preempted = sorted(plan.preempted_req_ids or (), key=int)
        self.decoding.difference_update(preempted)
        self.now += self.step_time_ps(tokens)
        sampled = []
        for name in tokens:
            request = self.scheduler.requests[name]
            done = request.num_computed_tokens >= request.num_tokens
            sampled.append([_own_token(int(name), request.num_tokens)] if done else [])
            if done:
                self.decoding.add(name)
        output = ModelRunnerOutput(list(tokens), {name: at for at, name in enumerate(tokens)}, sampled)
        self.scheduler.update_from_output(plan, output)
        finished = [name for name in tokens if name not in self.scheduler.requests]
        self.decoding.difference_update(finished)
        return [[[int(n), t] for n, t in tokens.items()], [int(n) for n in preempted], [int(n) for n in finished]]

    def step_time_ps(self, tokens: dict[str, int]) -> int:
        """The law of rightslice.performance.costs.StepCosts.step_time_ps, at least a picosecond."""
        law, decodes = self.costs, [name for name in tokens if name in self.decoding]
        context = sum(self.scheduler.requests[name].num_computed_tokens for name in decodes)
        work = prefill = 0
        for name, chunk in tokens.items():
            if name not in self.decoding:
                past = self.scheduler.requests[name].num_computed_tokens - chunk
                prefill += chunk
                work += chunk * past + chunk * (chunk + 1) // 2
        total = law["step_ps"] + law["tokens_ps"] * (prefill + len(decodes)) + law["sequence_ps"] * len(decodes)
        total += law["kv_token_ps"] * context + law["attention_ps"] * work
        return max(1, int(total + (law["prefill_step_ps"] if prefill else 0)))


def main(workloads: str, answers: str) -> None:
    found: dict[str, Any] = {"vllm": prepare(), "workloads": []}
    from vllm.config import set_current_vllm_config
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash

    init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as folder:
        config = _config(folder)
        with set_current_vllm_config(config):
            for workload in json.loads(Path(workloads).read_text()):
                found["workloads"].append(_Engine(config, workload).play())
                if len(found["workloads"]) % 50 == 0:
                    print(len(found["workloads"]), "workloads", file=sys.stderr, flush=True)
    Path(answers).write_text(json.dumps(found, separators=(",", ":")))


if __name__ == "__main__":
    main(*sys.argv[1:])
