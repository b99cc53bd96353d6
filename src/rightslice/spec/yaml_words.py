"""What the YAML parser says, in words that tell how to mend it."""

from __future__ import annotations

from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True)
class Words:
    """A syntax mistake: rule, message, hint and place (1-based)."""

    rule: str
    message: str
    hint: str
    line: int
    column: int


_WORDS: dict[str, tuple[str, str]] = {
    "mapping values are not allowed in this context": (
        'a ":" where no key can stand',
        "check the indentation; put text that contains ': ' in quotes",
    ),
    "block sequence entries are not allowed in this context": (
        'a "- " where no list can start',
        "start the list on a line of its own",
    ),
    "could not find expected ':'": ('a key without ":"', "write key: value"),
    "did not find expected key": ("a key was expected here", "check the indentation, quotes and brackets before it"),
    "did not find expected '-' indicator": ('a list entry "- " was expected here', "check the indentation"),
    "did not find expected ',' or ']'": ('a list "[" is not closed', "',' or ']' is missing"),
    "did not find expected ',' or '}'": ('a mapping "{" is not closed', "',' or '}' is missing"),
    "did not find expected node content": ("a value was expected here", "check the brackets before it"),
    "did not find expected <document start>": ("the document has ended before this", "check brackets and indentation"),
    "found unexpected end of stream": ("a quote is not closed", "close it, or put the text in other quotes"),
    "found unknown escape character": ("unknown escape in a quoted text", "write \\\\ for a backslash"),
    "did not find expected alphabetic or numeric character": (
        'a name is expected after "*" or "&"',
        "put text that starts with it in quotes",
    ),
    "did not find expected comment or line break": (
        'nothing may stand here after "|" or ">"',
        "start the text on the next line, or put it in quotes",
    ),
    "found unexpected ':'": ('a ":" where none can stand', "put text that contains ':' in quotes"),
    "found a tab character that violates indentation": ("a tab where YAML wants spaces", "indent with spaces"),
    "mapping keys are not allowed in this context": ('a "?" where no key can stand', "put text in quotes"),
    "found undefined tag handle": ("YAML tags are not allowed", "put text that starts with '!' in quotes"),
    "exceeded maximum nesting depth": ("nested too deep", ""),
}


def plain_words(error: yaml.MarkedYAMLError, lines: list[str]) -> Words:
    """The parser's error as rule RS0101. An opening bracket or quote without its end is shown, not the file's end."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    problem = error.problem or "it cannot be read"
    message, hint = _WORDS.get(problem, (f"not YAML: {problem}", "put text with special characters in quotes"))
    at_end = line >= len(lines) - 1 and not "".join(lines[line:])[column:].strip()
    unclosed = problem == "found unexpected end of stream" or (at_end and "flow" in (error.context or ""))
    if unclosed and error.context_mark:
        line, column = error.context_mark.line, error.context_mark.column
    elif problem == "found character that cannot start any token":
        message, hint = _bad_start(lines[line][column : column + 1] if line < len(lines) else "")
    return Words("RS0101", message, hint, line + 1, column + 1)


def _bad_start(character: str) -> tuple[str, str]:
    if character == "\t":
        return "a tab where YAML wants spaces", "indent with spaces"
    return f'a value may not start with "{character}"', "put it in quotes"
