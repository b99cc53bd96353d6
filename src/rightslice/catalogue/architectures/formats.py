"""How one weight is stored: bits per element and what its scales take.

Bytes per format: block FP8 1 B + a 4-byte scale per block; FP8 per tensor 1 B, per channel + 2 B a row; NVFP4 1/2 B +
1/16 B; MXFP4 1/2 B + 1/32 B; AWQ and GPTQ packed bits, a 2-byte scale and a packed zero per group (GPTQ also 4 B per
input channel); compressed-tensors integers packed bits and a 2-byte scale per group or channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rightslice.catalogue.architectures.config import Json, Object
from rightslice.catalogue.architectures.weights import Weight
from rightslice.core.errors import BadInputError, Diagnostic, Location, did_you_mean

DTYPE_BYTES: Final[dict[str, float]] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int4": 0.5}
_DTYPES: Final[dict[str, str]] = {
    "float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16",
    "bf16": "bf16", "fp32": "fp32", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "auto": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Format:
    """`bits` per element; a scale of `scale_bytes` per block of `rows` x `columns` (0 = the whole side)."""

    name: str
    bits: float
    scale_bytes: float = 0.0
    rows: int = 0
    columns: int = 0
    column_bytes: float = 0.0
    matrix_bytes: float = 0.0

    def bytes_of(self, weight: Weight) -> float:
        """Stored bytes of the matrices of `weight`, scales included, biases apart."""
        elements = weight.matrix_elements * self.bits / 8
        high = -(-weight.rows // self.rows) if self.rows else 1
        wide = -(-weight.columns // self.columns) if self.columns else 1
        each = high * wide * self.scale_bytes + weight.columns * self.column_bytes + self.matrix_bytes
        return elements + weight.copies * each


FP8_BLOCK: Final = Format("fp8", 8, 4, 128, 128)
FP8_TENSOR: Final = Format("fp8", 8, 4)
FP8_CHANNEL: Final = Format("fp8", 8, 2, rows=1)
NVFP4: Final = Format("nvfp4", 4, 1, rows=1, columns=16)
MXFP4: Final = Format("mxfp4", 4, 1, rows=1, columns=32)
MXFP6: Final = Format("fp8", 6, 1, rows=1, columns=32)
MXFP8: Final = Format("fp8", 8, 1, rows=1, columns=32)
INT8_CHANNEL: Final = Format("int8", 8, 4, rows=1)


def integer(bits: float, group: int, *, zero: bool, index: bool = False) -> Format:
    """Group-wise integers: a 2-byte scale, a packed zero point, and GPTQ's 4-byte group index per input channel."""
    return Format(_integer_name(bits), bits, 2 + (bits / 8 if zero else 0), 1, group, 4.0 if index else 0.0)


def affine(bits: float, group: int) -> Format:
    """Group-wise integers with a scale and a zero point of 16 bit each (HQQ, MLX, torchao)."""
    return Format(_integer_name(bits), bits, 4, 1, group)


def _integer_name(bits: float) -> str:
    """The nearest format of the catalogue that is no narrower."""
    return "int4" if bits <= 4 else "int8"


def _parts(raw: Object) -> Iterator[Object]:
    """The configuration and its language models inside each other, from the outside in."""
    part: Json = raw
    for _ in range(_DEPTH):
        if not isinstance(part, Mapping):
            return
        yield part
        part = next((part[key] for key in ("text_config", "llm_config", "thinker_config") if key in part), None)


_DEPTH: Final = 5


def base_dtype(raw: Object, where: str = "") -> str:
    """The dtype of unquantised weights: `dtype` or `torch_dtype`, outside or in the text part; empty when not said.

    Raises BadInputError RS2007 for one that no engine serves.
    """
    for part in _parts(raw):
        for key in ("dtype", "torch_dtype"):
            value = part.get(key)
            if value is None:
                continue
            word = value.removeprefix("torch.") if isinstance(value, str) else ""
            if word not in _DTYPES:
                message = f"{key} {str(value)[:40]!r} is no type that weights are served in"
                hint = did_you_mean(word, _DTYPES) or "float32, bfloat16 or float16"
                raise BadInputError(Diagnostic("RS2007", message, Location(where), hint))
            if _DTYPES[word]:
                return _DTYPES[word]
    return ""
