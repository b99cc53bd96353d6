"""What each model of the workload has to carry, resolved: lengths, context, load, limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rightslice.catalogue.architecture import Architecture
from rightslice.core.calibrated import Calibrated
from rightslice.core.rng import generator
from rightslice.core.slo import Slo, SloMetric
from rightslice.spec.workload import DEFAULT_PRIORITY, Model, Pipeline, TrafficClass, Users, Workload
from rightslice.traffic.arrivals import offered_per_s, open_loop
from rightslice.traffic.lengths import lengths
from rightslice.traffic.traces import Trace

SAMPLE_REQUESTS = 4000
LONGEST_SAMPLE_S = 90 * 86_400.0
"""Only lengths count: seldom requests are drawn closer together, or their times would not fit 64-bit picoseconds."""
CONTEXT_STEP_TOKENS = 1024
PIPELINE_INPUT_TOKENS = 256
PIPELINE_OUTPUT_TOKENS = 64
"""Assumed length of one exchange with a pipeline's LLM stage for which nothing else is given; always reported."""


@dataclass(frozen=True, slots=True)
class PipelineShare:
    """One population of one pipeline that passes through a model `visits` times per request."""

    pipeline: Pipeline
    users_name: str
    users: Users
    visits: int


Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LengthSample:
    """Lengths of one class (or of a pipeline's requests), its rate and its objectives.

    `seen_tokens`: of each prompt, what a prefix cache without limit holds at best; None where prompts share nothing.
    """

    rate_per_s: float
    input_tokens: Tokens
    output_tokens: Tokens
    slos: tuple[Slo, ...]
    recorded: bool = False
    seen_tokens: Tokens | None = None

    @property
    def longest(self) -> int:
        """Context that the requests need: all of a trace, 99.9 % of what is drawn from a law without an end."""
        total = self.input_tokens + self.output_tokens
        return int(total.max()) if self.recorded else int(np.quantile(total, 0.999))


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """One model as it must be served. Token means are weighted by rate; rates are requests/s of its own classes.

    `calibrated`: measured times of it.
    """

    model: Model
    source: str
    architecture: Architecture | None
    planned_rate_per_s: float
    mean_rate_per_s: float
    input_tokens: float
    output_tokens: float
    max_model_len: int
    samples: tuple[LengthSample, ...]
    shares: tuple[PipelineShare, ...]
    min_replicas: int
    spare: bool
    isolation: str
    assumptions: tuple[str, ...]
    calibrated: tuple[Calibrated, ...] = ()

    @property
    def name(self) -> str:
        """The model's name in the workload."""
        return self.model.name

    @property
    def typical_tokens(self) -> int:
        """Tokens that one sequence holds in the cache when it ends."""
        return max(1, round(self.input_tokens + self.output_tokens))

    @property
    def prefix_hit_ceiling(self) -> float:
        """Share of its prompt tokens that a prefix cache without limit holds at best."""
        seen = sum(s.rate_per_s * float(s.seen_tokens.mean()) for s in self.samples if s.seen_tokens is not None)
        prompts = sum(s.rate_per_s * float(s.input_tokens.mean()) for s in self.samples)
        return seen / prompts if prompts else 0.0

    @property
    def priorities(self) -> frozenset[int]:
        """Of its classes, and of the pipelines that pass through it."""
        return frozenset([c.priority for c in self.model.traffic] + [DEFAULT_PRIORITY for _ in self.shares])

    @property
    def has_load(self) -> bool:
        """Whether any request reaches it."""
        return self.planned_rate_per_s > 0 or bool(self.shares)

    def limit_s(self, metric: SloMetric) -> float | None:
        """The tightest limit on `metric` over the model's own classes."""
        limits = [slo.at_most_s for c in self.model.traffic for slo in c.slo if slo.metric == metric]
        return min(limits, default=None)

    @property
    def slos(self) -> tuple[Slo, ...]:
        """Every objective of its classes."""
        return tuple(slo for c in self.model.traffic for slo in c.slo)


def needs(
    workload: Workload, architectures: Mapping[str, Architecture | None], traces: Mapping[str, Trace]
) -> tuple[Need, ...]:
    """Resolve every model of `workload`; `architectures` maps model name -> architecture or None for profiles."""
    return tuple(_need(model, workload, architectures.get(model.name), traces) for model in workload.models)


def stage_lengths(pipeline: Pipeline, model: Model, max_context: int | None, seed: int = 0) -> tuple[Tokens, Tokens]:
    """Token counts of one language-model stage: the pipeline's own, else the model's first class's, else assumed."""
    requests = SAMPLE_REQUESTS
    rng = generator(seed, "stage", pipeline.name, model.name)
    given = pipeline.lengths.get(model.name)
    source = given or next((c for c in model.traffic if c.input_tokens and c.output_tokens), None)
    if source is None or source.input_tokens is None or source.output_tokens is None:
        ones = np.ones(requests, dtype=np.int64)
        return ones * PIPELINE_INPUT_TOKENS, ones * PIPELINE_OUTPUT_TOKENS
    room = None if max_context is None else max(max_context - 1, 1)
    outputs = lengths(source.output_tokens.mean, source.output_tokens.p95, rng, requests, room, "output")
    inputs = lengths(source.input_tokens.mean, source.input_tokens.p95, rng, requests, room, "input")
    if max_context is not None:
        inputs = np.clip(inputs, 1, np.maximum(max_context - outputs, 1))
    return inputs, outputs


def _source(model: Model, architecture: Architecture | None) -> str:
    """The model's first source; a folder or file of ours is told from a hub id by a leading `./`."""
    source = model.source[0] if model.source else ""
    of_ours = architecture is not None and architecture.source in (source, str(Path(source) / "config.json"))
    return f"./{source}" if source and of_ours and not source.startswith((".", "/", "~")) else source


def _need(model: Model, workload: Workload, architecture: Architecture | None, traces: Mapping[str, Trace]) -> Need:
    assumptions: list[str] = []
    shares = _shares(model.name, workload.pipelines)
    samples = _samples(model, architecture, shares, traces, assumptions)
    total = sum(sample.rate_per_s for sample in samples) or 1.0
    longest = max((sample.longest for sample in samples), default=0)
    spare, floor = _redundancy(model, workload.environment)
    return Need(
        model=model,
        source=_source(model, architecture),
        architecture=architecture,
        planned_rate_per_s=sum(offered_per_s(c, "planned", traces) for c in model.traffic),
        mean_rate_per_s=sum(offered_per_s(c, "mean", traces) for c in model.traffic),
        input_tokens=sum(s.rate_per_s * float(s.input_tokens.mean()) for s in samples) / total,
        output_tokens=sum(s.rate_per_s * float(s.output_tokens.mean()) for s in samples) / total,
        max_model_len=_max_model_len(model, architecture, longest, assumptions),
        samples=samples,
        shares=shares,
        min_replicas=floor,
        spare=spare,
        isolation=model.isolation or ("required" if workload.environment == "production" else "none"),
        assumptions=tuple(assumptions),
    )


def _samples(
    model: Model,
    architecture: Architecture | None,
    shares: tuple[PipelineShare, ...],
    traces: Mapping[str, Trace],
    assumptions: list[str],
) -> tuple[LengthSample, ...]:
    """Lengths over the model's own classes, or else over its pipelines; none for measured stages."""
    if architecture is None:
        return ()
    own = tuple(_class_sample(c, model.max_context, traces) for c in model.traffic)
    assumptions.extend(text for c in model.traffic for text in _sharing_assumptions(model.name, c, traces))
    if own:
        return own
    if any(model.name not in share.pipeline.lengths for share in shares):
        assumptions.append(
            f"{model.name}: no token counts are given; {PIPELINE_INPUT_TOKENS} in and {PIPELINE_OUTPUT_TOKENS} out are "
            "assumed for each pipeline request; set lengths in the pipeline"
        )
    return tuple(LengthSample(1.0, *stage_lengths(share.pipeline, model, model.max_context), ()) for share in shares)


def _class_sample(traffic: TrafficClass, max_context: int | None, traces: Mapping[str, Trace]) -> LengthSample:
    """Lengths as they come, and shared tokens at best: whole sessions, and no more than one common prefix."""
    per_s = offered_per_s(traffic, "planned", traces)
    requests = max(SAMPLE_REQUESTS, traffic.sessions.turns if traffic.sessions else 1)
    if traffic.trace is not None:
        requests = len(traces[traffic.trace])
    drawn_per_s = max(per_s, requests / LONGEST_SAMPLE_S)
    best = traffic.model_copy(
        update={
            "sessions": traffic.sessions and traffic.sessions.model_copy(update={"gap": 0.0}),
            "prefix": traffic.prefix and traffic.prefix.model_copy(update={"distinct": 1}),
        }
    )
    rng = generator(0, "sizing", traffic.name)
    drawn = open_loop([best], requests / drawn_per_s, rng, drawn_per_s, max_context=max_context, traces=traces)
    seen = drawn.sharing.seen_tokens if drawn.sharing else None
    recorded = traffic.trace is not None
    return LengthSample(per_s, drawn.input_tokens, drawn.output_tokens, traffic.slo, recorded, seen)


def _sharing_assumptions(name: str, traffic: TrafficClass, traces: Mapping[str, Trace]) -> Iterator[str]:
    """How a stated hit rate is taken."""
    stated = traffic.prefix_hit_rate
    if not stated:
        return
    if traffic.trace is not None and traces[traffic.trace].prefix is not None:
        yield f"{name}: the hit rate of {traffic.name} follows from the trace's block ids; prefix_hit_rate is not used"
    elif traffic.sessions and traffic.sessions.carries_history:
        yield (
            f"{name}: prefix_hit_rate {stated:g} of {traffic.name} limits what its sessions share: some turns are "
            "taken to come with a changed history"
        )
    else:
        texts = traffic.prefix.distinct if traffic.prefix else 1
        yield (
            f"{name}: prefix_hit_rate {stated:g} of {traffic.name} is taken as that share at the head of each prompt, "
            f"common to {'all' if texts == 1 else f'those of one of {texts:,} texts'}; prefix.distinct changes it"
        )


def _shares(name: str, pipelines: tuple[Pipeline, ...]) -> tuple[PipelineShare, ...]:
    return tuple(
        PipelineShare(pipeline, users_name, users, pipeline.stages.count(name))
        for pipeline in pipelines
        if name in pipeline.stages
        for users_name, users in pipeline.users.items()
    )


def _max_model_len(model: Model, architecture: Architecture | None, longest: int, assumptions: list[str]) -> int:
    if architecture is None:
        return 0
    if model.max_context:
        return model.max_context
    wanted = CONTEXT_STEP_TOKENS * math.ceil(max(longest, 1) / CONTEXT_STEP_TOKENS)
    chosen = min(wanted, architecture.context_max) if architecture.context_max else wanted
    assumptions.append(
        f"{model.name}: max_model_len {chosen:,} from the traffic's 99.9th percentile, longer requests are cut to it; "
        "set max_context to change it"
    )
    return chosen


def _redundancy(model: Model, environment: str) -> tuple[bool, int]:
    """(one replica more than needed, floor). An explicit `min_replicas` replaces the production default of N + 1."""
    if model.min_replicas is not None:
        return False, max(model.min_replicas, 1)
    if environment == "production" and not model.interruptible and model.task != "custom":
        return True, 2
    return False, 1
