"""Diagnostics as plain text for a terminal."""

from __future__ import annotations

from rightslice.core.errors import BadInputError, Diagnostic, RightsliceError
from rightslice.core.text import cells, visible

WIDTH = 100
MAX_SHOWN = 50


def render_diagnostics(error: RightsliceError) -> str:
    """Every mistake with its source line, and at the end how many there are and what to do next.

    More than 50 are counted, not shown. No final newline.
    """
    found = error.diagnostics
    blocks = [render_diagnostic(diagnostic) for diagnostic in found[:MAX_SHOWN]]
    if len(found) > MAX_SHOWN:
        blocks.append(f"… and {len(found) - MAX_SHOWN:,} more")
    next_command = error.next_command if isinstance(error, BadInputError) else ""
    if len(found) > 1 or next_command:
        blocks.append(_summary(found) + (f" next: {next_command}" if next_command else ""))
    return "\n".join(blocks)


def render_diagnostic(diagnostic: Diagnostic) -> str:
    """`error[RS0312] file:12:28: message`, the source line, carets under the token and the hint; one line without."""
    place = diagnostic.location
    if place is None or not place.line or not diagnostic.excerpt:
        return diagnostic.one_line()
    head = f"{diagnostic.severity}[{diagnostic.rule}] {visible(str(place))}: {visible(diagnostic.message)}"
    before, token, after = _cut(diagnostic.excerpt, place.column - 1, diagnostic.excerpt_width)
    gutter = f"{place.line:>5} | "
    carets = " " * cells(before) + "^" * max(1, cells(token))
    hint = f" {visible(diagnostic.hint)}" if diagnostic.hint else ""
    return f"{head}\n{gutter}{(before + token + after).rstrip()}\n{' ' * (len(gutter) - 2)}| {carets}{hint}"


def _cut(line: str, start: int, width: int) -> tuple[str, str, str]:
    """What stands before, in and after the token, together at most WIDTH characters, `…` where text is left out."""
    start = max(0, min(start, len(line)))
    token = line[start : start + max(1, min(width, WIDTH // 2))]
    end = start + len(token)
    first = 0 if len(line) <= WIDTH else max(0, min(start - WIDTH // 3, len(line) - WIDTH))
    last = min(len(line), first + WIDTH)
    before = ("…" if first else "") + line[first + (first > 0) : start]
    after = line[end : last - (last < len(line))] + ("…" if last < len(line) else "")
    return visible(before), visible(token), visible(after)


def _summary(found: tuple[Diagnostic, ...]) -> str:
    errors = sum(diagnostic.severity == "error" for diagnostic in found)
    others = len(found) - errors
    parts = [f"{n:,} {word}{'' if n == 1 else 's'}" for n, word in ((errors, "error"), (others, "warning")) if n]
    return ", ".join(parts) + "."
