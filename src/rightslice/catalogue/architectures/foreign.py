"""JSON files that stand beside a model, or belong to something else, told by their keys."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rightslice.catalogue.architectures.config import ALIASES, Object
from rightslice.core.errors import BadInputError, Diagnostic, Location

_ADAPTER: Final = "size the base model; adapter slots count with --engine-args '--enable-lora --max-lora-rank R'"
_CONFIG: Final = "give the config.json of the model"
_Marks = tuple[tuple[tuple[str, ...], str, str], ...]
_DECISIVE: Final[_Marks] = (
    (("peft_type",), "a PEFT adapter", _ADAPTER),
    (("_diffusers_version",), "a diffusion pipeline or a part of one", "give its memory as a custom model"),
    (("weight_map",), "an index of weight files", _CONFIG),
)
_WITHOUT_SIZES: Final[_Marks] = (
    (("tokenizer_class", "added_tokens", "added_tokens_decoder", "truncation"), "a tokenizer", _CONFIG),
    (("image_processor_type", "feature_extractor_type", "processor_class", "do_resize"), "a preprocessor", _CONFIG),
    (("do_sample", "temperature", "_from_model_config"), "settings of generation", _CONFIG),
    (("base_model_name_or_path", "lora_alpha"), "an adapter", _ADAPTER),
    (("_class_name",), "a part of a diffusion pipeline", "give its memory as a custom model"),
    (("__version__", "similarity_fn_name", "pooling_mode_mean_tokens"), "settings of sentence-transformers", _CONFIG),
    (("quantization", "producer"), "a description of a quantisation", _CONFIG),
)
"""Keys of which one is enough; the second list counts only where the file gives no size of a network."""
_FILES: Final = (
    ("adapter_config.json", "a PEFT adapter", _ADAPTER),
    ("model_index.json", "a diffusion pipeline", "give its memory as a custom model"),
    ("params.json", "a model in Mistral's own format", "give the folder in the format of Transformers"),
    ("tokenizer.json", "a tokenizer", "give a model's folder"),
)


def refuse_foreign(raw: Object, where: str) -> None:
    """Raises BadInputError RS2007 for a file that is known to describe something other than a model."""
    for keys, what, hint in _DECISIVE:
        if any(key in raw for key in keys):
            raise _error(f"this is {what}{_base(raw)}, not the configuration of a model", where, hint)
    sizes = (*ALIASES["hidden"], *ALIASES["layers"], "model_type", "architectures")
    if any(key in raw for key in sizes) or any(key.endswith("_config") for key in raw):
        return
    for keys, what, hint in _WITHOUT_SIZES:
        if any(key in raw for key in keys):
            raise _error(f"this is {what}{_base(raw)}, not the configuration of a model", where, hint)


def empty_folder(folder: Path) -> BadInputError:
    """The error about a folder without config.json: names what it holds instead. RS0401."""
    for name, what, hint in _FILES:
        if (folder / name).is_file():
            message = f"the folder has no config.json: its {name} is that of {what}"
            return BadInputError(Diagnostic("RS0401", message, Location(str(folder)), hint))
    if next(folder.glob("*.gguf"), None) is not None:
        hint = "give the original model with --dtype int4 or int8"
        return BadInputError(
            Diagnostic("RS0401", "the folder has GGUF files and no config.json", Location(str(folder)), hint)
        )
    return BadInputError(
        Diagnostic("RS0401", "the folder has no config.json", Location(str(folder)), "give a model's folder")
    )


def _base(raw: Object) -> str:
    base = raw.get("base_model_name_or_path")
    return f" of {base[:80]}" if isinstance(base, str) and base else ""


def _error(message: str, where: str, hint: str) -> BadInputError:
    return BadInputError(Diagnostic("RS2007", message, Location(where), hint))
