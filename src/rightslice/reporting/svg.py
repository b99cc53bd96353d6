"""Inline SVG for the page: small functions, each one figure. Horizontal positions are shares of the width, so that a
figure is as wide as the place it stands in and its text never shrinks. Everything written into it is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from rightslice.core.text import visible

Number = float | int | str


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a stacked bar. `css` is its class; `filled` is the share of itself in full colour."""

    share: float
    css: str
    title: str
    filled: float = 1.0


def tag(name: str, *children: Markup | str, **attributes: Number) -> Markup:
    """One element; `_` in an attribute becomes `-`, a trailing one is dropped (`class_`)."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(visible(str(value)))}"' for key, value in attributes.items()
    )
    inner = Markup("").join(child if isinstance(child, Markup) else escape(visible(child)) for child in children)
    return Markup(f"<{name}{written}>{inner}</{name}>")  # noqa: S704 - every part is escaped above


def at(share: float) -> str:
    """A share as a percentage of the width: `12.5%`."""
    return f"{min(max(share, 0.0), 1.0) * 100:.3f}".rstrip("0").rstrip(".") + "%"


def figure(title: str, description: str, height: int, *children: Markup, css: str = "") -> Markup:
    """The outer element: a picture with a name and a description for those who cannot see it."""
    names = (tag("title", title), tag("desc", description))
    return tag("svg", *names, *children, role="img", width="100%", height=height, class_=f"figure {css}".strip())


def hatch() -> Markup:
    """The pattern of free space; once per page."""
    stripe = tag("path", d="M-1 1l2-2M0 6l6-6M5 7l2-2", class_="hatch-line")
    pattern = tag("pattern", stripe, id="free", width=6, height=6, patternUnits="userSpaceOnUse")
    return tag("svg", tag("defs", pattern), width=0, height=0, aria_hidden="true", class_="definitions")


def stacked_bar(title: str, parts: Sequence[Part], height: int = 18) -> Markup:
    """Parts from left to right; what is not `filled` is hatched in a pale tint of the same colour."""
    shapes: list[Markup] = []
    start = 0.0
    for part in parts:
        shapes.append(_stretch(part, start, height))
        start += part.share
    description = "; ".join(part.title for part in parts)
    return figure(title, description, height, *shapes, css="bar")


def _stretch(part: Part, start: float, height: int) -> Markup:
    tint = tag("rect", x=0, y=0, width="100%", height=height, class_=f"{part.css} pale")
    room = tag("rect", x=0, y=0, width="100%", height=height, class_="free")
    front = tag("rect", x=0, y=0, width=at(part.filled), height=height, class_=part.css)
    edge = tag("line", x1="100%", y1=0, x2="100%", y2=height, class_="edge")
    shapes = (tint, room, front, edge) if part.filled < 1 else (front, edge)
    return tag("svg", tag("title", part.title), *shapes, x=at(start), y=0, width=at(part.share), height=height)


def gauge(title: str, achieved: float, required: float, floor: float) -> Markup:
    """The achieved share on a rail from `floor` to 1; the stretch that would do is marked, its edge is the need."""
    place, need = _on_rail(achieved, floor), _on_rail(required, floor)
    met = achieved >= required
    rail = tag("line", x1="0%", y1=9, x2="100%", y2=9, class_="rail")
    enough = tag("line", x1=at(need), y1=9, x2="100%", y2=9, class_="enough")
    tick = tag("line", x1=at(need), y1=2, x2=at(need), y2=16, class_="need")
    dot = tag("circle", cx=at(place), cy=9, r=5.5, class_="dot met" if met else "dot missed")
    verdict = "meets" if met else "misses"
    return figure(
        title, f"{achieved:.2%} of requests; {verdict} the {required:.2%} needed", 18, rail, enough, tick, dot
    )


def _on_rail(share: float, floor: float) -> float:
    return (share - floor) / (1.0 - floor) if floor < 1.0 else 1.0


def gauge_floor(shares: Sequence[float]) -> float:
    """Where the rail begins: the highest of 0, 50, 80, 90, 99 % that leaves the lowest share room to its left."""
    lowest = min(shares, default=0.0)
    return max(floor for floor in (0.0, 0.5, 0.8, 0.9, 0.99) if floor == 0.0 or lowest >= floor + (1 - floor) * 0.1)


@dataclass(frozen=True, slots=True)
class Dot:
    """One cost on the common axis. `kind`: chosen, verified, unverified, rejected or baseline."""

    kind: str
    usd: float
    low: float | None = None
    high: float | None = None


def dot_row(dot: Dot, title: str, ticks: Sequence[float]) -> Markup:
    """One row of the dot plot, grid lines behind; each kind has its own shape."""
    top = ticks[-1]
    grid = [tag("line", x1=at(t / top), y1=0, x2=at(t / top), y2="100%", class_="grid") for t in ticks]
    x = at(dot.usd / top)
    shapes = [*grid]
    if dot.low is not None and dot.high is not None:
        shapes.append(tag("line", x1=at(dot.low / top), y1=14, x2=at(dot.high / top), y2=14, class_="range"))
    if dot.kind == "chosen":
        shapes.append(tag("circle", cx=x, cy=14, r=10, class_="ring"))
    shapes.append(_mark(dot.kind, x))
    return figure(title, f"{dot.kind} at {dot.usd:,.0f} USD a month", 28, *shapes, css="dots")


def _mark(kind: str, x: str) -> Markup:
    if kind == "baseline":
        return tag("svg", tag("rect", x=-4, y=10, width=8, height=8, class_="mark baseline"), x=x, y=0, class_="shape")
    if kind == "rejected":
        cross = tag("path", d="M-4 10l8 8M-4 18l8-8", class_="mark rejected")
        return tag("svg", cross, x=x, y=0, class_="shape")
    return tag("circle", cx=x, cy=14, r=5.5, class_=f"mark {kind}")


def axis(ticks: Sequence[float], labels: Sequence[str]) -> Markup:
    """The labels under a dot plot; the first and the last stay inside."""
    top = ticks[-1]
    texts = [
        tag("text", label, x=at(t / top), y=13, text_anchor="start" if t == 0 else "end" if t == top else "middle")
        for t, label in zip(ticks, labels, strict=True)
    ]
    return tag("svg", *texts, width="100%", height=18, class_="figure axis", aria_hidden="true")


def nice_ticks(largest: float, most: int = 5) -> list[float]:
    """0 and at most `most` round steps, the last at or above `largest`; 0 and 1 where that is 0."""
    if largest <= 0.0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(largest / most))
    step = next(power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if power * factor * most >= largest)
    return [step * number for number in range(max(math.ceil(largest / step - 1e-9), 1) + 1)]
