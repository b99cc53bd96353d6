"""`rightslice lint`: files and folders of manifests, read with bounds, and what the rules find in them together."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rightslice.catalogue.accelerators import accelerators, resolve_device
from rightslice.core.errors import BadInputError, Diagnostic, Location, did_you_mean
from rightslice.kube.lint.documents import Document, may_hold_objects, of_kind, parse, patched_files
from rightslice.kube.lint.finding import Finding, Rule
from rightslice.kube.lint.rules.every import rules
from rightslice.kube.lint.run import lint, select
from rightslice.spec.source import read_text

MAX_FILE_BYTES: Final = 8_000_000
MAX_FILES: Final = 20_000
MAX_TOTAL_BYTES: Final = 200_000_000
STANDARD_INPUT: Final = "-"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_SKIPPED: Final = frozenset({".git", "node_modules", ".venv", "__pycache__", ".terraform"})
_NOT_KUBERNETES: Final = frozenset({"Chart.yaml", "Chart.lock", "package.json", "package-lock.json", "tsconfig.json"})
_RANK: Final = {"error": 0, "warn": 1, "info": 2}
FailOn = Literal["error", "warn", "never"]


@dataclass(frozen=True, slots=True)
class LintReport:
    """`files`: read; `objects`: Kubernetes objects in them; `findings`: by file and line."""

    findings: tuple[Finding, ...]
    files: int
    objects: int
    rules: int

    def fails(self, on: FailOn) -> bool:
        """Whether the answer is no."""
        worst = min((_RANK[finding.severity] for finding in self.findings), default=len(_RANK))
        return on != "never" and worst <= _RANK[on]

    def count(self, severity: str) -> int:
        """Findings of that severity."""
        return sum(finding.severity == severity for finding in self.findings)


def lint_paths(
    paths: Sequence[Path], *, only: Sequence[str] = (), ignore: Sequence[str] = (), accelerator: str = ""
) -> LintReport:
    """All manifests under `paths` taken together; `-` is standard input. `accelerator`: where nothing names another.

    A file that cannot be read is one finding. Raises BadInputError RS0501 for unknown rules, RS0312 for an unknown
    accelerator, RS0401 for a path that does not exist.
    """
    chosen = select(only, ignore)
    if accelerator and resolve_device(accelerator) is None:
        hint = did_you_mean(accelerator, accelerators())
        raise BadInputError(Diagnostic("RS0312", f'unknown accelerator "{accelerator[:80]}"', None, hint))
    documents, problems, files = _read(paths)
    found = [Finding.of_diagnostic(problem) for problem in problems]
    used = [rule for rule in rules() if rule.code in chosen]
    found += lint(documents, default_accelerator=accelerator, chosen=used) if used else ()
    kept = (finding for finding in found if finding.rule in chosen)
    ordered = sorted(kept, key=lambda finding: (finding.file, finding.line, finding.rule, finding.message))
    objects = sum(document.is_object and document.outer is None for document in documents)
    return LintReport(tuple(ordered), files, objects, len(used))


def lint_rules() -> tuple[Rule, ...]:
    """Every rule, for reports and the reference."""
    return rules()


def _read(paths: Sequence[Path]) -> tuple[list[Document], list[Diagnostic], int]:
    """The objects of all files, without those that a Kustomization applies as patches."""
    documents: list[Document] = []
    problems: list[Diagnostic] = []
    total, files = 0, 0
    for name, named in _files(paths, problems):
        try:
            text = _standard_input() if name == STANDARD_INPUT else read_text(name, max_bytes=MAX_FILE_BYTES)
        except BadInputError as error:
            problems += error.diagnostics
            continue
        if not named and not may_hold_objects(text):
            continue
        total += len(text)
        if total > MAX_TOTAL_BYTES:
            problems.append(
                Diagnostic(
                    "RS0404", f"more than {MAX_TOTAL_BYTES // 10**6} MB in all: the rest is not read", Location(name)
                )
            )
            break
        files += 1
        read = parse(text, name)
        documents += read.documents
        problems += read.problems
    patches = {
        os.path.normpath(Path(document.file).parent / file)
        for document in of_kind(documents, "Kustomization", "Component") for file in patched_files(document)
    }  # fmt: skip
    return [document for document in documents if os.path.normpath(document.file) not in patches], problems, files


def _standard_input() -> str:
    """Raises BadInputError RS0403 or RS0404."""
    place = Location(STANDARD_INPUT)
    try:
        text = sys.stdin.read(MAX_FILE_BYTES + 1)
    except UnicodeDecodeError:
        raise BadInputError(Diagnostic("RS0403", "not UTF-8 text", place, "save it as UTF-8")) from None
    if len(text) > MAX_FILE_BYTES:
        raise BadInputError(Diagnostic("RS0404", f"larger than {MAX_FILE_BYTES / 1e6:g} MB", place))
    return text


def _files(paths: Sequence[Path], problems: list[Diagnostic]) -> Iterator[tuple[str, bool]]:
    """Files, and whether they are named: YAML and JSON below named folders, by name; folders behind links are not."""
    count = 0
    for path in paths:
        if str(path) == STANDARD_INPUT:
            yield STANDARD_INPUT, True
            continue
        folder = _is_folder(path)
        for name in _below(path, problems) if folder else [str(path)]:
            count += 1
            if count > MAX_FILES:
                problems.append(
                    Diagnostic("RS0404", f"more than {MAX_FILES:,} files: the rest is not read", Location(name))
                )
                return
            yield name, not folder


def _is_folder(path: Path) -> bool:
    """Raises BadInputError RS0401 for what does not exist."""
    try:
        path.stat()
    except (OSError, ValueError):
        read_text(path)  # says what is wrong with it
    return path.is_dir()


def _below(folder: Path, problems: list[Diagnostic]) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        place = Location(str(error.filename))
        problems.append(Diagnostic("RS0406", f"cannot be read: {error.strerror or error}", place))

    for place, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in sorted(names):
            if Path(name).suffix.lower() in _SUFFIXES and name not in _NOT_KUBERNETES:
                yield str(Path(place) / name)
