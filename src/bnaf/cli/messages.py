"""Errors and warnings as single lines that say what to do at the command line."""

import errno
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from bnaf.laws.distribution import RedrawWarning
from bnaf.errors import BnafError, TableWarning

FAILED, USAGE, FAULT, INTERRUPTED = 1, 2, 70, 130

WORDING = {
    r"drop_missing=True": "--drop-missing",
    r"drop_constant=True": "--drop-constant",
    r"dequantise=True, or with a list of names": "--dequantise, or --dequantise=a,b",
    r"dequantise expects": "--dequantise expects",
    r"ParquetStream\(path, columns=\[\.\.\.\]\)": "with --columns, or read it with --no-stream",
    r"dequantise=True": "--dequantise",
    r"columns=\[\.\.\.\]": "--columns",
    r"delimiter=\.\.\.": "--delimiter",
    r"delimiter=('[^']*')": r"--delimiter \1",
    r"decimal=('[^']*')": r"--decimal \1",
    r"header=False": "--no-header",
    r"overwrite=True": "--force",
    r"give folder=\.\.\.": "give --data DIR",
    r"key=\.\.\.": "--key",
    r'format="csv"': "--format csv",
    r"call it with given=\.\.\.": "add --given column=value",
    r"call it without given": "leave out --given",
    r'sample\(\.\.\., outside="redraw"\)': "--redraw",
    r"(, or|or) resume=False to overwrite it": r"\1 remove it",
}
"""What the library advises its callers, and what that is called here."""


def say(message: str) -> None:
    """Write one line to standard error."""
    print(f"bnaf: {' '.join(message.split())}", file=sys.stderr, flush=True)


def translate(message: str) -> str:
    """Return a message of the library with arguments named as options.

    Example:
        >>> translate("leave out those 3 of 9 rows with drop_missing=True.")
        'leave out those 3 of 9 rows with --drop-missing.'
    """
    for argument, option in WORDING.items():
        message = re.sub(argument, option, message)
    return message


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show every warning as one line on standard error."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        say(f"warning: {translate(str(message))}")

    with warnings.catch_warnings():
        for kind in (TableWarning, RedrawWarning):
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
        _fail(translate(str(error)), FAILED, debug)
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
        traceback.print_exc()
    say(message)
    raise typer.Exit(code)
