"""The `rightslice` program: its commands, the question table, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from cyclopts import App

from rightslice import __version__
from rightslice.core.errors import BadInputError, Diagnostic
from rightslice.ui.cli import (
    accuracy,
    calibrate,
    catalog,
    compare,
    cost,
    diff,
    documents,
    emit,
    explain,
    lint,
    loadtest,
    plan,
    predict,
    simulate,
    size,
    trace,
)
from rightslice.ui.cli.failures import guarded
from rightslice.ui.cli.output import open_closed_streams, write_text

QUESTIONS: Final = (
    ("Does it fit, on what?", "size"),
    ("How fast will it be?", "predict"),
    ("What should I deploy, what will it cost?", "plan"),
    ("Why this plan, and what would change it?", "explain"),
    ("What differs between two plans?", "diff"),
    ("Which of several models?", "compare"),
    ("What would happen if …?", "simulate"),
    ("Where are its manifests?", "emit"),
    ("Is my YAML right?", "lint"),
    ("How fast is a real endpoint?", "loadtest"),
    ("What does its measurement say of the model?", "calibrate"),
    ("How much to reserve? Own or rent?", "cost"),
    ("How good are its predictions?", "accuracy"),
    ("What hardware, models and engines are known?", "catalog"),
    ("What is my recorded traffic like?", "trace"),
    ("How do I start a workload file?", "init"),
    ("What may stand in a workload file, in a plan?", "schema"),
)
"""In the order in which people ask."""

_MAY_BE_EMPTY: Final = ("--engine-args", "--engine-version")

HELP: Final = """\
rightslice plans GPU inference on Kubernetes from one workload file, and verifies the plan in simulation.

{questions}

`rightslice COMMAND --help` lists a command's options. Most commands take --json.
Exit codes: 0 yes, 1 the answer is no, 2 bad input, 3 an outside system failed, 130 interrupted
Start with: rightslice init, then rightslice plan workload.yaml -o out
"""


def build() -> App:
    """The program with its commands; what they return is the exit code."""
    app = App(
        name="rightslice",
        help=HELP.partition("\n")[0],
        version=f"rightslice {__version__}",
        result_action="return_value",
        print_error=False,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        verbose=False,
    )
    app.command(size.size)
    app.command(predict.predict)
    app.command(plan.plan)
    app.command(compare.compare)
    app.command(explain.explain)
    app.command(diff.diff)
    app.command(simulate.simulate)
    app.command(emit.emit)
    app.command(lint.lint)
    app.command(loadtest.loadtest)
    app.command(calibrate.calibrate)
    app.command(cost.build())
    app.command(accuracy.accuracy)
    app.command(catalog.build())
    app.command(trace.trace)
    app.command(documents.init)
    app.command(documents.schema)
    return app


def help_text() -> str:
    """The question table."""
    width = max(len(question) for question, _ in QUESTIONS)
    return HELP.format(questions="\n".join(f"  {question:<{width}}  {command}" for question, command in QUESTIONS))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises."""
    open_closed_streams()
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(lambda: _run(tokens), as_json="--json" in tokens, quiet="--quiet" in tokens)


def _run(tokens: list[str]) -> int:
    if not tokens or tokens in (["--help"], ["-h"], ["help"]):
        write_text(help_text())
        return 0
    if any(not token and before not in _MAY_BE_EMPTY for before, token in zip(["", *tokens], tokens, strict=False)):
        raise BadInputError(Diagnostic("RS0503", "one argument is empty", hint="an unset variable of the shell?"))
    if tokens[0] in {"--help", "-h"}:
        tokens = [*tokens[1:], "--help"]
    code = build()(tokens)
    return code if isinstance(code, int) else 0
