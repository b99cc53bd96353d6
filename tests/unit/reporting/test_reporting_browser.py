"""The page in a real browser: no network, no console error, nothing wider than the window, in light and dark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sample_plans
import sample_replays
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from rightslice.reporting.html import plan_html, replay_html, trials_html

pytestmark = [pytest.mark.needs_debian("chromium", "chromium-driver"), pytest.mark.slow]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    options.add_argument("--disable-background-networking")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    yield driver
    driver.quit()


OTHERS: dict[str, Callable[[], str]] = {
    "replay": lambda: replay_html(sample_replays.scaled()),
    "hostile": lambda: replay_html(sample_replays.hostile()),
    "tuning": lambda: trials_html(sample_replays.tuning()),
    "course": lambda: plan_html(sample_plans.voice(), (sample_replays.timeline(),)),
}
"""Pages with charts over time."""


def _requested(driver: webdriver.Chrome) -> set[str]:
    """URLs that our pages, not the browser's own, asked for."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return {p["request"]["url"] for p in sent if p["documentURL"].startswith("file://")}


def test_the_report_is_complete_offline_at_every_width(browser: webdriver.Chrome, tmp_path: Path) -> None:
    for name in ("voice", "infeasible", "hostile"):
        page = tmp_path / f"{name}.html"
        page.write_text(plan_html(getattr(sample_plans, name)()), encoding="utf-8")
        for width in (360, 800, 1400):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(page.as_uri())
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.execute_script("return document.title").endswith("rightslice plan")
    assert browser.get_log("browser") == []
    assert {url.rpartition("/")[2] for url in _requested(browser) if not url.startswith("data:")} == {
        "voice.html",
        "infeasible.html",
        "hostile.html",
    }


def test_dark_mode_changes_the_paper_and_text_keeps_its_contrast(browser: webdriver.Chrome, tmp_path: Path) -> None:
    page = tmp_path / "voice.html"
    page.write_text(plan_html(sample_plans.voice()), encoding="utf-8")
    papers = []
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get(page.as_uri())
        papers.append(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
        assert browser.execute_script(_LOWEST_CONTRAST) >= 4.5
    assert papers[0] != papers[1]


def test_charts_are_complete_offline_at_every_width_and_readable_in_light_and_dark(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    for name, made in OTHERS.items():
        page = tmp_path / f"{name}.html"
        page.write_text(made(), encoding="utf-8")
        for width in (360, 800, 1440):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(page.as_uri())
            browser.execute_script("document.querySelectorAll('details').forEach(e => e.open = true)")
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (name, width)
            assert browser.execute_script(_OVERLAPPING) == [], (name, width)
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            assert browser.execute_script(_LOWEST_CONTRAST) >= 4.5, (name, scheme)
    assert browser.get_log("browser") == []
    assert {url.rpartition("/")[2] for url in _requested(browser) if not url.startswith("data:")} == {
        f"{name}.html" for name in OTHERS
    }


_OVERLAPPING = """
const found = [];
for (const axis of document.querySelectorAll('svg.axis')) {
  const boxes = [...axis.querySelectorAll('text')].map(e => [e.getBoundingClientRect(), e.textContent]);
  for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
    const [a, x] = boxes[i], [b, y] = boxes[j];
    if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) found.push([x, y]);
  }
}
return found;
"""

_LOWEST_CONTRAST = """
const luminance = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => { x /= 255;
  return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
  if (c !== 'rgba(0, 0, 0, 0)') return c; } return 'rgb(255, 255, 255)'; };
let lowest = 21;
for (const e of document.querySelectorAll('p, span, li, td, th, dt, dd, h1, h2, h3, a, b, code')) {
  if (!e.textContent.trim()) continue;
  const a = luminance(getComputedStyle(e).color), b = luminance(behind(e));
  lowest = Math.min(lowest, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
}
return lowest;
"""
