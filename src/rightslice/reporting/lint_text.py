"""Findings in the forms that people and programs read: lines, SARIF 2.1.0, annotations of a GitHub workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from rightslice.core.text import plural, visible
from rightslice.kube.lint.finding import Finding, Rule
from rightslice.reporting.canvas import Style
from rightslice.reporting.text import to_ascii

SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final[Mapping[str, str]] = {"error": "error", "warn": "warning", "info": "note"}
_ANNOTATIONS: Final[Mapping[str, str]] = {"error": "error", "warn": "warning", "info": "notice"}
_COLORS: Final[Mapping[str, str]] = {"error": "\x1b[31m", "warn": "\x1b[33m", "info": "\x1b[36m"}
_RESET: Final = "\x1b[0m"


def lint_text(findings: Sequence[Finding], files: int, objects: int, style: Style) -> str:
    """Two lines for each finding, its place first, and a summary."""
    lines: list[str] = []
    for found in findings:
        place = f"{found.file}:{found.line}" if found.line else found.file
        word = f"{found.severity}[{found.rule}]"
        word = f"{_COLORS[found.severity]}{word}{_RESET}" if style.color else word
        object_ = f" {visible(found.object)}:" if found.object else ""
        lines.append(f"{visible(place)}: {word} {found.slug}:{object_} {visible(found.message)}")
        if found.fix:
            lines.append(f"    fix: {visible(found.fix)}")
    read = f"{plural(objects, 'object')} in {plural(files, 'file')}"
    counts = {severity: sum(found.severity == severity for found in findings) for severity in _LEVELS}
    named = (("error", "error"), ("warn", "warning"), ("info", "note"))
    told = ", ".join(plural(counts[severity], noun) for severity, noun in named if counts[severity])
    lines.append(f"{told or 'nothing found'} · {read}")
    text = "\n".join(lines) + "\n"
    return to_ascii(text) if style.ascii_only else text


def github_annotations(findings: Sequence[Finding]) -> str:
    """`::error file=…,line=…,title=…::message` lines, escaped as workflow commands want it."""
    lines = []
    for found in findings:
        text = f"{found.object + ': ' if found.object else ''}{found.message}" + (
            f" (fix: {found.fix})" if found.fix else ""
        )
        marks = [f"file={_property(found.file)}", f"title={_property(f'{found.rule} {found.slug}')}"]
        if found.line:
            marks.insert(1, f"line={found.line}")
        lines.append(f"::{_ANNOTATIONS[found.severity]} {','.join(marks)}::{_data(visible(text))}")
    return "".join(line + "\n" for line in lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(visible(text)).replace(":", "%3A").replace(",", "%2C")


def sarif(findings: Sequence[Finding], rules: Sequence[Rule], version: str) -> dict[str, Any]:
    """A SARIF 2.1.0 log of one run; rules that are no checks (unreadable files) are listed by code and slug."""
    described = {rule.code: rule for rule in rules}
    used = sorted({*described, *(found.rule for found in findings)})
    slugs = {found.rule: found.slug for found in findings}
    driver = {
        "name": "rightslice",
        "version": version,
        "informationUri": "https://rightslice.example/docs/lint",
        "rules": [_rule(code, described.get(code), slugs.get(code, "")) for code in used],
    }
    results = [_result(found, used.index(found.rule)) for found in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str, rule: Rule | None, slug: str) -> dict[str, Any]:
    if rule is None:
        return {"id": code, "name": slug, "shortDescription": {"text": slug}}
    return {
        "id": code,
        "name": rule.slug,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(found: Finding, index: int) -> dict[str, Any]:
    artifact = {"uri": quote(PurePath(found.file).as_posix(), safe="/:")}
    place: dict[str, Any] = {"artifactLocation": artifact, "region": {"startLine": max(1, found.line)}}
    location: dict[str, Any] = {"physicalLocation": place}
    if found.object:
        location["logicalLocations"] = [{"fullyQualifiedName": found.object}]
    text = f"{found.message}. Fix: {found.fix}" if found.fix else found.message
    return {
        "ruleId": found.rule,
        "ruleIndex": index,
        "level": _LEVELS[found.severity],
        "message": {"text": visible(text)},
        "locations": [location],
    }
