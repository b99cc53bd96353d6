"""What each model of the workload has to carry, resolved: lengths, context, load, limits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rightslice.catalogue.architecture import Architecture
from rightslice.core.rng import generator
from rightslice.core.slo import Slo, SloMetric
from rightslice.spec.workload import Model, Pipeline, TrafficClass, Users, Workload
from rightslice.traffic.arrivals import class_lengths, mean_rate_per_s, planned_rate_per_s
from rightslice.traffic.lengths import lengths

SAMPLE_REQUESTS = 4000
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


@dataclass(frozen=True, slots=True)
class Need:
    """One model as it must be served. Token means are weighted by rate; rates are requests/s of its own classes."""

    model: Model
    source: str
    architecture: Architecture | None
    planned_rate_per_s: float
    mean_rate_per_s: float
    input_tokens: float
    output_tokens: float
    max_model_len: int
    shares: tuple[PipelineShare, ...]
    min_replicas: int
    spare: bool
    isolation: str
    assumptions: tuple[str, ...]

    @property
    def name(self) -> str:
        """The model's name in the workload."""
        return self.model.name

    @property
    def typical_tokens(self) -> int:
        """Tokens that one sequence holds in the cache when it ends."""
        return max(1, round(self.input_tokens + self.output_tokens))

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


def needs(workload: Workload, architectures: dict[str, Architecture | None]) -> tuple[Need, ...]:
    """Resolve every model of `workload`; `architectures` maps model name -> architecture or None for profiles."""
    return tuple(_need(model, workload, architectures.get(model.name)) for model in workload.models)


def lengths_of(traffic: TrafficClass, maximum: int | None) -> tuple[np.ndarray, np.ndarray]:
    """A fixed sample of (input, output) token counts of one class, for sizing."""
    return class_lengths(traffic, SAMPLE_REQUESTS, generator(0, "sizing", traffic.name), maximum)


def stage_lengths(
    pipeline: Pipeline, model: Model, requests: int = SAMPLE_REQUESTS, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Token counts of one language-model stage: the pipeline's own, else the model's first class's, else assumed."""
    rng = generator(seed, "stage", pipeline.name, model.name)
    given = pipeline.lengths.get(model.name)
    if given is not None:
        inputs = lengths(given.input_tokens.mean, given.input_tokens.p95, rng, requests, maximum=model.max_context)
        outputs = lengths(given.output_tokens.mean, given.output_tokens.p95, rng, requests, maximum=model.max_context)
        return inputs, outputs
    if model.traffic:
        return class_lengths(model.traffic[0], requests, rng, model.max_context)
    ones = np.ones(requests, dtype=np.int64)
    return ones * PIPELINE_INPUT_TOKENS, ones * PIPELINE_OUTPUT_TOKENS


def _need(model: Model, workload: Workload, architecture: Architecture | None) -> Need:
    assumptions: list[str] = []
    shares = _shares(model.name, workload.pipelines)
    input_tokens, output_tokens, longest = _lengths(model, architecture, shares, assumptions)
    spare, floor = _redundancy(model, workload.environment)
    return Need(
        model=model,
        source=model.source[0] if model.source else "",
        architecture=architecture,
        planned_rate_per_s=sum(planned_rate_per_s(c) for c in model.traffic),
        mean_rate_per_s=sum(mean_rate_per_s(c) for c in model.traffic),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        max_model_len=_max_model_len(model, architecture, longest, assumptions),
        shares=shares,
        min_replicas=floor,
        spare=spare,
        isolation=model.isolation or ("required" if workload.environment == "production" else "none"),
        assumptions=tuple(assumptions),
    )


def _shares(name: str, pipelines: tuple[Pipeline, ...]) -> tuple[PipelineShare, ...]:
    return tuple(
        PipelineShare(pipeline, users_name, users, pipeline.stages.count(name))
        for pipeline in pipelines
        if name in pipeline.stages
        for users_name, users in pipeline.users.items()
    )


def _lengths(
    model: Model, architecture: Architecture | None, shares: tuple[PipelineShare, ...], assumptions: list[str]
) -> tuple[float, float, int]:
    """(mean input, mean output, longest request) over the model's classes, or else over its pipelines."""
    if architecture is None:
        return 0.0, 0.0, 0
    weighted = [(planned_rate_per_s(c), lengths_of(c, model.max_context)) for c in model.traffic]
    if not weighted:
        weighted = [(1.0, stage_lengths(share.pipeline, model)) for share in shares]
        if any(model.name not in share.pipeline.lengths for share in shares):
            assumptions.append(
                f"{model.name}: no token counts are given; {PIPELINE_INPUT_TOKENS} in and {PIPELINE_OUTPUT_TOKENS} out "
                "are assumed for each pipeline request; set lengths in the pipeline"
            )
    if not weighted:
        return 0.0, 0.0, 0
    total = sum(weight for weight, _ in weighted)
    mean_in = sum(weight * float(inputs.mean()) for weight, (inputs, _) in weighted) / total
    mean_out = sum(weight * float(outputs.mean()) for weight, (_, outputs) in weighted) / total
    longest = max(int(np.quantile(inputs + outputs, 0.999)) for _, (inputs, outputs) in weighted)
    return mean_in, mean_out, longest


def _max_model_len(model: Model, architecture: Architecture | None, longest: int, assumptions: list[str]) -> int:
    if architecture is None:
        return 0
    if model.max_context:
        return model.max_context
    wanted = CONTEXT_STEP_TOKENS * math.ceil(max(longest, 1) / CONTEXT_STEP_TOKENS)
    chosen = min(wanted, architecture.context_max) if architecture.context_max else wanted
    assumptions.append(
        f"{model.name}: max_model_len {chosen:,} from the traffic's 99.9th percentile; set max_context to change it"
    )
    return chosen


def _redundancy(model: Model, environment: str) -> tuple[bool, int]:
    """(one replica more than needed, floor). An explicit `min_replicas` replaces the production default of N + 1."""
    if model.min_replicas is not None:
        return False, max(model.min_replicas, 1)
    if environment == "production" and not model.interruptible and model.task != "custom":
        return True, 2
    return False, 1
