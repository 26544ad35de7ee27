"""Tables of numbers with the names and types of their columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bnaf.errors import TableError
from bnaf.tables.names import check_names, find_columns

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
        numbers: Numbers of the rows in what they were read from, counted from zero; all, in their
            order, by default.
        cells: Ends of the cells that the values of some columns stand for, in order, by name: a
            fit of that column alone takes their masses.

    Raises:
        TableError: If names, types and columns do not agree, or a name occurs twice.
    """

    rows: Tensor
    columns: tuple[str, ...]
    types: tuple[str, ...] = ()
    grid: Mapping[str, float] = field(default_factory=dict)
    numbers: Tensor | None = None
    cells: Mapping[str, Tensor] = field(default_factory=dict)

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
        find_columns([*self.cells], self.columns)
        cells = {name: ends.detach().to("cpu", torch.float64) for name, ends in self.cells.items()}
        object.__setattr__(self, "cells", cells)
        for name, ends in cells.items():
            rising = ends.dim() == 1 and len(ends) > 1 and bool((ends.diff() > 0).all())
            if not rising or not bool(ends.isfinite().all()):
                raise TableError(
                    f"The ends of the cells of {name} must be finite and rise, two of them at "
                    f"least, got {ends.tolist()}."
                )
        numbers = torch.arange(len(self.rows)) if self.numbers is None else self.numbers
        object.__setattr__(self, "numbers", numbers)

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
        cells = {name: ends for name, ends in self.cells.items() if name in columns}
        return Table(self.rows[:, indices], tuple(columns), types, grid, self.numbers, cells)

    def take(self, indices: Tensor) -> "Table":
        """Return the rows at some indices."""
        assert self.numbers is not None
        return replace(self, rows=self.rows[indices], numbers=self.numbers[indices])

    def to_arrow(self) -> Any:
        """Return the columns as an Arrow table, in the types they came with."""
        import pyarrow as pa

        return pa.Table.from_arrays(typed_columns(self), names=list(self.columns))

    def to_pandas(self) -> Any:
        """Return the columns as a pandas frame; pandas must be installed."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return the columns as a Polars frame; Polars must be installed."""
        import polars

        return polars.from_arrow(self.to_arrow())


class TableSplit(NamedTuple):
    """Rows to train on, to choose by and to test with; each its own table, of one make."""

    train: Table
    valid: Table | None = None
    test: Table | None = None


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


def check_types(types: Sequence[str]) -> None:
    """Check that types of columns are those of numbers.

    Raises:
        TableError: If one is not.
    """
    for kind in types:
        if kind not in TYPES:
            raise TableError(f"Types of columns must be among {', '.join(TYPES)}, got {kind!r}.")


def typed_columns(table: Table) -> list[np.ndarray]:
    """Return the columns of a table in the types they came with."""
    return [
        typed_values(values, kind)
        for values, kind in zip(table.rows.numpy().T, table.types, strict=True)
    ]


def typed_values(values: np.ndarray, kind: str) -> np.ndarray:
    """Return numbers in a type, rounded and within its range where it is one of whole numbers."""
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        return values >= 0.5
    if dtype.kind not in "iu":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    top = float(limits.max)
    if int(top) > limits.max:  # the largest of 64 bits is no float, and rounds up
        top = float(np.nextafter(top, 0))
    return values.round().clip(float(limits.min), top).astype(dtype)
