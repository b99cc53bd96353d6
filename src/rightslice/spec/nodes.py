"""YAML text -> a tree of values that know their line and column.

YAML 1.2 core schema (so `06:00` and `2026-08-03` stay text, `yes` too), merge keys and aliases, no tags.
Built from parser events on an explicit stack: nesting, aliases and size are bounded before anything is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeAlias

import yaml

from rightslice.core.errors import BadInputError, Diagnostic, Location, Severity
from rightslice.spec.yaml_words import plain_words

MAX_VALUES = 100_000
"""Values of one document after aliases are expanded."""
MAX_DEPTH = 64
MAX_EXCERPT = 20_000
"""Characters; a longer source line is not repeated in every diagnostic."""

Scalar: TypeAlias = str | int | float | bool | None
Plain: TypeAlias = "Scalar | list[Plain] | dict[str, Plain]"

_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_HEX_OCTAL = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]{1,400}(\.[0-9]*)?)([eE][-+]?[0-9]{1,6})?")
_WORDS: dict[str, Scalar] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan"),
}  # fmt: skip
_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})


@dataclass(slots=True, eq=False)
class Node:
    """One value: its place (1-based), the value as plain Python, and its parts.

    `size` counts the values in it and `height` its levels, aliases expanded. `text` is what stands in the file.
    """

    line: int
    column: int
    width: int
    plain: Plain = None
    text: str = ""
    quoted: bool = False
    items: list[Node] = field(default_factory=list)
    keys: dict[str, Node] = field(default_factory=dict)
    values: dict[str, Node] = field(default_factory=dict)
    size: int = 1
    height: int = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake at a node, not yet a diagnostic."""

    node: Node
    rule: str
    message: str
    hint: str = ""


@dataclass(slots=True)
class Document:
    """The tree of one file, its source lines, and mistakes that did not stop the reading."""

    file: str
    lines: list[str]
    root: Node
    findings: list[Finding] = field(default_factory=list)

    @property
    def mapping(self) -> dict[str, Plain]:
        """The whole document as plain Python; empty when it is no mapping."""
        return self.root.plain if isinstance(self.root.plain, dict) else {}

    def resolve(self, path: tuple[str | int, ...]) -> Node:
        """The node at a path; steps that the file does not have are left out. A last `[key]` asks for the key itself.

        An absent value (`fleet:` and nothing more) is shown at its key.
        """
        node, key = self.root, self.root
        for step in path:
            if step == "[key]":
                return key
            if isinstance(step, str) and step in node.values:
                node, key = node.values[step], node.keys[step]
            elif isinstance(step, int) and 0 <= step < len(node.items):
                node = key = node.items[step]
        return node if node.width else replace(node, line=key.line, column=key.column, width=key.width)

    def diagnostic(self, finding: Finding, severity: Severity = "error") -> Diagnostic:
        """The finding with its place and source line."""
        line = min(max(finding.node.line, 1), len(self.lines))
        source = self.lines[line - 1]
        column = min(max(finding.node.column, 1), len(source) + 1)
        width = max(1, min(finding.node.width, len(source) + 1 - column))
        excerpt = source if len(source) <= MAX_EXCERPT else ""
        place = Location(self.file, line, column)
        return Diagnostic(
            finding.rule, finding.message, place, finding.hint, severity, excerpt=excerpt, excerpt_width=width
        )


def compose(text: str, file: str, *, max_values: int = MAX_VALUES) -> Document:
    """Read one YAML (or JSON) document. Raises BadInputError with one diagnostic where it cannot be read at all."""
    documents = list(compose_all(text, file, max_values=max_values, most=1))
    if not documents:
        blank = not text.strip()
        message = "the file is empty" if blank else "the file holds only comments"
        raise BadInputError(Diagnostic("RS0405", message, Location(file)))
    return documents[0]


def compose_all(text: str, file: str, *, max_values: int = MAX_VALUES, most: int | None = None) -> Iterator[Document]:
    """The documents of a stream one after the other, each of at most `max_values`; none for an empty one.

    Raises BadInputError with one diagnostic where it cannot be read on, and for more than `most` documents.
    """
    text = text.removeprefix("\ufeff")
    lines = _LINE_BREAK.split(text)
    document = Document(file, lines, Node(1, 1, 1))
    bad = _UNPRINTABLE.search(text)
    if bad:
        before = _LINE_BREAK.split(text[: bad.start()])
        node = Node(len(before), len(before[-1]) + 1, 1)
        _stop(document, node, "RS0403", f"character U+{ord(bad[0]):04X} may not stand in a text file")
    count = 0
    composer = _Composer(document, max_values)
    try:
        for event in _events(text):
            if isinstance(event, yaml.DocumentStartEvent) and most is not None and count == most:
                _stop(document, _node_at(event), "RS0101", "a second document starts here; one file holds one document")
            composer.take(event)
            if isinstance(event, yaml.DocumentEndEvent) and composer.root is not None:
                document.root = composer.root
                count += 1
                yield document
                document = Document(file, lines, Node(1, 1, 1))
                composer = _Composer(document, max_values)
    except yaml.MarkedYAMLError as error:
        words = plain_words(error, lines)
        _stop(document, Node(words.line, words.column, 1), words.rule, words.message, words.hint)


def _events(text: str) -> Iterator[yaml.Event]:
    return yaml.parse(text, Loader=yaml.CSafeLoader)


def _stop(document: Document, node: Node, rule: str, message: str, hint: str = "") -> NoReturn:
    raise BadInputError(document.diagnostic(Finding(node, rule, message, hint)))


@dataclass(slots=True, eq=False)
class _Frame:
    """A collection whose end has not come yet."""

    node: Node
    is_mapping: bool
    flow: bool
    anchor: str | None
    key: Node | None = None
    merges: list[Node] = field(default_factory=list)


class _Composer:
    """Takes parser events one by one; `root` is the tree when the last has come."""

    def __init__(self, document: Document, max_values: int) -> None:
        self.root: Node | None = None
        self._document = document
        self._max_values = max_values
        self._written = 0
        self._aliased = False
        self._stack: list[_Frame] = []
        self._anchors: dict[str, Node | None] = {}

    def take(self, event: yaml.Event) -> None:
        """One event."""
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            self._open(event)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            self._close(event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        node = _node_at(event)
        node.text = event.value
        node.quoted = event.style is not None and event.style != ""
        self._refuse_tag(event, node, _TEXT_TAGS)
        node.plain = event.value if node.quoted or event.tag else _resolved(event.value)
        self._count(node)
        if event.anchor:
            self._anchors[event.anchor] = node
        self._add(node)

    def _open(self, event: yaml.SequenceStartEvent | yaml.MappingStartEvent) -> None:
        node = _node_at(event)
        self._refuse_tag(event, node, frozenset({"!"}))
        if len(self._stack) >= MAX_DEPTH:
            _stop(self._document, node, "RS0101", f"nested more than {MAX_DEPTH} levels deep")
        self._count(node)
        if event.anchor:
            self._anchors[event.anchor] = None
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        node.plain = {} if is_mapping else []
        self._stack.append(_Frame(node, is_mapping, bool(event.flow_style), event.anchor))

    def _close(self, event: yaml.Event) -> None:
        frame = self._stack.pop()
        node = frame.node
        if frame.flow:
            end = _node_at(event)
            last = end.column + end.width if end.line == node.line else len(self._line(node)) + 1
            node.width = last - node.column
        else:
            first = next(iter(node.keys.values()), None) or next(iter(node.items), None)
            node.width = first.column + first.width - node.column if first and first.line == node.line else 1
        self._merge(frame)
        if node.height > MAX_DEPTH:
            _stop(self._document, node, "RS0103", f"aliases nest more than {MAX_DEPTH} levels deep")
        if frame.anchor:
            self._anchors[frame.anchor] = node
        self._add(node)

    def _alias(self, event: yaml.AliasEvent) -> None:
        here = _node_at(event)
        name = event.anchor or ""
        if name not in self._anchors:
            _stop(self._document, here, "RS0101", f'alias "*{name[:60]}" refers to no anchor "&{name[:60]}" above it')
        node = self._anchors[name]
        if node is None:
            _stop(self._document, here, "RS0103", f'alias "*{name[:60]}" contains itself')
        self._aliased = True
        self._add(node)

    def _add(self, node: Node) -> None:
        """Put a finished value where it belongs: into the open collection, or as the root."""
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        parent = frame.node
        if not frame.is_mapping:
            parent.items.append(node)
            if isinstance(parent.plain, list):
                parent.plain.append(node.plain)
            self._grow(parent, node)
        elif frame.key is None:
            frame.key = node
        else:
            key, frame.key = frame.key, None
            if key.plain == "<<" and not key.quoted:
                frame.merges.append(node)
                self._grow(parent, node)
            else:
                self._entry(parent, key, node)

    def _entry(self, parent: Node, key: Node, value: Node) -> None:
        if isinstance(key.plain, list | dict):
            self._document.findings.append(Finding(key, "RS0105", "a key must be text, not a list or a mapping"))
            return
        if key.text in parent.keys:
            first = parent.keys[key.text]
            message = f'key "{key.text[:60]}" is written twice; first in line {first.line}'
            self._document.findings.append(Finding(key, "RS0102", message, "keep one of them"))
            return
        self._insert(parent, key, value)
        self._grow(parent, value)

    def _insert(self, parent: Node, key: Node, value: Node) -> None:
        parent.keys[key.text] = key
        parent.values[key.text] = value
        if isinstance(parent.plain, dict):
            parent.plain[key.text] = value.plain

    def _merge(self, frame: _Frame) -> None:
        """`<<: *base`: keys of the base that the mapping does not set itself; the first of several bases wins."""
        for merged in frame.merges:
            for base in merged.items if isinstance(merged.plain, list) else [merged]:
                if not isinstance(base.plain, dict):
                    message = "<< takes a mapping, or a list of mappings"
                    self._document.findings.append(Finding(base, "RS0105", message))
                for name, value in base.values.items():
                    if name not in frame.node.keys:
                        self._insert(frame.node, base.keys[name], value)

    def _grow(self, parent: Node, child: Node) -> None:
        parent.size += child.size
        parent.height = max(parent.height, child.height + 1)
        self._limit(parent)

    def _count(self, node: Node) -> None:
        frame = self._stack[-1] if self._stack else None
        if frame is None or not frame.is_mapping or frame.key is not None:
            self._written += 1
        if self._written > self._max_values:
            self._limit(Node(node.line, node.column, node.width, size=self._written))

    def _limit(self, node: Node) -> None:
        if node.size <= self._max_values:
            return
        if self._aliased:
            _stop(self._document, node, "RS0103", f"aliases expand to more than {self._max_values:,} values")
        hint = "put recorded requests into a trace file of their own: `trace: file.csv`"
        _stop(self._document, node, "RS0404", f"the file holds more than {self._max_values:,} values", hint)

    def _refuse_tag(self, event: yaml.NodeEvent, node: Node, allowed: frozenset[str]) -> None:
        tag: str | None = event.tag  # type: ignore[attr-defined]
        if tag is not None and tag not in allowed:
            shown = tag.replace("tag:yaml.org,2002:", "!!")[:60]
            _stop(self._document, node, "RS0101", f'YAML tag "{shown}" is not allowed', "write the value without a tag")

    def _line(self, node: Node) -> str:
        return self._document.lines[node.line - 1]


def _node_at(event: yaml.Event) -> Node:
    start, end = event.start_mark, event.end_mark
    if start is None or end is None:
        raise AssertionError("the parser marks every event")
    return Node(start.line + 1, start.column + 1, max(0, end.column - start.column) if start.line == end.line else 1)


def _resolved(text: str) -> Scalar:
    """A plain scalar by the YAML 1.2 core schema; whole numbers above 40 digits stay text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _HEX_OCTAL.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text
