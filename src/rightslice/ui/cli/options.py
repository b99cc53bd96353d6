"""Kinds of options that several commands share."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
"""Given or not given; there is no `--no-…` twin."""
