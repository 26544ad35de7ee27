"""What is printed: tables for people, JSON for programs."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bnaf._text import printable

if TYPE_CHECKING:
    from bnaf.studies.sheets import Sheet

PIPE_WIDTH = 1000


def show_lines(*lines: str, beside: Path | None = None) -> None:
    """Print lines of text.

    Args:
        lines: What to print.
        beside: File that is written, too: where it is standard output, the lines go to standard
            error.
    """
    file = sys.stderr if beside is not None and str(beside) == "-" else sys.stdout
    for line in lines:
        print(printable(line), file=file, flush=True)


def show_table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], *, beside: Path | None = None
) -> None:
    """Print a table; colours and lines adapt to the terminal, or to there being none.

    Args:
        headers: Names of the columns.
        rows: Cells; numbers stand to the right.
        beside: As in :func:`show_lines`.
    """
    aside = beside is not None and str(beside) == "-"
    console = Console(stderr=aside, highlight=False)
    if not console.is_terminal:  # for a file or a pipe, every row is one line
        console.width = PIPE_WIDTH
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, header in enumerate(headers):
        numbers = all(_is_number(row[index]) for row in rows)
        table.add_column(
            Text(printable(header)),
            justify="right" if numbers else "left",
            no_wrap=numbers,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(printable(_cell(value))) for value in row))
    console.print(table)


def show_sheets(sheets: "Sequence[Sheet]") -> None:
    """Print tables of a study, each with its title and what is to be said below it."""
    for sheet in sheets:
        show_lines(sheet.title)
        show_table(sheet.headers, sheet.rows)
        show_lines(*sheet.notes, "")


def show_json(facts: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print facts as JSON; numbers that JSON has no word for are null."""
    print(json.dumps(_finite(facts), indent=2, allow_nan=False))


def _is_number(value: object) -> bool:
    text = _cell(value).replace(",", "")
    try:
        float(text or "0")
    except ValueError:
        return text.startswith("±")
    return True


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
