"""What a HorizontalPodAutoscaler says, as plain data, with the API server's defaults and the controller's flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MetricKind = Literal["Pods", "Resource", "Object", "External"]
TargetType = Literal["AverageValue", "Value", "Utilization"]
SelectPolicy = Literal["Max", "Min", "Disabled"]
Direction = Literal["down", "up"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric and its target: per pod (AverageValue), in all (Value), or percent of `request` (Utilization).

    `request` is what one pod requests, in the unit of the values. `cpu`: readiness is looked at (Resource cpu only).
    Raises ValueError for a target that kind does not have.
    """

    name: str
    kind: MetricKind
    target: float
    target_type: TargetType = "AverageValue"
    request: float = 0.0
    cpu: bool = True

    def __post_init__(self) -> None:
        allowed: dict[MetricKind, tuple[TargetType, ...]] = {
            "Pods": ("AverageValue",),
            "Resource": ("AverageValue", "Utilization"),
            "Object": ("AverageValue", "Value"),
            "External": ("AverageValue", "Value"),
        }
        if self.target_type not in allowed[self.kind]:
            raise ValueError(f"{self.name}: a {self.kind} metric has no {self.target_type} target")
        if not self.target > 0.0:
            raise ValueError(f"{self.name}: target {self.target} is not positive")
        if self.target_type == "Utilization" and not self.request > 0.0:
            raise ValueError(f"{self.name}: Utilization needs the request of one pod")

    @property
    def per_pod(self) -> bool:
        """Whether there is one value per pod (Pods, Resource) rather than one in all."""
        return self.kind in {"Pods", "Resource"}


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """At most `value` pods or percent of change within `period_s`. Raises ValueError outside the API's bounds."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: int

    def __post_init__(self) -> None:
        if self.value < 1 or not 1 <= self.period_s <= 1800:
            raise ValueError(f"policy {self.kind} {self.value} per {self.period_s} s: value >= 1, period 1 to 1800 s")


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """One direction of `behavior`. None: not given, so the API server's default. Windows are 0 to 3600 s."""

    window_s: int | None = None
    select: SelectPolicy = "Max"
    policies: tuple[ScalingPolicy, ...] | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.window_s is not None and not 0 <= self.window_s <= 3600:
            raise ValueError(f"stabilisation window {self.window_s} s is not within 0 to 3600 s")
        if self.policies is not None and not self.policies:
            raise ValueError("at least one policy")
        if self.tolerance is not None and self.tolerance < 0.0:
            raise ValueError(f"tolerance {self.tolerance} is negative")


@dataclass(frozen=True, slots=True)
class Behavior:
    """A `behavior` block. An empty one brings the default policies; an absent one (None in `HpaSpec`) does not."""

    up: ScalingRules = ScalingRules()
    down: ScalingRules = ScalingRules()


UP_POLICIES: Final = (ScalingPolicy("Pods", 4, 15), ScalingPolicy("Percent", 100, 15))
DOWN_POLICIES: Final = (ScalingPolicy("Percent", 100, 15),)
"""Defaults of a behavior block (kubernetes pkg/apis/autoscaling/v2/defaults.go, commit 1adaa7534575)."""


@dataclass(frozen=True, slots=True)
class ControllerFlags:
    """Flags and gates of kube-controller-manager, at their documented defaults.

    `configurable_tolerance`: HPAConfigurableTolerance, on by default from 1.35. `scale_to_zero`: HPAScaleToZero, off.
    """

    tolerance: float = 0.1
    downscale_stabilization_s: int = 300
    cpu_initialization_s: float = 300.0
    initial_readiness_delay_s: float = 30.0
    configurable_tolerance: bool = True
    scale_to_zero: bool = False


DEFAULT_FLAGS: Final = ControllerFlags()


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Relative distance of the usage ratio from 1 that is ignored, per direction; both ends are inside."""

    down: float
    up: float

    def ignore(self, ratio: float) -> bool:
        """Whether the ratio is too near to 1 to act on."""
        return (1.0 - self.down) <= ratio <= (1.0 + self.up)


@dataclass(frozen=True, slots=True)
class HpaSpec:
    """One HorizontalPodAutoscaler. Raises ValueError for bounds out of order or no metric.

    `min_replicas` 0 needs the scale_to_zero gate and an Object or External metric, as the API server demands.
    """

    max_replicas: int
    metrics: tuple[Metric, ...]
    min_replicas: int = 1
    behavior: Behavior | None = None
    flags: ControllerFlags = DEFAULT_FLAGS

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas or self.max_replicas < 1:
            raise ValueError(f"replicas {self.min_replicas} to {self.max_replicas}")
        if not self.metrics:
            raise ValueError("at least one metric")
        if self.min_replicas == 0 and not (self.flags.scale_to_zero and self.has_object_or_external):
            raise ValueError("minReplicas 0 needs HPAScaleToZero and an Object or External metric")

    @property
    def has_object_or_external(self) -> bool:
        """Whether a metric exists that does not come from the pods."""
        return any(not metric.per_pod for metric in self.metrics)

    @property
    def tolerances(self) -> Tolerances:
        """The flag's, or those of the behavior block where the gate is on."""
        flag = self.flags.tolerance
        if self.behavior is None or not self.flags.configurable_tolerance:
            return Tolerances(flag, flag)
        down, up = self.behavior.down.tolerance, self.behavior.up.tolerance
        return Tolerances(flag if down is None else down, flag if up is None else up)

    @property
    def windows_s(self) -> tuple[int, int]:
        """Stabilisation windows (down, up) in force."""
        flag = self.flags.downscale_stabilization_s
        if self.behavior is None:
            return flag, 0
        down, up = self.behavior.down.window_s, self.behavior.up.window_s
        return (flag if down is None else down), (0 if up is None else up)

    def policies(self, direction: Direction) -> tuple[ScalingPolicy, ...]:
        """The policies in force, defaults filled in; empty without a behavior block, which has none."""
        if self.behavior is None:
            return ()
        rules = self.behavior.up if direction == "up" else self.behavior.down
        return rules.policies or (UP_POLICIES if direction == "up" else DOWN_POLICIES)
