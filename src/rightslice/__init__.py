"""Plan, verify in simulation, and deploy GPU inference on Kubernetes from one workload file.

The functions live in `rightslice.api` and load on first use; importing this package loads nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rightslice.api import Asked, LintReport, Load, WhatIf, diff, explain, lint, plan, predict, simulate, size
    from rightslice.core.errors import RightsliceError

__version__ = "0.1.0"
__all__ = [
    "Asked", "LintReport", "Load", "RightsliceError", "WhatIf", "__version__", "diff", "explain", "lint", "plan",
    "predict", "simulate", "size",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "RightsliceError":
        from rightslice.core.errors import RightsliceError  # noqa: PLC0415 - lazy by design

        return RightsliceError
    if name in __all__:
        from rightslice import api  # noqa: PLC0415 - lazy by design

        return getattr(api, name)
    raise AttributeError(f"module 'rightslice' has no attribute {name!r}")
