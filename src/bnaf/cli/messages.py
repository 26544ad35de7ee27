"""Errors and warnings as single lines that say what to do at the command line."""

import errno
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from bnaf._text import printable
from bnaf.errors import Argument, BnafError, FewDrawsWarning, RedrawWarning, TableWarning, Told

FAILED, USAGE, FAULT, INTERRUPTED = 1, 2, 70, 130

OPTIONS = {
    "averaged": "--raw",
    "bounds": "--bounds",
    "columns": "--columns",
    "complete": "--complete",
    "decimal": "--decimal",
    "delimiter": "--delimiter",
    "drop_constant": "--drop-constant",
    "drop_missing": "--drop-missing",
    "flow": "--flow",
    "folder": "--data DIR",
    "format": "--format",
    "given": "--given",
    "header": "--no-header",
    "key": "--key",
    "kinds": "--as",
    "most_columns": "--most-columns",
    "most_expansion": "--most-expansion",
    "outside": "--redraw",
    "overwrite": "--force",
    "within_range": "--within-range",
}
"""What the arguments that the library advises are called here, and what goes with them."""
FLAGS = (
    "averaged",
    "header",
    "outside",
    "overwrite",
)  # options whose name says which value is meant


def say(message: str) -> None:
    """Write one line to standard error."""
    print(f"bnaf: {printable(' '.join(message.split()))}", file=sys.stderr, flush=True)


def name_option(argument: Argument) -> str:
    """Return what an argument of the library is called here, with its value.

    Example:
        >>> name_option(Argument("drop_missing", True)), name_option(Argument("delimiter", ";"))
        ('--drop-missing', "--delimiter ';'")
        >>> name_option(Argument("kinds", {"x": "number"}))
        '--as x=number'
    """
    name, value = argument
    if name == "dequantise":
        return "--dequantise=a,b" if isinstance(value, list) else "--dequantise"
    option = OPTIONS.get(name)
    if option is None:
        return str(argument)
    if name == "kinds" and isinstance(value, dict):
        pairs = [shlex.quote(f"{column}={kind}") for column, kind in value.items()]
        return " ".join(f"{option} {pair}" for pair in pairs)
    if name in FLAGS or value in (True, ...):
        return option
    word = isinstance(value, str) and value.isidentifier()
    return f"{option} {value if word else repr(value)}"


def tell(error: Told) -> str:
    """Return the message of an error or a warning with arguments named as options.

    Example:
        >>> tell(Told("leave those rows out with ", Argument("drop_missing", True), "."))
        'leave those rows out with --drop-missing.'
    """
    return "".join(
        name_option(part) if isinstance(part, Argument) else part for part in error.parts
    )


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show every warning as one line on standard error, and once."""
    told = set()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        words = f"warning: {tell(message) if isinstance(message, Told) else message}"
        if words not in told:
            say(words)
        told.add(words)

    with warnings.catch_warnings():
        for kind in (TableWarning, RedrawWarning, FewDrawsWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = show
        yield


@contextmanager
def plain_errors(*, debug: bool) -> Iterator[None]:
    """Turn errors into one line on standard error and an exit code.

    Args:
        debug: Whether to show the traceback, too.
    """
    try:
        yield
    except BnafError as error:
        _fail(tell(error), FAILED, debug)
    except KeyboardInterrupt:
        _fail("interrupted.", INTERRUPTED, debug)
    except OSError as error:
        if error.errno == errno.EPIPE:  # whoever read has seen enough; Typer ends in silence
            raise
        _fail(f"{error}; check the path and the rights to it.", FAILED, debug)
    except Exception as error:
        usage = _usage(error)
        if usage:
            _fail(usage, USAGE, debug)
        if type(error).__module__.partition(".")[0] in ("typer", "click"):
            raise
        fault = f"unexpected {type(error).__name__}: {error}. This is a fault of bnaf; "
        _fail(fault + "run it again with --debug, and report what it shows.", FAULT, debug)


def _usage(error: Exception) -> str:
    """Return what Typer has to say of wrong usage, and where to look; empty for other errors."""
    context = getattr(error, "ctx", None)
    if context is None or type(error).__name__ == "NoArgsIsHelpError":  # which shows the help
        return ""
    said = str(error.format_message()).removeprefix("Invalid value: ")  # type: ignore[attr-defined]
    return f"{said.rstrip('. ')}; see {context.command_path} --help."


def _fail(message: str, code: int, debug: bool) -> NoReturn:
    if debug:
        for line in traceback.format_exc().splitlines():
            print(printable(line), file=sys.stderr)
    say(message)
    raise typer.Exit(code)
