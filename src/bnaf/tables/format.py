"""What a file format of tables has to offer."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bnaf.errors import Argument, TableError
from bnaf.tables.arrow import ArrowColumns, RawColumn
from bnaf.tables.table import Table

MOST_COLUMNS = 2**16
MOST_EXPANSION = 100.0
FREE_BYTES = 2**24  # which any file may unpack to


class Limits(NamedTuple):
    """What a file may become in memory, so that a small one cannot fill it.

    Args:
        columns: Most columns of a table.
        expansion: Most bytes that each byte of a packed file may become; 16 MB are always free.
    """

    columns: int = MOST_COLUMNS
    expansion: float = MOST_EXPANSION

    def check_columns(self, count: int, name: str) -> None:
        """Check the number of columns of a table, before they are made.

        Raises:
            TableError: If there are more than allowed.
        """
        if count > self.columns:
            raise TableError(
                f"{name} has {count:,} columns, expected {self.columns:,} at most; if that is "
                "right, give ",
                Argument("most_columns"),
                ".",
            )

    def most_bytes(self, packed: int) -> int:
        """Return how many bytes a file of so many may become."""
        return max(FREE_BYTES, int(self.expansion * packed))

    def check_bytes(self, unpacked: int, packed: int, name: str) -> None:
        """Check what a file unpacks to, before it does.

        Raises:
            TableError: If that is more than allowed.
        """
        if unpacked > self.most_bytes(packed):
            raise TableError(
                f"{name} unpacks from {packed:,} bytes to more than {self.most_bytes(packed):,}, "
                f"{self.expansion:g} times as many and no more are expected; if that is right, "
                "give ",
                Argument("most_expansion"),
                ".",
            )


class Reading(NamedTuple):
    """How a source is to be read."""

    kind: str | None = None
    delimiter: str | None = None
    decimal: str = "."
    header: bool = True
    key: str | None = None
    columns: Sequence[str] | None = None
    limits: Limits = Limits()
    missing: Sequence[str] | None = None
    """What stands for an empty cell of a CSV file beside the usual; ``None`` where there may be
    none but in columns of numbers."""
    names: Sequence[str] | None = None
    """What the columns will be called, where that is not what the file calls them."""
    texts: Sequence[str] = ()
    """Columns of a CSV file that are text, whatever stands in them."""


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
    write: Callable[[Table | ArrowColumns, str | None], bytes] | None = None
