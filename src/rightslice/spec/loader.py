"""Workload files: text in, a checked `Workload` out, or every mistake at once with its line and column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.spec.checks import idle_models, workload_problems
from rightslice.spec.fields import Known, Problem
from rightslice.spec.mistakes import bad_input, diagnostics_of
from rightslice.spec.nodes import Document, Finding, Plain, compose
from rightslice.spec.sections import Section
from rightslice.spec.source import MAX_BYTES, read_text
from rightslice.spec.workload import API_VERSION, Workload

NOTHING_KNOWN: Final = Known()
_TRACE_HINT: Final = "put recorded requests into a file of their own: `trace: file.csv`"
_KINDS: Final = ("Workload", "Layout")

D = TypeVar("D", bound=Section)


@dataclass(frozen=True, slots=True)
class LoadedWorkload:
    """A workload that is right in itself, with what to watch out for.

    `plain` is the document as written (base types, aliases and merge keys resolved), for `--set` and `--vary`.
    """

    workload: Workload
    file: str
    warnings: tuple[Diagnostic, ...]
    text: str
    plain: dict[str, Plain]


def load_workload(path: Path | str, known: Known = NOTHING_KNOWN) -> LoadedWorkload:
    """Read and check a workload file of at most 2 MB. Raises BadInputError with every mistake, in file order."""
    return parse_workload(read_document(path), file=str(path), known=known)


def parse_workload(text: str, *, file: str, known: Known = NOTHING_KNOWN) -> LoadedWorkload:
    """The same for text (YAML or JSON); `file` is its name in diagnostics."""
    workload, document = parse_document(text, Workload, workload_problems, file=file, known=known)
    warnings = tuple(
        document.diagnostic(Finding(document.resolve(idle.path), idle.rule, idle.reason, idle.hint), "warn")
        for idle in idle_models(document.mapping)
    )
    return LoadedWorkload(workload, file, warnings, text, document.mapping)


def read_document(path: Path | str) -> str:
    """The text of a document file; what is wrong with the file as such is one diagnostic."""
    try:
        return read_text(path, max_bytes=MAX_BYTES, too_large_hint=_TRACE_HINT)
    except BadInputError as error:
        raise bad_input(error.diagnostics, "rightslice init") from None


def parse_document(
    text: str, model: type[D], checks: Callable[[object], list[Problem]], *, file: str, known: Known = NOTHING_KNOWN
) -> tuple[D, Document]:
    """Text -> a document of `model`'s kind. `checks` look at the plain document beside the checks of single values."""
    try:
        document = compose(text, file)
    except BadInputError as error:
        raise bad_input(error.diagnostics, "rightslice init") from None
    foreign = _foreign(document, model.__name__)
    if foreign:
        raise bad_input([document.diagnostic(foreign)], "rightslice init")
    plain = document.root.plain
    valid: D | None = None
    invalid: ValidationError | None = None
    try:
        valid = model.model_validate(plain, context=known, by_alias=True, by_name=False)
    except ValidationError as error:
        invalid = error
    found = diagnostics_of(document, invalid, checks(plain), model)
    if found or valid is None:
        raise bad_input(found, "rightslice schema")
    return valid, document


def _foreign(document: Document, kind: str) -> Finding | None:
    """What is not a document of this kind at all gets one finding instead of one for each key."""
    root = document.root
    if root.plain is None:
        return Finding(root, "RS0405", "the document is empty")
    if not isinstance(root.plain, dict):
        found = "a list" if isinstance(root.plain, list) else "a single value"
        return Finding(
            root, "RS0104", f"a mapping is expected, this is {found}", f"start with apiVersion: {API_VERSION}"
        )
    if "schema" in root.values and "kind" not in root.values:
        said = root.values["schema"].text[:40]
        return Finding(root.values["schema"], "RS0203", f'a {kind} document is expected, this is "{said}"')
    stated, version = root.plain.get("kind"), str(root.plain.get("apiVersion"))
    if isinstance(stated, str) and stated != kind and (stated in _KINDS or not version.startswith("rightslice/")):
        message = f"a {kind} document is expected, this is {stated[:60]}"
        return Finding(root.values["kind"], "RS0203", message, f"apiVersion: {API_VERSION}, kind: {kind}")
    return None
