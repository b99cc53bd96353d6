"""House rules that no linter knows: module length, machine paths, registry hosts, third-party code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 600
REGISTRY = re.compile(r"(pypi\.org|pythonhosted\.org|registry\.npmjs\.org|deb\.debian\.org)")
MACHINE_PATH = re.compile(r"(^|[\s\"'`(=])/(work|root)/")
THIRD_PARTY = re.compile(r"(\.min\.(js|css)$|(^|/)vendor/|(^|/)(uv\.lock|package-lock\.json)$)")
NAMES_OF_ITSELF = {"tools/check_house.py"}
FOREIGN = ("tests/data/lint/",)
"""What other people mount in their containers is no path of a machine of ours."""


def problems(name: str) -> list[str]:
    """What is wrong with one tracked file."""
    path = ROOT / name
    found = [f"{name}: third-party or addressed lock file"] if THIRD_PARTY.search(name) else []
    if name in NAMES_OF_ITSELF or not path.is_file() or path.stat().st_size > 3_000_000:
        return found
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return found
    lines = text.count("\n")
    if name.endswith(".py") and lines > MAX_LINES:
        found.append(f"{name}: {lines} lines, the limit is {MAX_LINES}")
    if REGISTRY.search(text):
        found.append(f"{name}: names a package registry host")
    if MACHINE_PATH.search(text) and not name.startswith(FOREIGN):
        found.append(f"{name}: a path of one machine")
    return found


def main() -> int:
    """Print every problem; 1 when there is one."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    files = listed.stdout.splitlines() or [
        str(p.relative_to(ROOT))
        for top in ("src", "tests", "tools", "docs", "examples")
        for p in (ROOT / top).rglob("*")
    ]
    found = [line for name in sorted(files) for line in problems(name)]
    print("\n".join(found) if found else f"house rules hold in {len(files)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
