"""What a file format of tables has to offer."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bnaf.tables.arrow import RawColumn
from bnaf.tables.table import Table


class Reading(NamedTuple):
    """How a source is to be read."""

    kind: str | None = None
    delimiter: str | None = None
    decimal: str = "."
    header: bool = True
    key: str | None = None
    columns: Sequence[str] | None = None


class Format(NamedTuple):
    """A file format.

    Args:
        suffixes: What names of its files end in.
        start: First bytes that no CSV has, if it has such.
        read: From a file to its columns.
        write: From a table and a delimiter to the content of a file; ``None`` where it is not
            written.
    """

    suffixes: tuple[str, ...]
    start: bytes | None
    read: Callable[[Path, Reading], list[RawColumn]]
    write: Callable[[Table, str | None], bytes] | None = None
