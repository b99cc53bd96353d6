"""Sound as load tests send and receive it: WAV files, and how long they play."""

from __future__ import annotations

import io
import math
import struct
import wave
from dataclasses import dataclass
from typing import Final

import numpy as np

SAMPLES_PER_S: Final = 16_000
MAX_SECONDS: Final = 4 * 3600.0
_SYLLABLES_PER_S: Final = 4.0
_PITCH_HZ: Final = 140.0
_HARMONICS: Final = 12
_HEADER: Final = 12


@dataclass(frozen=True, slots=True)
class Recording:
    """A WAV file and the seconds that it plays."""

    data: bytes
    seconds: float


def synthetic(seconds: float, rng: np.random.Generator) -> Recording:
    """Voiced syllables of random loudness and pitch, 16 kHz mono: no words, but no silence that a server would skip."""
    count = max(round(seconds * SAMPLES_PER_S), 1)
    times = np.arange(count) / SAMPLES_PER_S
    syllable = np.minimum((times * _SYLLABLES_PER_S).astype(np.int64), int(seconds * _SYLLABLES_PER_S))
    pitch = _PITCH_HZ * rng.uniform(0.8, 1.25, int(syllable[-1]) + 1)[syllable]
    loud = rng.uniform(0.3, 1.0, int(syllable[-1]) + 1)[syllable] * np.sin(np.pi * (times * _SYLLABLES_PER_S % 1.0))
    phase = 2.0 * np.pi * np.cumsum(pitch) / SAMPLES_PER_S
    sound = sum((np.sin(k * phase) / k for k in range(1, _HARMONICS + 1)), np.zeros(count))
    samples = np.asarray(8_000.0 * loud * sound / 2.0, dtype="<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLES_PER_S)
        file.writeframes(samples.tobytes())
    return Recording(buffer.getvalue(), count / SAMPLES_PER_S)


def recorded(data: bytes) -> Recording:
    """A WAV file as it is. Raises ValueError when it is none, or plays no time or more than four hours."""
    seconds = seconds_of(data)
    if not 0.0 < seconds <= MAX_SECONDS:
        raise ValueError("no WAV file")
    return Recording(data, seconds)


def seconds_of(data: bytes | bytearray) -> float:
    """How long a WAV file plays; NaN where it is none.

    Streamed files do not know their length: the bytes that came count, not what the header promises.
    """
    if len(data) < _HEADER or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return math.nan
    at, bytes_per_s = _HEADER, 0
    while at + 8 <= len(data):
        name, size = data[at : at + 4], struct.unpack("<I", data[at + 4 : at + 8])[0]
        at += 8
        if name == b"fmt " and at + _HEADER <= len(data):
            bytes_per_s = struct.unpack("<I", data[at + 8 : at + 12])[0]
        if name == b"data":
            return min(size, len(data) - at) / bytes_per_s if bytes_per_s else math.nan
        at += size + size % 2
    return math.nan
