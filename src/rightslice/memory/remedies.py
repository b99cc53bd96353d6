"""Which arguments, appended to a command line, make the engine start: tried until one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from rightslice.catalogue.architecture import Architecture
from rightslice.catalogue.engine_arguments import EngineArguments
from rightslice.catalogue.engines import EngineDefaults
from rightslice.catalogue.hardware import WHOLE, Device
from rightslice.core.engine import EngineSettings
from rightslice.memory.arguments import CommandLine
from rightslice.memory.legality import legal_parallelism, legal_sizes
from rightslice.memory.overheads import UNSURE_BYTES, rank_step_tokens
from rightslice.memory.problems import Problem, Remedy
from rightslice.memory.reservation import cache_plan
from rightslice.memory.room import fits, longest_tokens, room_bytes

Verdict = Literal["starts", "does_not_start", "refused", "uncertain"]
_LEAST_STEP: Final = 512
"""Prompt tokens of one step below which lowering them further costs more than it saves: an assumption."""
_SEQUENCES: Final = (256, 64, 16)
_MOST_TENSOR: Final = 16
_ONE_MACHINE: Final = 8
_STAGES: Final = (2, 4, 8, 16)
_MOST_STEPS: Final = 5
_MOST_TRIES: Final = 40


@dataclass(frozen=True, slots=True)
class Judged:
    """A command line and its verdict. `problem` None: too little room for the cache, if it does not start.

    `architecture`: with its draft model; `defaults`: what the engine does untold; `room_bytes` and `need_bytes` are of
    one rank.
    """

    architecture: Architecture
    device: Device
    line: CommandLine
    defaults: EngineDefaults
    verdict: Verdict = "refused"
    problem: Problem | None = None
    room_bytes: int = 0
    need_bytes: int = 0
    notes: tuple[str, ...] = ()


def fix(
    judge: Callable[[str], Judged], spelling: EngineArguments, arguments: str, first: Judged, otherwise: str
) -> str:
    """Arguments in the engine's own spelling with which it starts (or, unless `first` is that, is uncertain); where
    none does, what else to do: what the problem says, or `otherwise`. Empty when nothing needs mending."""
    if first.verdict == "starts":
        return ""
    wanted: tuple[Verdict, ...] = ("starts",) if first.verdict == "uncertain" else ("starts", "uncertain")
    found = _Search(judge, spelling, wanted).found(arguments, {}, first, _MOST_STEPS)
    if found is not None:
        return _written(found)
    if first.verdict == "uncertain":
        return ""
    if first.problem is not None and first.problem.otherwise:
        return first.problem.otherwise
    return otherwise


class _Search:
    """Depth first over remedies, each judged by the command line that it makes; a problem must give way to another."""

    def __init__(self, judge: Callable[[str], Judged], spelling: EngineArguments, wanted: tuple[Verdict, ...]) -> None:
        self._judge, self._spelling, self._wanted = judge, spelling, wanted
        self._tries = _MOST_TRIES

    def found(self, arguments: str, added: dict[str, str], seen: Judged, depth: int) -> dict[str, str] | None:
        for remedy in seen.problem.remedies if seen.problem else memory_remedies(seen):
            more = self._spelled(remedy, seen.line)
            if more is None or self._tries <= 0:
                continue
            self._tries -= 1
            flags = {**added, **more}
            tried = self._judge(f"{arguments} {_written(flags)}")
            if tried.verdict in self._wanted:
                return flags
            if depth > 1 and tried.problem != seen.problem:
                deeper = self.found(arguments, flags, tried, depth - 1)
                if deeper is not None:
                    return deeper
        return None

    def _spelled(self, remedy: Remedy, line: CommandLine) -> dict[str, str] | None:
        """The remedy in the engine's names, or None when it has none of them."""
        flags: dict[str, str] = {}
        undivided = any(name == "--data-parallel-size" for name, _ in remedy)
        for name, value in remedy:
            own = self._spelling.spelled(name)
            if not own:
                return None
            ranks = 1 if undivided or name != "--tensor-parallel-size" else line.ranks_per_tensor
            flags[own] = f"{int(value) * ranks}" if ranks > 1 else value
        return flags


def _written(flags: dict[str, str]) -> str:
    return " ".join(f"{flag} {value}".rstrip() for flag, value in flags.items())


def memory_remedies(seen: Judged) -> Iterator[Remedy]:
    """What leaves enough room, best first: a smaller step where windows or other ranks multiply it, a shorter context,
    what is usual where something is not, fewer tokens or sequences at once, more devices, and both together."""
    architecture, device, settings = seen.architecture, seen.device, seen.line.settings
    steps = _smaller_steps(settings)
    if _step_is_multiplied(architecture, settings):
        for step in steps:
            if fits(architecture, device, _with_step(settings, step), UNSURE_BYTES):
                yield (("--max-num-batched-tokens", f"{step}"),)
                break
    margin = UNSURE_BYTES if seen.verdict == "uncertain" else 0
    longest = longest_tokens(architecture, device, settings, margin)
    if min(settings.block_size_tokens, settings.max_model_len) <= longest < settings.max_model_len:
        yield (("--max-model-len", f"{longest}"),)
    if settings.kv_cache_memory_bytes:
        yield from _larger_cache(architecture, device, settings)
    unusual = list(_unusual(seen))
    alone = (remedy for changes, remedy in unusual if fits(architecture, device, replace(settings, **changes)))
    yield from alone
    fewer: list[tuple[EngineSettings, Remedy]] = []
    fewer += [(_with_step(settings, step), (("--max-num-batched-tokens", f"{step}"),)) for step in steps]
    counts = (count for count in _SEQUENCES if count < settings.max_num_seqs)
    fewer += [(replace(settings, max_num_seqs=count), (("--max-num-seqs", f"{count}"),)) for count in counts]
    yield from _with_lengths(architecture, device, fewer)
    usual, remedy = _as_usual(settings, unusual)
    if unusual:
        yield from _with_length(architecture, device, usual, remedy)
    yield from _more_devices(architecture, device, settings)
    if unusual:
        yield from ((*remedy, *more) for more in _more_devices(architecture, device, usual))


def _as_usual(
    settings: EngineSettings, unusual: Sequence[tuple[dict[str, Any], Remedy]]
) -> tuple[EngineSettings, Remedy]:
    for changes, _ in unusual:
        settings = replace(settings, **changes)
    return settings, tuple(pair for _, remedy in unusual for pair in remedy)


def _unusual(seen: Judged) -> Iterator[tuple[dict[str, Any], Remedy]]:
    """Settings that leave less than the engine's own defaults would: (what to change, how to say so)."""
    settings, usual = seen.line.settings, seen.defaults
    if settings.memory_fraction < usual.memory_fraction and not settings.kv_cache_memory_bytes:
        share = (("--gpu-memory-utilization", f"{usual.memory_fraction:g}"),)
        yield {"memory_fraction": usual.memory_fraction}, share
    chunked = usual.chunked_prefill and not settings.chunked_prefill and seen.architecture.kind == "decoder"
    step = usual.max_num_batched_tokens
    if chunked:
        whole = "max_num_batched_tokens" not in seen.line.given
        changes = {"chunked_prefill": True, **({"max_num_batched_tokens": step} if whole else {})}
        yield changes, (("--enable-chunked-prefill", ""),)
    if settings.max_num_batched_tokens > step and "max_num_batched_tokens" in seen.line.given:
        yield {"max_num_batched_tokens": step}, (("--max-num-batched-tokens", f"{step}"),)
    if settings.max_num_seqs > usual.max_num_seqs:
        yield {"max_num_seqs": usual.max_num_seqs}, (("--max-num-seqs", f"{usual.max_num_seqs}"),)


def _larger_cache(architecture: Architecture, device: Device, settings: EngineSettings) -> Iterator[Remedy]:
    """All that is left beside weights and activations, instead of the size that is given."""
    left = room_bytes(architecture, device, replace(settings, kv_cache_memory_bytes=0))
    if left > settings.kv_cache_memory_bytes:
        larger = replace(settings, kv_cache_memory_bytes=left)
        yield from _with_length(architecture, device, larger, (("--kv-cache-memory-bytes", f"{left}"),))


def _smaller_steps(settings: EngineSettings) -> tuple[int, ...]:
    """That of so many ranks first, then the powers of two below the present one, largest first."""
    step = settings.max_num_batched_tokens
    least = max(_LEAST_STEP, min(settings.max_num_seqs, step))
    powers = [2**power for power in range((step - 1).bit_length() - 1, 0, -1)]
    shared = rank_step_tokens(step, settings.data_parallel_size)
    found = [shared, *powers] if settings.data_parallel_size > 1 else powers
    return tuple(dict.fromkeys(size for size in found if least <= size < step))


def _step_is_multiplied(architecture: Architecture, settings: EngineSettings) -> bool:
    """Windows keep the tokens in flight beside themselves; data-parallel ranks gather each other's for the experts."""
    if settings.data_parallel_size > 1 and architecture.moe:
        return True
    plan = cache_plan(architecture, settings)
    return plan.in_flight_tokens is not None and any(g.keeps in ("window", "chunk") for g in plan.groups)


def _with_step(settings: EngineSettings, step: int) -> EngineSettings:
    return replace(settings, max_num_batched_tokens=step, max_num_seqs=min(settings.max_num_seqs, step))


def _with_length(
    architecture: Architecture, device: Device, settings: EngineSettings, remedy: Remedy
) -> Iterator[Remedy]:
    """The remedy alone where the asked context fits then, else with the longest that does."""
    if fits(architecture, device, settings):
        yield remedy
        return
    longest = longest_tokens(architecture, device, settings)
    if longest >= settings.block_size_tokens:
        yield (*remedy, ("--max-model-len", f"{longest}"))


def _with_lengths(
    architecture: Architecture, device: Device, changed: Sequence[tuple[EngineSettings, Remedy]]
) -> Iterator[Remedy]:
    """The first remedy with which the asked context fits, then each with the longest that does."""
    alone = next((remedy for settings, remedy in changed if fits(architecture, device, settings)), None)
    if alone is not None:
        yield alone
    for settings, remedy in changed:
        yield from _with_length(architecture, device, settings, remedy)


def _more_devices(architecture: Architecture, device: Device, settings: EngineSettings) -> Iterator[Remedy]:
    """Larger tensor parallel sizes, those with which the asked context fits first; then stages of full machines."""
    if device.partition != WHOLE:
        return
    legal, asked = legal_sizes(architecture, settings), settings.tensor_parallel_size
    larger = [s for s in legal if asked < s <= _MOST_TENSOR]
    yield from _with_lengths(
        architecture,
        device,
        [(replace(settings, tensor_parallel_size=s), (("--tensor-parallel-size", f"{s}"),)) for s in larger],
    )
    widest = max(asked, *(s for s in legal if s <= _ONE_MACHINE))
    for stages in (count for count in _STAGES if count > settings.pipeline_parallel_size):
        deeper = replace(settings, tensor_parallel_size=widest, pipeline_parallel_size=stages)
        if not legal_parallelism(architecture, deeper):
            sizes = (("--tensor-parallel-size", f"{widest}"), ("--pipeline-parallel-size", f"{stages}"))
            yield from _with_length(architecture, device, deeper, sizes)
