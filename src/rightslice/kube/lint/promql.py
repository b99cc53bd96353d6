"""As much of PromQL as rules need: which metrics a query reads, under which functions, and what it is compared with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""\s+|\#[^\n]*|(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)"""
    r"|(?P<number>0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|(?:\d+(?:ms|[smhdwy]))+)"
    r"|(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)"
    r"|(?P<operator>==|!=|>=|<=|=~|!~|[-+*/%^(){}\[\],<>=@:])|(?P<other>.)",
    re.DOTALL,
)
_WORDS: Final = frozenset({
    "by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool", "offset", "atan2",
    "inf", "nan", "start", "end",
})  # fmt: skip
AGGREGATIONS: Final = frozenset({
    "sum", "avg", "min", "max", "count", "stddev", "stdvar", "topk", "bottomk", "quantile", "group", "count_values",
})  # fmt: skip
_SAME_UNIT: Final = frozenset({
    "avg", "max", "min", "sum", "topk", "bottomk", "quantile", "avg_over_time", "max_over_time", "min_over_time",
    "quantile_over_time", "last_over_time", "histogram_quantile", "abs", "round", "ceil", "floor", "sort", "sort_desc",
    "label_replace", "clamp_min", "clamp_max",
})  # fmt: skip
RATES: Final = frozenset({"rate", "irate", "increase"})
_LONGEST: Final = 4_000


@dataclass(frozen=True, slots=True)
class Use:
    """One metric in a query. `functions`: those around it, outermost first. `compared`: operator and number behind it.

    `compared` is None where arithmetic, another series or anything that changes the unit stands between.
    """

    name: str
    functions: tuple[str, ...]
    compared: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def uses(query: str) -> tuple[Use, ...]:
    """The metrics of a query; none for one that is no PromQL or longer than 4,000 characters."""
    tokens = list(_tokens(query)) if len(query) <= _LONGEST else []
    return tuple(_uses(tokens))


def divides_by_count(query: str) -> str:
    """`count(kube_pod_info)` of a query whose outermost operation divides by a number of pods, else empty."""
    tokens = list(_tokens(query)) if len(query) <= _LONGEST else []
    depth = 0
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "operator" else 0
        if token.text == "/" and depth == 0:
            behind = tokens[index + 1 :]
            names = [found.text for found in behind if found.kind == "name"]
            counted = [name for name in names if name == "count" or re.search(r"replicas|pod_(?:info|status)", name)]
            if counted:
                series = next((use.name for use in _uses(behind)), counted[0])
                return f"count({series})" if "count" in names else series
    return ""


def averages(query: str) -> bool:
    """Whether the outermost operation is a mean over pods: `avg(…)`, without further labels."""
    tokens = list(_tokens(query)) if len(query) <= _LONGEST else []
    if not tokens or tokens[0].text != "avg" or any(token.text in ("by", "without") for token in tokens):
        return False
    return _closing(tokens, _opening(tokens)) == len(tokens) - 1


def _opening(tokens: Sequence[_Token]) -> int:
    return next((index for index, token in enumerate(tokens) if token.text == "("), len(tokens))


def _closing(tokens: Sequence[_Token], start: int) -> int:
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(tokens)):
        if tokens[index].kind == "operator":
            depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(tokens[index].text, 0)
        if depth == 0:
            return index
    return len(tokens)


def _tokens(query: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(query):
        if match.lastgroup is not None:
            yield _Token(match.lastgroup, match[0])


def _uses(tokens: Sequence[_Token]) -> Iterator[Use]:
    stack: list[str] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        follows = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if token.text in "{[" and token.kind == "operator":
            name = _name_label(tokens, index) if token.text == "{" else ""
            if name:
                yield _use(tokens, index, _closing(tokens, index), name, stack)
            index = _closing(tokens, index)
        elif token.text == "(" and token.kind == "operator":
            before = tokens[index - 1].text if index else ""
            if before in ("by", "without", "on", "ignoring", "group_left", "group_right"):
                index = _closing(tokens, index)
            else:
                stack.append(_function(tokens, index))
        elif token.text == ")" and token.kind == "operator":
            del stack[-1:]
        elif _is_series(token, follows):
            end = _closing(tokens, index + 1) if follows == "{" else index
            yield _use(tokens, index, end, token.text, stack)
            index = end
        index += 1


def _is_series(token: _Token, follows: str) -> bool:
    """Whether a word is the name of a series and no function, operator or aggregation."""
    if token.kind != "name" or token.text.casefold() in _WORDS or follows == "(":
        return False
    return not (token.text in AGGREGATIONS and follows in ("by", "without"))


def _name_label(tokens: Sequence[_Token], start: int) -> str:
    """The metric of `{__name__="…"}`; empty for labels behind a name."""
    if start and tokens[start - 1].kind == "name":
        return ""
    inside = tokens[start : _closing(tokens, start)]
    for at, token in enumerate(inside[:-2]):
        if token.text == "__name__" and inside[at + 1].text == "=":
            return inside[at + 2].text[1:-1]
    if len(inside) > 1 and inside[1].kind == "string":
        return inside[1].text[1:-1]
    return ""


def _function(tokens: Sequence[_Token], bracket: int) -> str:
    """What is applied to the bracket: `sum`, also of `sum by (pod) (…)`; empty for a plain one."""
    at = bracket - 1
    if at >= 0 and tokens[at].text == ")":
        depth = 0
        while at >= 0:
            depth += {")": 1, "(": -1}.get(tokens[at].text, 0)
            at -= 1
            if depth == 0:
                break
        if at >= 0 and tokens[at].text in ("by", "without"):
            at -= 1
        else:
            return ""
    return tokens[at].text if at >= 0 and tokens[at].kind == "name" and tokens[at].text not in _WORDS else ""


def _use(tokens: Sequence[_Token], start: int, end: int, name: str, stack: Sequence[str]) -> Use:
    return Use(name, tuple(function for function in stack if function), _compared(tokens, start, end, stack))


def _compared(tokens: Sequence[_Token], start: int, end: int, stack: Sequence[str]) -> tuple[str, float] | None:
    """The comparison of the whole expression in which only functions that keep the unit surround the metric."""
    if any(function and function not in _SAME_UNIT and function not in RATES for function in stack):
        return None
    left = start
    right = end + 1
    for _ in range(len(tokens)):
        right = _suffixes(tokens, right)
        before = tokens[left - 1].text if left else ""
        if right < len(tokens) and tokens[right].text in (")", ",") and (left == 0 or before in ("(", ",")):
            left, right = _outside(tokens, left, right)
        else:
            break
    if left and tokens[left - 1].text in "+-*/%^":
        return None
    behind = tokens[right : right + 3]
    if len(behind) < 2 or behind[0].text not in (">", "<", ">=", "<=", "==", "!="):
        return None
    values = [token for token in behind[1:] if token.text != "bool"]
    sign = -1.0 if values and values[0].text == "-" else 1.0
    number = values[1] if sign < 0 and len(values) > 1 else values[0] if values else None
    if number is None or number.kind != "number":
        return None
    after = tokens[right + 2].text if right + 2 < len(tokens) else ""
    if after in ("*", "/", "+", "-", "^"):
        return None
    try:
        return behind[0].text, sign * float(number.text)
    except ValueError:
        return None


def _suffixes(tokens: Sequence[_Token], at: int) -> int:
    """Behind a range, an offset and the labels that an aggregation keeps."""
    while at < len(tokens):
        if tokens[at].text == "[":
            at = _closing(tokens, at) + 1
        elif tokens[at].text == "offset":
            at += 3 if at + 1 < len(tokens) and tokens[at + 1].text == "-" else 2
        elif tokens[at].text in ("by", "without") and at + 1 < len(tokens) and tokens[at + 1].text == "(":
            at = _closing(tokens, at + 1) + 1
        else:
            break
    return at


def _outside(tokens: Sequence[_Token], left: int, right: int) -> tuple[int, int]:
    """The span of the call or bracket around a span."""
    depth, start = 0, left - 1
    while start >= 0:
        depth += {")": 1, "}": 1, "]": 1, "(": -1, "{": -1, "[": -1}.get(tokens[start].text, 0)
        if depth < 0:
            break
        start -= 1
    end = _closing(tokens, max(start, 0))
    head = start - 1
    if head >= 0 and tokens[head].text == ")":
        while head >= 0 and tokens[head].text != "(":
            head -= 1
        head -= 2
    if head >= 0 and tokens[head].kind == "name" and tokens[head].text not in _WORDS:
        return head, end + 1
    return max(start, 0), end + 1
