"""Requests that share parts of their prompts: conversations that grow, groups with a common system prompt.

The shared parts become prefix block ids, so that a cache can be simulated: a block is shared when all of its tokens and
all tokens before it are; the last, partly filled block of a prompt is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from rightslice.traffic.recorded import NONE, PrefixBlocks, Trace, dense, offsets_of

BLOCK_TOKENS: Final = 16
"""Size of a block unless another is asked for: vLLM's default `block_size` on GPUs."""

_Number = TypeVar("_Number", np.float64, np.int64)

Starts = Callable[[float, float, np.random.Generator], NDArray[np.float64]]
"""(rate, horizon, generator) -> sorted times, as in `generators`."""
Draw = Callable[[int, np.random.Generator], NDArray[np.int64]]
"""(how many, generator) -> token counts of at least 1."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Law of one conversation: `turns[k]` is the relative frequency of k + 1 turns; think time from one request to the
    next is gamma with this mean and coefficient of variation (0: always the same). Without `carries_history` the prompt
    of a turn is its new text alone."""

    turns: Sequence[float]
    think_s: float
    think_cv: float
    new_tokens: Draw
    answer_tokens: Draw
    carries_history: bool = True

    @property
    def mean_turns(self) -> float:
        """Turns of a conversation in the mean."""
        shares = np.array(self.turns, dtype=np.float64)
        return float(shares @ np.arange(1, len(shares) + 1) / shares.sum())


def conversations(law: Conversation, per_s: float, horizon_s: float, starts: Starts, rng: np.random.Generator) -> Trace:
    """Requests of conversations, `per_s` of them in expectation, with their sessions.

    Conversations start by `starts` at rate `per_s` / mean turns, long enough before time 0 for those under way then
    (all but one in a billion). The prompt of a turn is its new text after all prompts and answers before it.
    """
    shares = np.array(law.turns, dtype=np.float64)
    gaps = len(shares) - 1
    lead_s = law.think_s * (gaps + law.think_cv * (6.0 * gaps**0.5 + 20.0 * law.think_cv)) if gaps else 0.0
    begins = starts(per_s / law.mean_turns, horizon_s + lead_s, rng) - lead_s
    turns = rng.choice(np.arange(1, len(shares) + 1), len(begins), p=shares / shares.sum())
    session = np.repeat(np.arange(len(begins)), turns)
    first = offsets_of(turns)[:-1]
    n = len(session)
    new, answers = law.new_tokens(n, rng), law.answer_tokens(n, rng)
    times = begins[session] + _before(_thinking(law, n, rng), first, session)
    prompts = new + _before(new + answers, first, session) if law.carries_history else new
    inside = np.flatnonzero((times >= 0.0) & (times < horizon_s))
    order = inside[np.argsort(times[inside], kind="stable")]
    return Trace(times[order], prompts[order], answers[order], session=dense(session[order]))


def _thinking(law: Conversation, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if law.think_cv == 0.0:
        return np.full(n, law.think_s)
    shape = law.think_cv**-2
    return rng.gamma(shape, law.think_s / shape, n)


def _before(amounts: NDArray[_Number], first: NDArray[np.int64], session: NDArray[np.int64]) -> NDArray[_Number]:
    """Sum of the amounts of the turns of the same session before each turn."""
    sums = np.cumsum(amounts) - amounts
    return np.asarray(sums - sums[first][session])


def groups(trace: Trace, distinct: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """One of `distinct` groups for each request, all equally often; a session stays in that of its first request."""
    group = rng.integers(0, distinct, len(trace))
    if trace.session is None:
        return group
    _, first, inverse = np.unique(trace.session, return_index=True, return_inverse=True)
    return np.where(trace.session == NONE, group, group[first][inverse])


def parted(trace: Trace, share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sessions cut into parts that share nothing, so that earlier prompts make up `share` of all prompt tokens.

    A client that edits or summarises the history starts such a part. Nothing is cut where sessions share less. Returns
    the number of the part of each request. Raises ValueError for a trace without sessions.
    """
    if trace.session is None:
        raise ValueError("no sessions")
    order = np.argsort(trace.session, kind="stable")
    session, prompts = trace.session[order], trace.input_tokens[order]
    goes_on = np.zeros(len(trace), dtype=np.bool_)
    goes_on[1:] = (session[1:] == session[:-1]) & (session[1:] != NONE)
    earlier = int(prompts[:-1][goes_on[1:]].sum())
    kept = min(1.0, share * int(prompts.sum()) / earlier) if earlier else 1.0
    part = np.empty(len(trace), dtype=np.int64)
    part[order] = np.cumsum(~(goes_on & (rng.random(len(trace)) < kept))) - 1
    return part


def shared_blocks(
    prompt_tokens: NDArray[np.int64],
    session: NDArray[np.int64],
    group: NDArray[np.int64] | None = None,
    head_tokens: NDArray[np.int64] | None = None,
    *,
    block_tokens: int = BLOCK_TOKENS,
) -> PrefixBlocks:
    """Block ids of prompts that begin with the `head_tokens` of their group and go on as their session's prompts do.

    Full blocks within the head are the group's, further full ones the session's (the request's own outside of a
    session), and a last one that is not full the request's.
    """
    n = len(prompt_tokens)
    counts = -(-prompt_tokens // block_tokens)
    offsets = offsets_of(counts)
    request = np.repeat(np.arange(n), counts)
    position = np.arange(offsets[-1]) - offsets[:-1][request]
    full_blocks = prompt_tokens // block_tokens
    heads = np.zeros(n, dtype=np.int64) if head_tokens is None else head_tokens // block_tokens
    groups = np.zeros(n, dtype=np.int64) if group is None else np.asarray(group, dtype=np.int64)
    longest = np.zeros(int(session.max(initial=NONE)) + 1, dtype=np.int64)
    np.maximum.at(longest, session[session != NONE], full_blocks[session != NONE])
    in_head = position < np.minimum(heads, full_blocks)[request]
    alone = ~in_head & ((position >= full_blocks[request]) | (session == NONE)[request])
    # ids of groups, of sessions and of lone blocks follow each other without wide gaps
    widest = int(heads.max(initial=0))
    sessions_from = widest * (int(groups.max(initial=0)) + 1)
    alone_from = sessions_from + int(longest.sum())
    ids = position + np.where(in_head, (groups * widest)[request], 0)
    begins = sessions_from + offsets_of(longest)
    in_session = ~in_head & ~alone
    ids[in_session] += begins[session[request[in_session]]]
    ids[alone] = alone_from + np.arange(int(alone.sum()))
    return PrefixBlocks(offsets, dense(ids), block_tokens)
