"""Feed-forward blocks: dense, and mixtures of experts."""

from __future__ import annotations

from dataclasses import replace

from rightslice.catalogue.architecture import MoeGroup
from rightslice.catalogue.architectures.config import Config
from rightslice.catalogue.architectures.families import Family
from rightslice.catalogue.architectures.shapes import Shape
from rightslice.catalogue.architectures.weights import IDLE_EXPERTS, Weight, count, linear, vector

_UNGATED = frozenset({"relu2", "relu_squared", "squared_relu"})


def dense(config: Config, family: Family, width: int, module: str = "mlp", hidden: int = 0) -> tuple[Weight, ...]:
    """Two matrices (up, down), or three when the activation is gated."""
    hidden = hidden or config.number("hidden", low=1)
    bias = family.switch("mlp_bias", config)
    weights = []
    if gated(config, family):
        weights.append(linear(f"{module}.gate_proj", width, hidden, bias=bias))
    weights += [
        linear(f"{module}.up_proj", width, hidden, bias=bias),
        linear(f"{module}.down_proj", hidden, width, bias=family.switch("down_bias", config, bias)),
    ]
    if family.switch("mlp_norm", config):
        weights.append(vector(f"{module}.ffn_sub_norm", width))
    return tuple(weights)


def gated(config: Config, family: Family) -> bool:
    """Whether the activation multiplies two projections."""
    if config.text("activation_function").endswith("glu") or config.text("feed_forward_type").endswith("glu"):
        return True
    style = family.trait("mlp")
    if style == "by-activation":
        if config.has("feed_forward_proj") and not isinstance(config.raw("feed_forward_proj"), str):
            raise config.error("feed_forward_proj must be a word", "relu or gated-gelu")
        return "gated" in config.text("feed_forward_proj")
    return style != "plain" if style else config.text("mlp_hidden_act") not in _UNGATED


def mixture(config: Config, family: Family, shape: Shape) -> tuple[tuple[Weight, ...], MoeGroup]:
    """Router, routed experts and shared experts of one layer.

    Raises BadInputError when the number of experts per token is missing or larger than the number of experts.
    """
    hidden = config.number("hidden", low=1)
    experts, width = shape.experts, expert_width(config, family, shape)
    top_k = config.most("top_k", family.amount("top_k", 0) or None, low=1)
    if top_k > experts:
        raise config.error(f"{top_k} experts per token, but there are only {experts} experts")
    outer = config.maybe("latent_width") or hidden
    matrices = 3 if gated(config, family) else 2
    bias = family.switch("expert_bias", config)
    module = family.trait("experts_module", "mlp.experts")
    up_rows = (matrices - 1) * width
    routed = (
        Weight(f"{module}.gate_up_proj", up_rows, outer, "expert", experts, up_rows if bias else 0, linear=True),
        Weight(f"{module}.down_proj", outer, width, "expert", experts, outer if bias else 0, linear=True),
    )
    shared = _shared(config, family, width, hidden)
    around = (
        (
            linear("mlp.fc1_latent_proj", outer, hidden, "replicate"),
            linear("mlp.fc2_latent_proj", hidden, outer, "replicate"),
        )
        if outer != hidden
        else ()
    )
    group = MoeGroup(1, experts, top_k, count(routed) // experts, count(shared) + count(around), width)
    others = _other_experts(config, family, experts, hidden)
    return (*_router(config, family, experts, hidden), *routed, *shared, *around, *others), group


def _other_experts(config: Config, family: Family, experts: int, hidden: int) -> tuple[Weight, ...]:
    """Experts that only image tokens visit (ERNIE-VL): a second router and a second, narrower set."""
    if not family.switch("image_experts", config):
        return ()
    widths = config.numbers("expert_intermediate") or ()
    numbers = config.numbers("experts") if config.is_list("experts") else (experts, experts)
    if len(widths) != len(numbers or ()) or not numbers:
        return ()
    router = Weight("mlp.vision_gate", numbers[-1], hidden + family.amount("router_vectors", 0))
    return router, Weight(IDLE_EXPERTS, 3 * widths[-1], hidden, "expert", numbers[-1], linear=True)


def expert_width(config: Config, family: Family, shape: Shape) -> int:
    """Inner width of one routed expert."""
    given = config.raw("expert_intermediate")
    if isinstance(given, list):
        widths = config.numbers("expert_intermediate") or ()
        return max(widths, default=0) or shape.intermediate
    value = config.maybe("expert_intermediate")
    if not value:
        value = shape.intermediate
        config.assume("moe_intermediate_size", value, "intermediate_size")
    return family.amount("expert_width_factor", 1) * value


def _router(config: Config, family: Family, experts: int, hidden: int) -> tuple[Weight, ...]:
    rows = experts + config.number("zero_expert_num", 0)
    bias = rows if family.switch("router_bias", config) else 0
    extra = family.amount("router_vectors", 0)
    found = [Weight("mlp.gate", rows, hidden, bias=bias)]
    if extra:
        found.append(Weight("mlp.gate.correction", experts, extra))
    if family.switch("router_scales", config):
        found.append(Weight("mlp.gate.scale", hidden))
        found.append(Weight("mlp.gate.per_expert_scale", experts))
    return tuple(found)


def _shared(config: Config, family: Family, width: int, hidden: int) -> tuple[Weight, ...]:
    number = config.most("shared_experts", family.amount("shared_experts", 0), high=1 << 12)
    total = config.maybe("shared_intermediate")
    if total is None:
        total = number * width
    elif family.switch("shared_multiplied", config):
        total *= number
    elif config.has("shared_experts") and not number:
        total = 0
    if not total:
        return ()
    weights = tuple(replace(w, split="shared") for w in dense(config, family, total, "mlp.shared_experts", hidden))
    gate = (Weight("mlp.shared_expert_gate", 1, hidden),) if family.switch("shared_gate", config) else ()
    return weights + gate
