"""Tables of numbers with the names and types of their columns."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bnaf.tables.arrow import RawColumn
from bnaf.tables.ties import (
    add_grid_noise,
    check_names,
    constant_columns,
    find_columns,
    finite_rows,
    noise_steps,
    nothing_varies,
    text_columns,
    tied_columns,
    warn_of_columns,
)
from bnaf.tables.sources import Reading, read_columns
from bnaf.errors import TableError

TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of numbers, with the names and element types their columns came with.

    Args:
        rows: Values in float64, rows by columns.
        columns: Names of the columns.
        types: Element types the columns had, by NumPy's names, so that samples can be written
            with the same; float64 by default.
        grid: Steps of the grids that columns lay on before noise spread them, by name.

    Raises:
        TableError: If names, types and columns do not agree, or a name occurs twice.
    """

    rows: Tensor
    columns: tuple[str, ...]
    types: tuple[str, ...] = ()
    grid: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", self.rows.detach().to("cpu", torch.float64))
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "types", tuple(self.types) or ("float64",) * len(self.columns))
        if self.rows.dim() != 2 or self.rows.shape[1] != len(self.columns):
            raise TableError(
                f"A table of {len(self.columns)} named columns expects rows by columns, got "
                f"shape {tuple(self.rows.shape)}."
            )
        if len(self.types) != len(self.columns):
            raise TableError(
                f"A table expects one type per column ({len(self.columns)}), got "
                f"{len(self.types)}."
            )
        check_names(self.columns)
        check_types(self.types)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def features(self) -> int:
        """Number of columns."""
        return len(self.columns)

    def select(self, columns: Sequence[str]) -> "Table":
        """Return the named columns, in that order.

        Raises:
            TableError: If one of them is not there.
        """
        indices = find_columns(columns, self.columns)
        types = tuple(self.types[index] for index in indices)
        grid = {name: step for name, step in self.grid.items() if name in columns}
        return Table(self.rows[:, indices], tuple(columns), types, grid)

    def take(self, indices: Tensor) -> "Table":
        """Return the rows at some indices."""
        return replace(self, rows=self.rows[indices])


class TableSplit(NamedTuple):
    """Rows to train on, to choose by and to test with; each its own table, of one make."""

    train: Table
    valid: Table | None = None
    test: Table | None = None


def read_table(
    source: object,
    *,
    columns: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    header: bool = True,
    key: str | None = None,
    drop_missing: bool = False,
    drop_constant: bool = False,
    dequantise: bool | Sequence[str] | Mapping[str, float] = False,
    given: Sequence[str] = (),
    seed: int = 0,
    warn: bool = True,
) -> Table:
    """Read a table of numbers.

    Booleans and integers become floats; text and dates are refused by name. What makes a density
    meaningless is warned of: constant columns, values that repeat, fewer rows than columns.

    Args:
        source: Path of a CSV, Parquet, npy or npz file; "-" for CSV on standard input; an open
            file of CSV; a pandas, Polars or Arrow frame; a NumPy array or a tensor.
        columns: Which columns to read, by name and in that order; all by default.
        names: Names for the columns of an array or of a CSV file without a header, which are x0,
            x1, ... otherwise; or new names for those of a file.
        format: "csv", "parquet", "npy" or "npz", where the name of the file does not tell.
        delimiter: What stands between the values of a CSV file: a comma by default, a tab in .tsv.
        decimal: Mark before decimals in a CSV file.
        header: Whether a CSV file begins with a line of names.
        key: Which array of an npz file.
        drop_missing: Whether to leave out rows with a missing or infinite value.
        drop_constant: Whether to leave out columns that hold one value.
        dequantise: Whether to add uniform noise, as wide as the column's own grid, to columns with
            few distinct values or heavy ties; or the names of the columns to add it to; or
            widths by name, such as the ``grid`` of a table whose rows this one's go with.
        given: Columns that will be conditioned on: their values may repeat, so ties in them are
            neither warned of nor spread by ``dequantise=True``.
        seed: Seed of that noise.
        warn: Whether to warn; not wanted where a table is scored, not fitted.

    Raises:
        TableError: If there is no such table, or it holds something else than finite numbers.

    Example:
        >>> read_table([[1.0, 2.0], [3.0, 4.5]], names=["a", "b"], warn=False).select(["b"]).rows
        tensor([[2.0000],
                [4.5000]], dtype=torch.float64)
    """
    reading = Reading(format, delimiter, decimal, header, key, None if names else columns)
    raw = _numbers(_named(read_columns(source, reading), names), columns)
    labels, types = [column.name for column in raw], [column.kind for column in raw]
    rows = _stack(raw)
    rows = rows[finite_rows(rows, labels, drop_missing=drop_missing)]
    if not len(rows):
        raise TableError(
            "The table has no rows left: each has a missing or infinite value. Expected one "
            "complete row at least; fill them in, or leave out the columns that miss most."
        )
    kept, constant = _varying(rows, labels, drop_constant=drop_constant)
    rows, labels, types = rows[:, kept], [labels[i] for i in kept], [types[i] for i in kept]
    ties = tied_columns(rows, types, seed) if warn or dequantise else {}
    ties = {index: found for index, found in ties.items() if labels[index] not in given}
    steps = noise_steps(labels, dequantise, ties, rows, types)
    if warn:
        left = {index: found for index, found in ties.items() if index not in steps}
        warn_of_columns(labels, len(rows), constant, left)
    if steps:
        rows = add_grid_noise(rows, steps, np.random.default_rng(seed))
    grid = {labels[index]: step for index, step in steps.items()}
    return Table(torch.from_numpy(rows), tuple(labels), tuple(types), grid)


def check_types(types: Sequence[str]) -> None:
    """Check that types of columns are those of numbers.

    Raises:
        TableError: If one is not.
    """
    for kind in types:
        if kind not in TYPES:
            raise TableError(f"Types of columns must be among {', '.join(TYPES)}, got {kind!r}.")


def split_table(
    table: Table, valid: float = 0.1, test: float = 0.1, *, seed: int = 0
) -> TableSplit:
    """Split the rows of a table at random.

    Args:
        table: Rows to split.
        valid: Share of the rows, below 1, or number of them, to choose by; 0 for none.
        test: Share or number of rows to test with; 0 for none.
        seed: Seed of the split.

    Raises:
        TableError: If no row would be left to train on.

    Example:
        >>> split = split_table(read_table(torch.randn(100, 2)), valid=0.2, test=5)
        >>> [len(part) for part in split]
        [75, 20, 5]
    """
    rows = len(table)
    counts = [_share("valid", valid, rows), _share("test", test, rows)]
    if sum(counts) >= rows:
        raise TableError(
            f"A split of {rows:,} rows into {counts[0]:,} for validation and {counts[1]:,} for "
            "testing leaves none to train on, expected one at least; ask for fewer."
        )
    order = torch.from_numpy(np.random.default_rng(seed).permutation(rows))
    held, train = order[: sum(counts)], order[sum(counts) :]
    parts = [table.take(part) if len(part) else None for part in held.split(counts)]
    return TableSplit(table.take(train), *parts)


def align_tables(
    train: Table, valid: Table | None = None, test: Table | None = None
) -> TableSplit:
    """Return tables that were split beforehand as one split, with the columns of the first.

    Raises:
        TableError: If a column of the first is missing in another.
    """
    return TableSplit(
        train,
        None if valid is None else valid.select(train.columns),
        None if test is None else test.select(train.columns),
    )


def _named(raw: list[RawColumn], names: Sequence[str] | None) -> list[RawColumn]:
    """Give the columns other names, and check that each has its own."""
    if names is not None:
        if len(names) != len(raw):
            raise TableError(
                f"names must name each of the {len(raw)} columns, got {len(names)} names."
            )
        raw = [column._replace(name=name) for column, name in zip(raw, names, strict=True)]
    check_names([column.name for column in raw])
    return raw


def _numbers(raw: list[RawColumn], wanted: Sequence[str] | None) -> list[RawColumn]:
    """Return the wanted columns, all of them numbers."""
    if wanted is not None:
        raw = [raw[index] for index in find_columns(wanted, [column.name for column in raw])]
    if not raw:
        raise TableError("The table has no columns, expected one at least; choose some.")
    text = [column for column in raw if column.values is None]
    if text:
        remarks = [
            f"{column.kind}, such as {column.example!r}" if column.example else column.kind
            for column in text
        ]
        raise text_columns([column.name for column in text], remarks)
    return raw


def _stack(raw: list[RawColumn]) -> np.ndarray:
    values = [column.values for column in raw if column.values is not None]
    if not len(values[0]):
        raise TableError(
            f"The table has no rows, only the {len(raw)} columns "
            f"{', '.join(repr(column.name) for column in raw[:4])}; expected one row at least."
        )
    rows = np.empty((len(values[0]), len(values)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what overflows is found and counted as infinite
        for index, column in enumerate(values):
            rows[:, index] = column
    return rows


def _varying(
    rows: np.ndarray, names: list[str], *, drop_constant: bool
) -> tuple[list[int], list[int]]:
    """Return the columns to keep, and those among them that are constant."""
    everything, constant = list(range(len(names))), constant_columns(rows)
    if not drop_constant or not constant:
        return everything, constant
    kept = [index for index in everything if index not in constant]
    if not kept:
        raise nothing_varies(names, len(rows))
    return kept, []


def _share(name: str, value: float, rows: int) -> int:
    if isinstance(value, bool) or value < 0 or (value >= 1 and value != int(value)):
        raise TableError(f"{name} must be a share below 1 or a number of rows, got {value!r}.")
    return int(value) if value >= 1 else round(value * rows)
