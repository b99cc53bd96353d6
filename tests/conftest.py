"""Shared test set-up: Debian packages that a test needs, and the hypothesis profiles."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ["HF_HUB_OFFLINE"] = "1"  # tests of the hub bring their own
sys.path.insert(0, str(Path(__file__).parent))
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))  # kubectl

NO_SKIP = os.environ.get("RIGHTSLICE_NO_SKIP") == "1"
PROGRAMS = {"chromium": "chromium", "chromium-driver": "chromedriver", "prometheus": "promtool"}
_missing: set[str] = set()

settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs_debian"):
        absent = [package for package in marker.args if shutil.which(PROGRAMS[package]) is None]
        if absent:
            _missing.update(absent)
            message = f"needs {', '.join(absent)}: apt-get install {' '.join(absent)}"
            if NO_SKIP:
                pytest.fail(message, pytrace=False)
            pytest.skip(message)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _missing:
        terminalreporter.write_line(f"To run what was skipped: apt-get install {' '.join(sorted(_missing))}")
