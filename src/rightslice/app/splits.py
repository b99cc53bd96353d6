"""The other way to split a model over as many accelerators, beside the one a plan takes."""

from __future__ import annotations

from collections.abc import Iterator

from rightslice.app.answer import Answer
from rightslice.core.plan import Rejection
from rightslice.optimization.options import Option


def other_splits(answer: Answer) -> Iterator[Rejection]:
    """For each split in use the best one of another kind on the same accelerators, by its ceiling of requests/s.

    Kinds: tensor and pipeline parallel, or replicas of the attention with experts spread.
    """
    rates = answer.found.first.rates
    for key in sorted(answer.found.proposal.counts):
        chosen = answer.question.options[key]
        others = [o for o in answer.question.options_of(chosen.model) if _differs(o, chosen)]
        best = max(others, key=lambda o: rates[o.key].requests_per_s, default=None)
        if best is None:
            continue
        mine, theirs = (rates[o.key].requests_per_s for o in (chosen, best))
        reason = (
            f"as many GPUs as {split_name(chosen)}: at most {theirs:.3g} requests/s a replica, not {mine:.3g}; "
            f"cache for {best.memory.kv_tokens:,} tokens, not {chosen.memory.kv_tokens:,}"
        )
        yield Rejection(f"{chosen.model} as {split_name(best)}", chosen.model, "RS4003", reason)


def _differs(option: Option, chosen: Option) -> bool:
    same = (option.device, option.gpus, option.engine) == (chosen.device, chosen.gpus, chosen.engine)
    return same and (option.engines > 1) != (chosen.engines > 1)


def split_name(option: Option) -> str:
    """`TP 8 x PP 2` or `DP 16 with spread experts`."""
    settings = option.settings
    if settings is None:
        return f"{option.gpus} GPUs"
    sizes = (
        ("TP", settings.tensor_parallel_size),
        ("PP", settings.pipeline_parallel_size),
        ("DP", settings.data_parallel_size),
    )
    named = " x ".join(f"{name} {size}" for name, size in sizes if size > 1) or "one GPU"
    return f"{named} with spread experts" if settings.expert_parallel else named
