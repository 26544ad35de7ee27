"""Frames: columns of every kind, with a mask of their empty cells."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64

from bnaf.errors import TableError
from bnaf.tables.arrow import arrow_columns
from bnaf.tables.cells import arrow_cells, frame_column
from bnaf.tables.column import Column
from bnaf.tables.format import MOST_COLUMNS, MOST_EXPANSION, Limits, Reading
from bnaf.tables.names import find_columns
from bnaf.tables.sources import give_names, part_index, read_columns
from bnaf.tables.table import Table
from bnaf.tables.ties import finite_rows

EMPTY = ("?", " ", "-", ".", "<NA>")  # in a CSV file, beside "", "NA", "NULL", "nan" and their kin


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of equal length, of numbers, texts, categories, dates or times.

    Args:
        columns: The columns.
        index: Column that was left out as an index of the rows, if there was one.
        numbers: Numbers of the rows in what they were read from, counted from zero.
    """

    columns: tuple[Column, ...]
    index: str | None = None
    numbers: Int64[np.ndarray, " rows"] = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        rows = {len(column) for column in self.columns}
        if len(rows) != 1:
            raise TableError(
                f"A frame expects columns of one length, got {sorted(rows) or 'no columns'}."
            )
        if len(self.numbers) != len(self):
            object.__setattr__(self, "numbers", np.arange(len(self)))

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the columns of text, or of categories that are."""
        return tuple(
            column.name
            for column in self.columns
            if column.holds == "texts" and column.of == "text"
        )

    @property
    def complete(self) -> Bool[np.ndarray, " rows"]:
        """Which rows have neither an empty cell nor an infinite number."""
        found: np.ndarray = np.logical_and.reduce([column.finite for column in self.columns])
        return found

    def __getitem__(self, name: str) -> Column:
        return self.columns[find_columns([name], self.names)[0]]

    def select(self, names: Sequence[str]) -> "Frame":
        """Return the named columns, in that order.

        Raises:
            TableError: If one of them is not there.
        """
        found = tuple(self.columns[index] for index in find_columns(names, self.names))
        return replace(self, columns=found)

    def renamed(self, names: Sequence[str]) -> "Frame":
        """Return the same columns with other names, in their order."""
        named = [replace(own, name=name) for own, name in zip(self.columns, names, strict=True)]
        return replace(self, columns=tuple(named))

    def take(self, indices: Any) -> "Frame":
        """Return the rows at some indices, or those that a mask marks."""
        indices = np.asarray(indices)
        columns = tuple(column.take(indices) for column in self.columns)
        return replace(self, columns=columns, numbers=self.numbers[indices])

    def as_table(self) -> Table:
        """Return columns of numbers as a table.

        Raises:
            TableError: If a cell is no number, or empty.
        """
        columns = [column.as_numbers() for column in self.columns]
        rows = np.stack([column.values for column in columns], 1)
        finite_rows(rows, self.names)
        types = tuple(column.type for column in columns)
        return Table(torch.from_numpy(rows), self.names, types, {}, torch.from_numpy(self.numbers))

    def to_arrow(self) -> Any:
        """Return the columns as an Arrow table, in the types they came with."""
        import pyarrow as pa

        cells = [arrow_cells(column) for column in self.columns]
        return pa.Table.from_arrays(cells, names=list(self.names))

    def to_pandas(self) -> Any:
        """Return the columns as a pandas frame; pandas must be installed.

        Columns that came in a nullable type (Int64, boolean, string) are of one again, and so are
        whole numbers and truth values that may be empty.
        """
        types = {column.name: column.pandas_type for column in self.columns}
        return self.to_arrow().to_pandas().astype({n: kind for n, kind in types.items() if kind})

    def to_polars(self) -> Any:
        """Return the columns as a Polars frame; Polars must be installed."""
        import polars

        return polars.from_arrow(self.to_arrow())


def read_frame(
    source: object,
    *,
    columns: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    header: bool = True,
    key: str | None = None,
    missing: Sequence[str] = (),
    texts: Sequence[str] = (),
    most_columns: int = MOST_COLUMNS,
    most_expansion: float = MOST_EXPANSION,
) -> Frame:
    """Read a table of any kind of columns; cells may be empty.

    A first column without a name, as R and pandas write the numbers of rows, is an index: it is
    left out, and the frame says so.

    Args:
        source: Path of a CSV, Parquet, npy or npz file; "-" for CSV on standard input; an open
            file of CSV; a pandas, Polars or Arrow frame; a NumPy array or a tensor; columns by
            name, each a list, or one value each for a single row; a list of such rows; a table or
            a frame of ours.
        columns: Which columns to read, by name and in that order; all by default.
        names: Names for the columns of an array or of a CSV file without a header, which are x0,
            x1, ... otherwise; or new names for those of a file.
        format: "csv", "parquet", "npy" or "npz", where the name of the file does not tell.
        delimiter: What stands between the values of a CSV file: a comma by default, a tab in .tsv.
        decimal: Mark before decimals in a CSV file.
        header: Whether a CSV file begins with a line of names.
        key: Which array of an npz file.
        missing: What else stands for an empty cell of a CSV file, beside nothing at all, "NA",
            "NULL", "nan", "?" and their kin.
        texts: Columns of a CSV file that are text, even if all that stands in one looks like
            numbers, dates, or true and false; guessed by default.
        most_columns: Most columns that a file may have; one with more is refused at once.
        most_expansion: Most bytes that each byte of a packed file may become.

    Raises:
        TableError: If there is no such table.

    Example:
        >>> frame = read_frame({"cut": ["Ideal", None], "carat": [0.3, 0.4]})
        >>> frame.names, frame["cut"].empty.tolist(), frame["carat"].type
        (('cut', 'carat'), [False, True], 'float64')
    """
    if isinstance(source, Frame):
        return source if columns is None else source.select(columns)
    if isinstance(source, Table):
        frame = _from_table(source)
        return frame if columns is None else frame.select(columns)
    limits = Limits(most_columns, most_expansion)
    markers = (*EMPTY, *missing)
    wanted = None if names else columns
    reading = Reading(
        format, delimiter, decimal, header, key, wanted, limits, markers, names, texts
    )
    raw = read_columns(source, reading)
    index, raw = (None, raw) if names is not None else part_index(raw, columns)
    raw = give_names(raw, names)
    if columns is not None:
        raw = [raw[place] for place in find_columns(columns, [column.name for column in raw])]
    if not raw:
        raise TableError("The table has no columns, expected one at least; choose some.")
    frame = Frame(tuple(frame_column(column) for column in raw), index)
    if not len(frame):
        raise TableError(
            f"The table has no rows, only {len(raw)} columns; expected one row at least."
        )
    return frame


def arrow_frame(cells: Any, numbers: Int64[np.ndarray, " rows"] | None = None) -> Frame:
    """Return the columns of an Arrow table, or of a batch of one, as they are.

    Args:
        cells: The table or batch.
        numbers: Numbers of its rows in what they were read from; from zero by default.
    """
    import pyarrow as pa

    if isinstance(cells, pa.RecordBatch):
        cells = pa.Table.from_batches([cells])
    columns = tuple(frame_column(raw) for raw in arrow_columns(cells))
    return Frame(columns) if numbers is None else Frame(columns, numbers=numbers)


def _from_table(table: Table) -> Frame:
    rows = table.rows.numpy()
    return Frame(
        tuple(
            Column(name, kind, rows[:, place].copy(), np.isnan(rows[:, place]))
            for place, (name, kind) in enumerate(zip(table.columns, table.types, strict=True))
        )
    )
