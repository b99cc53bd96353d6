"""The recorded formats that are read, told apart by their first line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

TimeUnit = Literal["seconds", "milliseconds", "timestamp"]
Role = Literal["model", "class", "session", "priority", "blocks"]


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One format: names of its columns or keys.

    `from_first`: its clock starts anywhere, so times count from the first request. `skips_empty`: rows without input
    or output tokens stand for failed calls and are left out, counted; elsewhere they are mistakes. `block_tokens`: size
    of its prefix blocks as published.
    """

    name: str
    title: str
    time: str
    time_unit: TimeUnit
    input_tokens: str
    output_tokens: str
    optional: Mapping[Role, str] = field(default_factory=dict)
    from_first: bool = False
    skips_empty: bool = False
    block_tokens: int = 512

    @property
    def required(self) -> tuple[str, str, str]:
        """Columns that must be there."""
        return (self.time, self.input_tokens, self.output_tokens)


_OWN: Final[dict[Role, str]] = {
    "model": "model", "class": "class", "session": "session", "priority": "priority", "blocks": "hash_ids",
}  # fmt: skip

TABLES: Final = (
    TraceFormat("csv", "requests as CSV", "t_s", "seconds", "input_tokens", "output_tokens", _OWN),
    TraceFormat(
        "csv-ms",
        "requests as CSV, time in ms",
        "t_ms",
        "milliseconds",
        "input_tokens",
        "output_tokens",
        {**_OWN, "blocks": "prefix_block_ids"},
    ),
    TraceFormat(
        "azure",
        "Azure LLM inference trace",
        "TIMESTAMP",
        "timestamp",
        "ContextTokens",
        "GeneratedTokens",
        from_first=True,
        skips_empty=True,
    ),
    TraceFormat(
        "burstgpt",
        "BurstGPT",
        "Timestamp",
        "seconds",
        "Request tokens",
        "Response tokens",
        {"model": "Model", "class": "Log Type", "session": "Session ID"},
        from_first=True,
        skips_empty=True,
    ),
)
"""CSV with a header. BurstGPT says of its rows with 0 response tokens that those calls failed."""

BAILIAN: Final = TraceFormat(
    "bailian",
    "Qwen-Bailian usage trace",
    "timestamp",
    "seconds",
    "input_length",
    "output_length",
    {"class": "type", "session": "chat_id", "blocks": "hash_ids"},
    skips_empty=True,
    block_tokens=16,
)
MOONCAKE: Final = TraceFormat(
    "mooncake",
    "Mooncake trace",
    "timestamp",
    "milliseconds",
    "input_length",
    "output_length",
    {"blocks": "hash_ids"},
    skips_empty=True,
)
PARENT: Final = "parent_chat_id"
"""Bailian: the chat that a turn continues; -1 starts a conversation."""

KNOWN: Final = (
    "a header t_s,input_tokens,output_tokens, Azure's TIMESTAMP,ContextTokens,GeneratedTokens or BurstGPT's "
    "Timestamp,…,Request tokens,Response tokens; or JSON lines of Mooncake or Qwen-Bailian"
)


def table_format(names: list[str]) -> TraceFormat | None:
    """The CSV format with these column names."""
    for candidate in TABLES:
        if all(name in names for name in candidate.required):
            return candidate
    return None


def json_format(first_line: str) -> TraceFormat | None:
    """The JSON lines format of which this is a line; None when it is none, or not JSON."""
    try:
        keys = json.loads(first_line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(keys, dict) or not all(key in keys for key in MOONCAKE.required):
        return None
    return BAILIAN if PARENT in keys and "chat_id" in keys else MOONCAKE
