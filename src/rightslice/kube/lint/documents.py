"""Files -> Kubernetes objects that know their lines; YAML inside of strings included."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rightslice.core.errors import BadInputError, Diagnostic, Location
from rightslice.kube.lint.values import Path, Value, dig, entries, fields, shown, text, walk
from rightslice.spec.nodes import MAX_VALUES, Node, compose_all
from rightslice.spec.nodes import Document as Tree

_HELM: Final = re.compile(
    r"\{\{-?\s*(?:/\*|(?:toYaml|include|template|define|range|with|if|else|end|tpl|required|default|quote|fromYaml)\b"
    r"|\.(?:Values|Release|Chart|Capabilities|Files|Template)\b|\$\.?[A-Za-z.]*\s*:=)"
)
_EMBEDDED: Final = re.compile(r"(?m)^[\s-]*(?:sharing|mig-configs|groups|rules|apiVersion|config|migStrategy)\s*:")
_WORTH_READING: Final = re.compile(r"apiVersion|(?m:^[\s-]*(?:sharing|mig-configs|groups)\s*:)")
_CONFIGURATION: Final = re.compile(r"(?m)^(?:sharing|mig-configs)\s*:|^version:\s*v1\s*$")
_BLOCK: Final = re.compile(r"[|>][-+0-9]*\s*(?:#.*)?$")
MAX_FILE_VALUES: Final = 1_000_000
"""Of all documents of a file, aliases expanded."""
RENDER_FIRST: Final = "render it first: helm template CHART | rightslice lint -"


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One object, or one piece of YAML inside another (`outer`, at `outer_path`).

    `source`: the lines from which it was read. `first_line`: line of the file in which they begin; `flat`: they are one
    quoted string there.
    """

    file: str
    value: Value
    tree: Node = field(repr=False)
    source: Sequence[str] = field(repr=False)
    first_line: int = 1
    flat: bool = False
    outer: Document | None = None
    outer_path: Path = ()

    @property
    def api_version(self) -> str:
        """Group and version; empty where none is stated."""
        return text(dig(self.value, "apiVersion"))

    @property
    def kind(self) -> str:
        """Of the object; empty where none is stated."""
        return text(dig(self.value, "kind"))

    @property
    def namespace(self) -> str:
        """As written; empty where the object is applied to whatever namespace is current."""
        return shown(dig(self.value, "metadata", "namespace"))

    @property
    def name(self) -> str:
        """As written."""
        return shown(dig(self.value, "metadata", "name"))

    @property
    def is_object(self) -> bool:
        """Whether it is a Kubernetes object."""
        return bool(self.api_version and self.kind)

    @property
    def label(self) -> str:
        """`Kind/namespace/name`, of the outermost object for a piece inside it."""
        if self.outer is not None:
            return self.outer.label
        return f"{self.kind}/{self.namespace or 'default'}/{self.name}" if self.kind else ""

    def get(self, *path: str | int) -> Value:
        """The value at a path, None where there is none."""
        return dig(self.value, *path)

    def line(self, path: Path) -> int:
        """Line of the key or entry at a path, of the deepest one that exists."""
        within = 1 if self.flat else Tree("", [""], self.tree).resolve((*path, "[key]")).line
        return self.first_line - 1 + within

    def node(self, path: Path) -> Node:
        """What stands at a path, of the deepest one that exists."""
        return Tree("", [""], self.tree).resolve(path)


@dataclass(frozen=True, slots=True)
class Read:
    """What one text holds, and what is wrong with it as such."""

    documents: tuple[Document, ...] = ()
    problems: tuple[Diagnostic, ...] = ()


def may_hold_objects(text_: str) -> bool:
    """Whether a file that nobody named is worth reading: it speaks of objects, alert rules or shared GPUs."""
    return _WORTH_READING.search(text_) is not None


def parse(text_: str, file: str) -> Read:
    """The objects of one file: several documents, `List` objects opened, strings that hold YAML read as well.

    A template that is no YAML before it is rendered is one warning; what cannot be read is one error.
    """
    if _HELM.search(text_):
        return Read(problems=(_template(file, text_),))
    documents: list[Document] = []
    problems: list[Diagnostic] = []
    values = 0
    try:
        for tree in compose_all(text_, file, max_values=MAX_VALUES):
            values += tree.root.size
            if values > MAX_FILE_VALUES:
                where = Location(file, tree.root.line)
                problems.append(
                    Diagnostic("RS0404", f"more than {MAX_FILE_VALUES:,} values: the rest is not read", where)
                )
                break
            if isinstance(tree.root.plain, dict | list):
                every = _opened(Document(file, tree.root.plain, tree.root, tree.lines))
                opened = [document for document in every if document.kind != "CustomResourceDefinition"]
                documents += opened
                if any(document.is_object for document in opened):
                    problems += [tree.diagnostic(found) for found in tree.findings]
    except BadInputError as error:
        problems += error.diagnostics
    if problems and "{{" in text_:
        return Read(problems=(_template(file, text_),))
    inner: list[Document] = []
    for document in documents:
        read = _embedded(document)
        inner += read.documents
        problems += read.problems
    return Read((*documents, *inner), tuple(problems))


def _template(file: str, text_: str) -> Diagnostic:
    match = _HELM.search(text_)
    line = text_[: match.start() if match else text_.index("{{")].count("\n") + 1
    return Diagnostic("RS6000", "a template is not YAML yet: not checked", Location(file, line), RENDER_FIRST, "warn")


def _opened(document: Document) -> Iterator[Document]:
    """The objects of a `List`, or of a JSON array; else the document itself."""
    value, tree = document.value, document.tree
    if isinstance(value, list):
        for item, node in zip(value, tree.items, strict=True):
            if isinstance(item, dict):
                yield from _opened(replace(document, value=item, tree=node))
    elif document.kind.endswith("List") and isinstance(value.get("items"), list):
        for item, node in zip(value["items"], tree.values["items"].items, strict=True):
            if isinstance(item, dict):
                yield from _opened(replace(document, value=item, tree=node))
    else:
        yield document


def _embedded(document: Document) -> Read:
    """YAML inside of strings: configuration of device plugins, MIG layouts, alert rules, objects."""
    documents: list[Document] = []
    problems: list[Diagnostic] = []
    values = 0
    if document.kind in ("Kustomization", "Component"):
        return Read()  # its strings are patches
    for path, value in walk(document.value):
        if not (isinstance(value, str) and "\n" in value and _EMBEDDED.search(value)) or values > MAX_FILE_VALUES:
            continue
        node = document.node(path)
        block = _BLOCK.search(document.source[node.line - 1]) is not None
        first = document.first_line - 1 + node.line + (1 if block else 0)
        try:
            trees = list(compose_all(value, document.file, max_values=MAX_VALUES))
            values += sum(tree.root.size for tree in trees)
            documents += [
                Document(document.file, tree.root.plain, tree.root, tree.lines, first, not block, document, path)
                for tree in trees
                if isinstance(tree.root.plain, dict)
            ]
        except BadInputError as error:
            if _CONFIGURATION.search(value):
                problems += [_inside(found, document, path, first if block else 0) for found in error.diagnostics]
    return Read(tuple(documents), tuple(problems))


def _inside(found: Diagnostic, document: Document, path: Path, first_line: int) -> Diagnostic:
    """A syntax mistake in a string of a document; `first_line` 0: it is no block of lines."""
    within = found.location.line if found.location else 1
    line = first_line - 1 + within if first_line else document.line(path)
    where = ".".join(map(str, path))
    message = f"{document.kind or 'document'} {document.name}: the YAML in {where} cannot be parsed: {found.message}"
    hint = found.hint or "the string is YAML of its own: mend it as such"
    return replace(found, rule="RS6010", message=message, location=Location(document.file, line), hint=hint, excerpt="")


def of_kind(documents: Iterable[Document], *kinds: str) -> Iterator[Document]:
    """The objects of some kinds, whatever their version."""
    return (document for document in documents if document.kind in kinds)


def patched_files(document: Document) -> Iterator[str]:
    """The files that a Kustomization names as patches: parts of objects, not objects."""
    for name in ("patches", "patchesStrategicMerge", "patchesJson6902"):
        for entry in entries(document.get(name)):
            path = text(entry) or text(fields(entry).get("path"))
            if path and "\n" not in path:
                yield path
