"""Runs inside the oracle's environment: a 33 M parameter Llama with random weights and a tokenizer of its own.

    python tiny_model.py FOLDER

The tokenizer is trained on the standard library's sources, so that nothing is downloaded.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 8192


def main(folder: Path) -> None:
    """Write model and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    sources = sorted(str(path) for path in Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    trained.train(sources, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = "{% for m in messages %}<s>{{m['role']}}: {{m['content']}}\n{% endfor %}assistant:"
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=4096, torch_dtype="bfloat16",
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    file = folder / "tokenizer_config.json"  # Transformers 5 names a class that older ones do not know
    file.write_text(json.dumps({**json.loads(file.read_text()), "tokenizer_class": "PreTrainedTokenizerFast"}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
