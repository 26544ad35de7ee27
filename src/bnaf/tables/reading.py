"""Reading a table, from whatever holds one."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from bnaf.errors import TableError
from bnaf.tables.arrow import RawColumn, text_example
from bnaf.tables.format import MOST_COLUMNS, MOST_EXPANSION, Limits, Reading
from bnaf.tables.names import find_columns, text_columns
from bnaf.tables.sources import give_names, part_index, read_columns
from bnaf.tables.table import Table
from bnaf.tables.ties import (
    add_grid_noise,
    constant_columns,
    finite_rows,
    noise_steps,
    nothing_varies,
    tied_columns,
    warn_of_columns,
    warn_of_index,
    warn_of_rounding,
)


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
    most_columns: int = MOST_COLUMNS,
    most_expansion: float = MOST_EXPANSION,
    drop_missing: bool = False,
    drop_constant: bool = False,
    dequantise: bool | Sequence[str] | Mapping[str, float] = False,
    given: Sequence[str] = (),
    seed: int = 0,
    warn: bool = True,
) -> Table:
    """Read a table of numbers.

    Booleans and integers become floats; text and dates are refused by name. What makes a density
    meaningless is warned of: constant columns, values that repeat, fewer rows than columns. So is
    a first column without a name, which R and pandas number rows by: it is left out.

    Args:
        source: Path of a CSV, Parquet, npy or npz file; "-" for CSV on standard input; an open
            file of CSV; a pandas, Polars or Arrow frame; columns by name in a dict, or a list of
            dicts, one a row; a NumPy array or a tensor.
        columns: Which columns to read, by name and in that order; all by default.
        names: Names for the columns of an array or of a CSV file without a header, which are x0,
            x1, ... otherwise; or new names for those of a file.
        format: "csv", "parquet", "npy" or "npz", where the name of the file does not tell.
        delimiter: What stands between the values of a CSV file: a comma by default, a tab in .tsv.
        decimal: Mark before decimals in a CSV file.
        header: Whether a CSV file begins with a line of names.
        key: Which array of an npz file.
        most_columns: Most columns that a file may have; one with more is refused at once.
        most_expansion: Most bytes that each byte of a packed file may become; 16 MB are always
            free. What unpacks to more is refused before it fills the memory.
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
    limits = Limits(most_columns, most_expansion)
    wanted = None if names else columns
    reading = Reading(format, delimiter, decimal, header, key, wanted, limits)
    found = read_columns(source, reading)
    index, found = (None, found) if names is not None else part_index(found, columns)
    raw = _numbers(give_names(found, names), columns)
    labels, types = [column.name for column in raw], [column.kind for column in raw]
    rows = _stack(raw)
    complete = finite_rows(rows, labels, drop_missing=drop_missing)
    rows, numbers = rows[complete], torch.from_numpy(np.flatnonzero(complete))
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
        if index is not None and columns is None:
            warn_of_index()
        warn_of_rounding([column.name for column in raw if column.rounded])
        left = {index: found for index, found in ties.items() if index not in steps}
        warn_of_columns(labels, len(rows), constant, left)
    if steps:
        rows = add_grid_noise(rows, steps, np.random.default_rng(seed))
    grid = {labels[index]: step for index, step in steps.items()}
    return Table(torch.from_numpy(rows), tuple(labels), tuple(types), grid, numbers)


def _numbers(raw: list[RawColumn], wanted: Sequence[str] | None) -> list[RawColumn]:
    """Return the wanted columns, all of them numbers."""
    if wanted is not None:
        raw = [raw[index] for index in find_columns(wanted, [column.name for column in raw])]
    if not raw:
        raise TableError("The table has no columns, expected one at least; choose some.")
    text = [column for column in raw if column.values is None]
    if text:
        examples = [text_example(c.cells) if c.kind == "text" else "" for c in text]
        remarks = [
            f"{column.kind}, such as {example!r}" if example else column.kind
            for column, example in zip(text, examples, strict=True)
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
