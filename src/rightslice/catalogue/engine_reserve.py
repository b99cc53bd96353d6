"""How SGLang chooses the share of a device for weights and cache: what is left beside a reserve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rightslice.catalogue.hardware import Device
from rightslice.catalogue.versions import Era, VersionKey, era_of, eras, version_key
from rightslice.core.engine import EngineSettings

_MIB = 2**20
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Reserve:
    """The rule of versions from `since` on; see `reserve` in `engines.json` for each figure.

    `graph_sequences`: most sequences of a captured step, [below, from] `wide_tensor` tensor-parallel ranks.
    """

    since: VersionKey
    fixed_mib: float
    step_token_mib: float
    least_step_tokens: int
    unchunked_step_tokens: int
    graph_sequence_mib: float
    rank_mib: float
    replica_graph_sequence_mib: float
    many_graph_sequences: int
    many_replica_graph_sequence_mib: float
    large_device_gib: float
    large_device_mib: float
    drafting_mib: Mapping[str, float]
    wide_tensor: int
    graph_sequences: tuple[Era, ...]

    def share(
        self,
        version: str,
        device: Device,
        settings: EngineSettings,
        attention_ranks: int = 1,
        graph_sequences: int | None = None,
    ) -> float | None:
        """Share of the device for weights and cache, to three digits; None for versions before the rule.

        memory - (512 + 1.5 max(step, 2048) + 2 graphs + 128 tp pp + DP attention: (3, above 300 graphs 4.5) graphs dp)
        MiB, the reserve at least 10,240 MiB on devices above 60 GiB, drafting on top (SGLang: server_args.py).
        `attention_ranks`: tensor-parallel ranks for one of `settings`, which DP attention divides by;
        `graph_sequences`: --cuda-graph-max-bs.
        """
        if version_key(version) < self.since:
            return None
        tensor = settings.tensor_parallel_size * attention_ranks
        memory_gib = device.memory_bytes / _GIB
        graphs = graph_sequences or self._graphs(version, device, tensor)
        step = settings.max_num_batched_tokens if settings.chunked_prefill else self.unchunked_step_tokens
        reserved = self.fixed_mib + self.step_token_mib * max(step, self.least_step_tokens)
        reserved += self.graph_sequence_mib * graphs + self.rank_mib * tensor * settings.pipeline_parallel_size
        if attention_ranks > 1:
            many = self.many_replica_graph_sequence_mib if graphs > self.many_graph_sequences else 0.0
            reserved += (self.replica_graph_sequence_mib + many) * graphs * attention_ranks
        if memory_gib > self.large_device_gib:
            reserved = max(reserved, self.large_device_mib)
        if settings.speculative_method:
            reserved += self.drafting_mib.get(settings.speculative_method, self.drafting_mib[""])
        return round(1.0 - reserved * _MIB / device.memory_bytes, 3)

    def _graphs(self, version: str, device: Device, tensor: int) -> int:
        tiers = era_of(self.graph_sequences, version).tiers
        narrow, wide = next(t.value for t in tiers if t.holds(device.memory_bytes / _GIB, device.name.lower()))
        return int(wide if tensor >= self.wide_tensor else narrow)


def reserve_of(row: Mapping[str, Any] | None) -> Reserve | None:
    """The rule in a row of `engines.json`, or None where there is none."""
    if row is None:
        return None
    figures = {key: value for key, value in row.items() if key not in ("from", "graph_sequences", "source")}
    return Reserve(since=version_key(row["from"]), graph_sequences=eras(row["graph_sequences"]), **figures)
