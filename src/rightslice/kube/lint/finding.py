"""What a rule finds, and the registry of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rightslice.core.errors import Diagnostic, Severity
from rightslice.core.rules import slug_of
from rightslice.kube.lint.documents import Document
from rightslice.kube.lint.values import Path

if TYPE_CHECKING:
    from rightslice.kube.lint.context import Context


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault at one place of a document. `fix` and `severity` replace the rule's own where given."""

    document: Document
    path: Path
    message: str
    fix: str = ""
    severity: Severity | None = None


Check = Callable[["Context"], Iterable[Hit]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of fault: `why` it matters, what mends it, and where that was observed."""

    code: str
    severity: Severity
    title: str
    why: str
    fix: str
    evidence: tuple[str, ...]
    check: Check

    @property
    def slug(self) -> str:
        """`area.name`."""
        return slug_of(self.code)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a person reads; `object` is `Kind/namespace/name`, empty where a file as such is at fault."""

    rule: str
    slug: str
    severity: Severity
    file: str
    line: int
    object: str
    message: str
    fix: str

    @classmethod
    def of(cls, rule: Rule, hit: Hit) -> Finding:
        """A rule's hit."""
        document = hit.document
        return cls(
            rule=rule.code,
            slug=rule.slug,
            severity=hit.severity or rule.severity,
            file=document.file,
            line=document.line(hit.path),
            object=document.label,
            message=hit.message,
            fix=hit.fix or rule.fix,
        )

    @classmethod
    def of_diagnostic(cls, found: Diagnostic, label: str = "") -> Finding:
        """What is wrong with a file or with its syntax."""
        place = found.location
        file, line = (place.file, place.line) if place else ("", 0)
        return cls(found.rule, found.slug, found.severity, file, line, label, found.message, found.hint)


_REGISTERED: Final[dict[str, Rule]] = {}


def rule(
    code: str, severity: Severity, *, title: str, why: str, fix: str, evidence: tuple[str, ...] = ()
) -> Callable[[Check], Check]:
    """Registers a check. Raises KeyError for a code without slug and ValueError for one that is taken."""
    slug_of(code)

    def register(check: Check) -> Check:
        if code in _REGISTERED:
            raise ValueError(f"{code} is registered twice")
        _REGISTERED[code] = Rule(code, severity, title, why, fix, evidence, check)
        return check

    return register


def registered() -> Mapping[str, Rule]:
    """Every rule by code, in the order of codes."""
    return dict(sorted(_REGISTERED.items()))
