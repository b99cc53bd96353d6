"""The page of measured errors in the documentation, from the shipped validation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rightslice.performance.accuracy import CellMetric, Document, Group
from rightslice.reporting.accuracy_text import decision_line, percent

_METRICS: Final = {"throughput": "Throughput", "tpot": "TPOT", "ttft": "TTFT", "e2e": "End to end"}
_BAR, _FULL = 12, 0.6
"""Characters of a bar, and the error that fills it."""
_HEAD: Final = """\
# Accuracy of predictions

Written by `rightslice accuracy --markdown`; a test keeps it up to date. All errors are |predicted - measured| /
measured; a median is over rows, "of groups" is the mean of the medians of groups (model family, accelerator).
"""
_CONVENTION: Final = """\
## How it is counted

Throughput counts for static batches, closed loops, saturated servers and bursts, not for open loops, which echo the
offered rate. TPOT counts for answers of 20 tokens and more, TTFT for all but bursts, end-to-end time likewise. A row
that states a median is compared with the predicted median. Rows of quality D are left out. Speech is scored apart: most
measured rows are the runs behind the shipped stage profiles, so that their errors prove nothing.
"""
_EXAMPLES: Final = """\
## Two questions that other planners do not answer as asked

- `rightslice predict Llama-3.1-8B --accelerator H100-SXM-80GB --rate 20 --input-tokens 1000 --output-tokens 300`: is
  20 requests/s within TTFT p95 500 ms and TPOT p95 40 ms on one accelerator? The offered rate is played; it is never
  taken for what the deployment can carry.
- `rightslice predict Llama-3.1-70B --accelerator H100-SXM-80GB --tp 4 --dtype bf16 --rate 5 --input-tokens 4000
  --output-tokens 500`: 5 requests/s within TTFT p95 2 s and TPOT p95 50 ms. The model that was asked for is answered
  for, never a neighbour.

`rightslice accuracy TRUTH.csv` scores your own measurements by the same convention; `--bar` fails a release that gets
worse.
"""


def accuracy_page(found: Document) -> str:
    """Coverage map, totals, decisions, peers and groups as Markdown."""
    parts = [
        _HEAD,
        "## Coverage: what was measured\n",
        _paragraph(
            "A configuration in a cell without rows of a metric is `unvalidated` there and has an interval of at "
            "least +- 40 %. Cells: dense or moe / silicon / engine, with `<` the version that ends an era of the "
            "engine, then what sets it apart. Nothing was measured of embedding and reranking servers, TPUs, Trainium "
            "and Inferentia."
        ),
        _cells(found),
        "## Errors of rows that were left out of the fit\n",
        _totals(found),
        *(f"{decision_line(d.metric, d.picks, d.broken, d.kept)}\n" for d in found.decisions),
        "## Next to others, on the same rows\n",
        _paragraph(
            "Median errors of published tools as far as they answer (a cell of at least 20 rows: accelerator, engine, "
            "dense or moe, precision), and ours on all rows of the cell with their groups left out."
        ),
        _peers(found),
        "## By group\n",
        _paragraph(
            f"A full bar is an error of {100 * _FULL:.0f} % or more, an empty one is no error; a dash stands for "
            "groups without rows of the metric."
        ),
        _plot(found.groups),
        _table(
            ["Group", "Rows", *_METRICS.values()],
            ([g.group, f"{g.rows:,}", *(percent(getattr(g, m)) for m in _METRICS)] for g in found.groups),
        ),
        _suspicious(found),
        _CONVENTION,
        _EXAMPLES,
        "## Where the numbers come from\n",
        _paragraph(found.source),
        _paragraph(found.selection),
    ]
    return "\n".join(parts)


def _plot(groups: Sequence[Group]) -> str:
    """Bars of the errors of every group, one line each."""
    widest = max((len(g.group) for g in groups), default=0)
    titles = " ".join(f"{title:<{_BAR}}" for title in _METRICS.values())
    lines = [f"{'':<{widest}} {titles}".rstrip()]
    lines += [f"{g.group:<{widest}} {' '.join(_bar(getattr(g, m)) for m in _METRICS)}".rstrip() for g in groups]
    return "\n".join(["```text", *lines, "```"]) + "\n"


def _bar(error: float | None) -> str:
    if error is None:
        return f"{'-':<{_BAR}}"
    full = round(_BAR * min(1.0, error / _FULL))
    return "█" * full + "·" * (_BAR - full)


def _paragraph(text: str) -> str:
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) + 1 > 118:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line]) + "\n"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(titles), " | ".join("---" if at == 0 else "--:" for at in range(len(titles)))]
    lines += [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def _cells(found: Document) -> str:
    def shown(metric: CellMetric | None) -> str:
        return f"{percent(metric.median_ape)} (+-{100 * metric.band:.0f} %)" if metric else "unvalidated"

    rows = (
        [f"`{name}`", f"{cell.rows:,}", f"{cell.groups}", *(shown(getattr(cell, m)) for m in _METRICS)]
        for name, cell in found.cells.items()
    )
    return _table(["Cell", "Rows", "Groups", *_METRICS.values()], rows)


def _totals(found: Document) -> str:
    names = {"groups": "Groups left out", "sources": "Sources left out", "fitted": "All rows fitted"}
    rows = (
        [names[part], _METRICS[metric], f"{t.rows:,}", percent(t.median_ape), percent(t.macro_median_ape),
         percent(t.within_20pct), percent(t.interval_coverage), percent(t.bound_coverage)]
        for part in names
        for metric, t in found.totals.get(part, {}).items()
    )  # fmt: skip
    return _table(
        ["", "Metric", "Rows", "Median", "Of groups", "Within 20 %", "In the 80 % interval", "Below the 95 % bound"],
        rows,
    )


def _suspicious(found: Document) -> str:
    rows = ([s.source, s.engine, s.model, s.accelerator, f"{s.rows:,}", s.reason] for s in found.suspicious)
    titles = ["Source", "Engine", "Model", "Accelerator", "Rows", "Evidence"]
    text = "These rows take no part in fits; they are scored like all others.\n\n"
    return f"## Rows that look wrong\n\n{text}{_table(titles, rows)}" if found.suspicious else ""


def _peers(found: Document) -> str:
    known = sorted({name for peer in found.peers for name in peer.peers if "@" not in name})
    rows = (
        [f"`{p.cell}`", _METRICS[p.metric], f"{p.rows:,}", percent(p.ours), *(percent(p.peers.get(n)) for n in known)]
        for p in found.peers
    )
    return _table(["Cell", "Metric", "Rows", "rightslice", *known], rows)
