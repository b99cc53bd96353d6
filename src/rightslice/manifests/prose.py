"""Pieces of Markdown."""

from __future__ import annotations

import re

from rightslice.core.text import visible


def plain(text: str) -> str:
    """Text from the plan, inert in Markdown: no code, emphasis, link, HTML or table cell of its own."""
    return re.sub(r"([\\`*\[\]<|])", r"\\\1", visible(text))


def shell(*commands: str) -> str:
    """A block of commands."""
    return "```sh\n" + "\n".join(commands) + "\n```"
