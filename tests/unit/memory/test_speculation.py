"""What drafts tokens takes memory: prediction layers of the checkpoint, or a model of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rightslice.catalogue.accelerators import device
from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.architectures.assemble import read_architecture
from rightslice.catalogue.models import resolve_model
from rightslice.core.engine import EngineSettings
from rightslice.core.errors import BadInputError
from rightslice.memory.cache import rank_sequence_bytes
from rightslice.memory.footprint import footprint
from rightslice.memory.speculation import lookahead_tokens, methods
from rightslice.memory.startup import StartupReport, startup
from rightslice.memory.weights import rank_weights_bytes, weights_bytes

H200 = device("H200-SXM-141GB")
V3 = "deepseek-ai/DeepSeek-V3"


def settings(model: Architecture, method: str = "", tokens: int = 0, **changes: Any) -> EngineSettings:
    base = EngineSettings(weight_dtype=model.published_dtype, max_model_len=4096)  # type: ignore[arg-type]
    return replace(base, speculative_method=method, speculative_tokens=tokens, **changes)


def test_the_published_checkpoint_is_the_model_with_its_prediction_layer_and_copies_of_both_ends() -> None:
    """688.59 GB published, 673.15 GB without: embedding and head stand in it twice."""
    v3 = resolve_model(V3)
    assert v3.predictor is not None
    ends = sum(g.published_bytes for g in v3.weights if g.part in ("embedding", "head"))
    total = v3.published_weights_bytes + v3.predictor.published_weights_bytes + ends
    assert total / 1e9 == pytest.approx(688.59, abs=0.03)
    assert v3.published_weights_bytes / 1e9 == pytest.approx(673.15, abs=0.01)


@pytest.mark.parametrize(
    ("model", "layers", "cache_elements"),
    [
        (V3, 1, 576),
        ("zai-org/GLM-5", 1, 576),
        ("XiaomiMiMo/MiMo-7B-Base", 1, 2048),
        ("Qwen/Qwen3.5-397B-A17B", 1, 1024),
        ("MiniMaxAI/MiniMax-M2.7", 3, 2048),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 1, 512),
    ],
)
def test_prediction_layers_under_all_their_names(model: str, layers: int, cache_elements: int) -> None:
    predictor = resolve_model(model).predictor
    assert predictor is not None
    assert predictor.layers == layers
    assert {g.kv_elements_per_token for g in predictor.attention} == {cache_elements}


def test_models_without_prediction_layers_have_none() -> None:
    assert resolve_model("moonshotai/Kimi-K2-Instruct").predictor is None
    assert resolve_model("Llama-3.1-8B").predictor is None


def test_prediction_layers_count_only_when_they_draft() -> None:
    v3 = resolve_model(V3)
    tensor: dict[str, Any] = {"tensor_parallel_size": 8}
    plain, ngram, mtp = (settings(v3, method, 1 if method else 0, **tensor) for method in ("", "ngram", "mtp"))
    assert rank_weights_bytes(v3, plain) == rank_weights_bytes(v3, ngram)
    added = rank_weights_bytes(v3, mtp) - rank_weights_bytes(v3, plain)
    assert 11.7e9 / 8 < added < 11.7e9 / 8 + 0.4e9
    assert rank_sequence_bytes(v3, 1000, mtp) == pytest.approx(rank_sequence_bytes(v3, 1000, plain) * 62 / 61)
    held = [footprint(v3, H200, s, typical_tokens=1024).max_sequences for s in (plain, ngram, mtp)]
    assert held[0] == held[1] > held[2]
    assert [lookahead_tokens(s) for s in (plain, ngram, mtp)] == [0, 0, 2]


def test_look_ahead_slots_take_whole_blocks() -> None:
    v3 = resolve_model(V3)
    one, more = (settings(v3, "mtp", tokens, tensor_parallel_size=8) for tokens in (3, 17))
    held = [footprint(v3, H200, s, typical_tokens=1020).kv_bytes_per_sequence for s in (one, more)]
    assert held[1] - held[0] == 16 * 576 * 2 * 62  # 1,024 and 1,038 tokens: 64 and 65 blocks of 16


def test_a_draft_model_stands_whole_in_every_stage_and_keeps_the_same_tokens() -> None:
    llama, small = resolve_model("meta-llama/Meta-Llama-3.1-70B"), resolve_model("meta-llama/Llama-3.2-3B")
    model = replace(llama, draft=small)
    two: dict[str, Any] = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}
    plain, drafted = settings(model, **two), settings(model, "draft_model", 4, **two)
    added = rank_weights_bytes(model, drafted) - rank_weights_bytes(model, plain)
    assert added == rank_weights_bytes(small, settings(small, tensor_parallel_size=4))
    more = rank_sequence_bytes(model, 1000, drafted) - rank_sequence_bytes(model, 1000, plain)
    assert more == 1000 * small.cache_elements_per_token() * 2 / 4
    assert weights_bytes(model) == weights_bytes(llama)


def report(configuration: object, model: str = V3) -> StartupReport:
    text = configuration if isinstance(configuration, str) else json.dumps(configuration)
    arguments = f"-tp 8 --max-model-len 16384 --speculative-config '{text}'"
    return startup(resolve_model(model), H200, arguments=arguments)


def test_an_engine_is_asked_with_its_own_arguments() -> None:
    ngram = report({"method": "ngram", "num_speculative_tokens": 3})
    mtp = report({"method": "mtp", "num_speculative_tokens": 1})
    draft = report({"model": "meta-llama/Llama-3.2-3B", "num_speculative_tokens": 3})
    assert ngram.kv_cache_bytes > draft.kv_cache_bytes > mtp.kv_cache_bytes
    assert draft.kv_bytes_needed > mtp.kv_bytes_needed > ngram.kv_bytes_needed
    assert ngram.not_considered == mtp.not_considered == ()


@pytest.mark.parametrize(
    ("configuration", "model", "reason"),
    [
        ({"method": "ngramm", "num_speculative_tokens": 1}, V3, "did you mean ngram"),
        ({"method": "mtp", "num_speculative_tokens": 1}, "Llama-3.1-8B", "no multi-token-prediction layers"),
        ({"method": "eagle3", "num_speculative_tokens": 1}, V3, "needs a draft model"),
    ],
)
def test_what_cannot_draft_is_refused(configuration: dict[str, object], model: str, reason: str) -> None:
    found = report(configuration, model)
    assert found.verdict == "refused"
    assert reason in found.reason


@pytest.mark.parametrize(
    "configuration",
    ["", "[]", "{", {}, {"method": 3, "num_speculative_tokens": 1}, {"method": "mtp"},
     {"method": "mtp", "num_speculative_tokens": 0}, {"method": "mtp", "num_speculative_tokens": True}],
)  # fmt: skip
def test_configurations_that_make_no_sense(configuration: object) -> None:
    with pytest.raises(BadInputError, match="speculative-config") as caught:
        report(configuration)
    assert caught.value.code == "RS0501"


def test_methods_are_those_of_the_engine() -> None:
    assert methods("vllm")["mtp"] == methods("vllm")["deepseek_mtp"] == methods("sglang")["nextn"] == "own"
    assert methods("nosuch") == {}


def test_a_number_of_layers_that_is_absurd_is_refused() -> None:
    raw: dict[str, Any] = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    raw |= {"intermediate_size": 64, "vocab_size": 99}
    with pytest.raises(BadInputError, match="num_nextn_predict_layers"):
        read_architecture({**raw, "num_nextn_predict_layers": 10**6}, "absurd")


EAGLE3: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "torch_dtype": "float16",
}


def test_an_eagle_3_head_borrows_the_embedding_and_reads_three_hidden_states() -> None:
    """The published head of Llama 3.1 8B is a file of 849 MB."""
    head = read_architecture(EAGLE3, "head")
    assert head.published_weights_bytes / 1e6 == pytest.approx(849.4, abs=0.1)
    assert sum(group.kv_elements_per_token for group in head.attention) == 2 * 8 * 128


def test_an_eagle_3_head_that_is_not_known_is_the_usual_one_of_its_target_and_said_to_be() -> None:
    line = (
        "--speculative-config '" + json.dumps({"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}) + "'"
    )
    found = startup(resolve_model("meta-llama/Llama-3.1-8B-Instruct"), device("H100-SXM-80GB"), arguments=line)
    alone = startup(resolve_model("meta-llama/Llama-3.1-8B-Instruct"), device("H100-SXM-80GB"))
    assert any("draft a/b is not known" in note for note in found.notes)
    assert found.kv_tokens is not None
    assert alone.kv_tokens is not None
    assert found.kv_tokens < alone.kv_tokens
    other = line.replace("eagle3", "draft_model")
    with pytest.raises(BadInputError, match="unknown model"):
        startup(resolve_model("meta-llama/Llama-3.1-8B-Instruct"), device("H100-SXM-80GB"), arguments=other)


def test_quotes_that_the_shell_took_are_told() -> None:
    with pytest.raises(BadInputError) as caught:
        startup(
            resolve_model("meta-llama/Llama-3.1-8B-Instruct"),
            device("H100-SXM-80GB"),
            arguments="--speculative-config {method:mtp,num_speculative_tokens:1}",
        )
    assert "the shell took its quotes" in caught.value.hint
