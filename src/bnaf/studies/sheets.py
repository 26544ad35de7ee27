"""Tables of studies as they are shown, at the command line and on pages."""

from collections.abc import Sequence
from typing import NamedTuple


class Sheet(NamedTuple):
    """A table to be shown.

    Args:
        title: What it is.
        headers: Names of its columns.
        rows: Its cells.
        notes: What is to be said below it.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def as_markdown(self) -> str:
        """Return it as Markdown."""
        lines = [self.headers, ["---"] * len(self.headers), *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join([f"**{self.title}**", table, *self.notes]) + "\n"


def write_markdown(sheets: Sequence[Sheet]) -> str:
    """Return several tables as Markdown."""
    return "\n".join(sheet.as_markdown() for sheet in sheets)
