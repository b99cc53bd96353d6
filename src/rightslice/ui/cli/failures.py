"""Every way a command can fail -> a message on standard error and an exit code; the only broad `except`."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable

from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnusedCliTokensError,
    ValidationError,
)

from rightslice.core.errors import BadInputError, Diagnostic, Location, RightsliceError
from rightslice.core.render import render_diagnostics
from rightslice.ui.cli.output import write_json, write_note

INTERRUPTED = 130
BAD_INPUT = 2


def guarded(command: Callable[[], int], *, as_json: bool, quiet: bool) -> int:
    """Run `command`; whatever happens becomes an exit code, never a traceback (unless RIGHTSLICE_DEBUG=1)."""
    try:
        return command()
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return _interrupted()
    except SystemError as error:  # what compiled code makes of an interrupt
        if _was_interrupt(error):
            return _interrupted()
        return _report(_unexpected(error), as_json=as_json, quiet=quiet)
    except CycloptsError as error:
        return _report(_usage(error), as_json=as_json, quiet=quiet)
    except RightsliceError as error:
        return _report(error, as_json=as_json, quiet=quiet)
    except Exception as error:  # noqa: BLE001 - the last resort: a person never sees a traceback
        if os.environ.get("RIGHTSLICE_DEBUG") == "1":
            traceback.print_exc()
        return _report(_unexpected(error), as_json=as_json, quiet=quiet)


def _interrupted() -> int:
    write_note("interrupted")
    return INTERRUPTED


def _was_interrupt(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _report(error: RightsliceError, *, as_json: bool, quiet: bool) -> int:
    """Blocks with the source line for people; one line each for pipes, CI and `--quiet`."""
    one_line = quiet or not sys.stderr.isatty()
    shown = "\n".join(d.one_line() for d in error.diagnostics) if one_line else render_diagnostics(error)
    with contextlib.suppress(BrokenPipeError, RightsliceError):
        write_note(shown)
    if as_json:
        with contextlib.suppress(BrokenPipeError, RightsliceError):
            write_json({"error": error_document(error)})
    return error.exit_code


def error_document(error: RightsliceError) -> dict[str, object]:
    """The failure as data: code, message, location, hint, and every diagnostic."""
    return {
        "code": error.code,
        "message": error.message,
        "location": _location(error.location),
        "hint": error.hint,
        "diagnostics": [
            {
                "rule": diagnostic.rule,
                "slug": diagnostic.slug,
                "severity": diagnostic.severity,
                "message": diagnostic.message,
                "location": _location(diagnostic.location),
                "hint": diagnostic.hint,
            }
            for diagnostic in error.diagnostics
        ],
    }


def _location(location: Location | None) -> dict[str, object] | None:
    return {"file": location.file, "line": location.line, "column": location.column} if location else None


def _usage(error: CycloptsError) -> BadInputError:
    """A mistake on the command line in one sentence; the hint names the help of that command."""
    command = " ".join(("rightslice", *(error.command_chain or ())))
    code, message = _usage_message(error)
    return BadInputError(Diagnostic(code, message, hint=f"see {command} --help"))


def _usage_message(error: CycloptsError) -> tuple[str, str]:
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.keyword or error.argument.name
        return "RS0503", f"{name} needs a value" if name.startswith("-") else f"{name} is missing"
    if isinstance(error, UnusedCliTokensError) and not isinstance(error, UnknownCommandError):
        return "RS0503", f"unexpected argument: {' '.join(error.unused_tokens or ())}"
    code = "RS0501" if isinstance(error, CoercionError | ValidationError) else "RS0503"
    text = str(error).strip().replace("\n", " ")
    return code, text[:1].lower() + text[1:].rstrip(".")


def _unexpected(error: Exception) -> BadInputError:
    detail = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    hint = "please report it with the output of the same command under RIGHTSLICE_DEBUG=1"
    return BadInputError(Diagnostic("RS9001", f"unexpected failure: {detail}", hint=hint))
