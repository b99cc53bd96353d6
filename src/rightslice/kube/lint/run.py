"""Documents -> findings, sorted by place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.core.rules import RULES
from rightslice.kube.lint.context import Context
from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.finding import Finding, Rule
from rightslice.kube.lint.rules.every import rules


def lint(
    documents: Sequence[Document], *, default_accelerator: str = "", chosen: Sequence[Rule] = ()
) -> tuple[Finding, ...]:
    """What the rules find in all documents taken together; `chosen`: only these, all where none is given."""
    context = Context(_once(documents), default_accelerator)
    found = {Finding.of(rule, hit) for rule in chosen or rules() for hit in rule.check(context)}
    return tuple(sorted(found, key=lambda finding: (finding.file, finding.line, finding.rule, finding.message)))


def _once(documents: Iterable[Document]) -> list[Document]:
    """Without objects that stand there twice: a tree beside its flattened form."""
    kept: list[Document] = []
    seen: dict[tuple[str, str, str, str], list[object]] = {}
    for document in documents:
        key = (document.api_version, document.kind, document.namespace, document.name)
        if document.outer is None and document.is_object:
            same = seen.setdefault(key, [])
            if document.value in same:
                continue
            same.append(document.value)
        kept.append(document)
    outer = {id(document) for document in kept}
    return [document for document in kept if document.outer is None or id(document.outer) in outer]


def select(select_: Sequence[str], ignore: Sequence[str]) -> frozenset[str]:
    """The rules to report: codes, slugs or beginnings of them (`RS64`, `probe`). Raises BadInputError RS0501."""
    known = {code: RULES[code] for code in RULES if code.startswith(("RS01", "RS04", "RS6"))}
    chosen = _named(select_, known) if select_ else frozenset(known)
    return chosen - _named(ignore, known)


def _named(names: Sequence[str], known: dict[str, str]) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        for part in filter(None, name.replace(" ", "").split(",")):
            slug = part.replace("_", "-")
            meant = {
                code for code, full in known.items()
                if code.startswith(part.upper()) or full == slug or full.partition(".")[0] == slug
            }  # fmt: skip
            if not meant:
                hint = did_you_mean(part, (*known, *known.values())) or "rules are listed in docs/lint.md"
                raise BadInputError(Diagnostic("RS0501", f'no rule is called "{part[:60]}"', None, hint))
            found |= meant
    return frozenset(found)
