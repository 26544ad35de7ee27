"""Files and streams that a command is given, as far as they are checked without torch."""

from pathlib import Path

import typer

from bnaf._files import check_place


def is_stream(path: Path) -> bool:
    """Return whether a path stands for a standard stream."""
    return str(path) == "-"


def check_streams(*paths: object) -> None:
    """Check that standard input, or standard output, has one use at most."""
    if sum(str(path) == "-" for path in paths) > 1:
        raise typer.BadParameter("- stands for one file only; give the path of the other.")


def check_output(out: Path | None, *, as_json: bool) -> None:
    """Check that standard output is asked for either JSON or a file."""
    if as_json and out is not None and is_stream(out):
        raise typer.BadParameter("--json and a file on standard output exclude each other.")


def check_new(path: Path | None, *, force: bool) -> None:
    """Check, before the work is done, that its result can be written.

    Raises:
        StorageError: If the file exists and may not be replaced, or cannot be written.
    """
    if path is not None and not is_stream(path):
        check_place(path, overwrite=force)
