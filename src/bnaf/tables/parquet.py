"""Parquet files, opened with errors that say what is wrong."""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from bnaf.errors import TableError
from bnaf.tables.arrow import (
    ArrowColumns,
    RawColumn,
    arrow_columns,
    arrow_table,
    float_values,
    number_name,
    text_name,
    to_arrow,
)
from bnaf.tables.format import Format, Limits, Reading
from bnaf.tables.names import check_names, find_columns, text_columns
from bnaf.tables.table import Table

INDEX = re.compile(r"__index_level_\d+__")  # the index of a pandas frame, kept beside its columns

PIECE_ROWS, PIECE_VALUES = 2**15, 2**21


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file, to be read piece by piece.

    Raises:
        TableError: If it is truncated or no Parquet, now or when it is read within the block.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**18) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TableError(
            f"{path.name} is truncated or no Parquet file: {str(error)[:200]} "
            "Copy or write it again."
        ) from None


def column_names(
    file: Any, columns: Sequence[str] | None = None, limits: Limits | None = None
) -> list[str]:
    """Return the names of the wanted columns, or of all but an index of the rows.

    That is the index of a pandas frame, or a first column without a name.

    Args:
        file: An open Parquet file.
        columns: Which columns; all by default.
        limits: How many they may be; those of any file by default.

    Raises:
        TableError: If one is missing, without a name or there twice, or they are too many.
    """
    names = [name for name in file.schema_arrow.names if not INDEX.fullmatch(name)]
    names = names[1:] if len(names) > 1 and not names[0] else names
    check_names(names)
    if columns is not None:
        names = [names[index] for index in find_columns(columns, names)]
    if not names:
        raise TableError("The file has no columns to read, expected one at least; choose some.")
    (limits or Limits()).check_columns(len(names), "The file")
    return names


def column_types(file: Any, names: Sequence[str]) -> list[str]:
    """Return the element types of columns, by NumPy's names.

    Raises:
        TableError: If a column holds text or dates.
    """
    arrow = [file.schema_arrow.field(name).type for name in names]
    kinds = [number_name(kind) for kind in arrow]
    text = [index for index, kind in enumerate(kinds) if kind is None]
    if text:
        raise text_columns([names[index] for index in text], [text_name(arrow[i]) for i in text])
    return [kind for kind in kinds if kind is not None]


def number_rows(batch: Any) -> Float64[np.ndarray, "rows columns"]:
    """Return the rows of a batch of Arrow whose columns are numbers; missing values are nan."""
    return np.stack([float_values(column) for column in batch.columns], 1)


def group_rows(
    file: Any,
    group: int,
    names: Sequence[str],
    chosen: np.ndarray | None = None,
    start: int = 0,
    stop: int | None = None,
    read: Callable[[Any], Any] = number_rows,
) -> Iterator[tuple[Any, np.ndarray]]:
    """Read some rows of one row group, in order and in pieces of bounded size.

    Args:
        file: An open Parquet file.
        group: Which row group.
        names: Columns to read, in that order.
        chosen: Which of its rows count at all; all by default.
        start: First row wanted, among those that count.
        stop: Row after the last wanted; to the end by default.
        read: What to make of a batch of Arrow with these columns: numbers by default.

    Yields:
        Values, and the numbers of the rows within the group.
    """
    if stop is None:
        stop = file.metadata.row_group(group).num_rows
    size = max(1024, min(PIECE_ROWS, PIECE_VALUES // max(len(names), 1)))
    first = seen = 0  # rows that count, and rows
    for batch in file.iter_batches(size, row_groups=[group], columns=names, use_threads=False):
        numbers = np.arange(seen, seen + len(batch))
        if chosen is not None:
            numbers = numbers[chosen[seen : seen + len(batch)]]
        wanted = numbers[max(start - first, 0) : max(stop - first, 0)]
        if len(wanted):
            cells = batch.select(names)
            if len(wanted) < len(batch):
                cells = cells.take(to_arrow(wanted - seen))
            yield read(cells), wanted
        first, seen = first + len(numbers), seen + len(batch)
        if first >= stop:
            return


def _read_file(path: Path, reading: Reading) -> list[RawColumn]:
    with open_parquet(path) as file:
        names = column_names(file, reading.columns, reading.limits)
        unpacked = max(_claimed_bytes(file, names), 8 * len(names) * file.metadata.num_rows)
        reading.limits.check_bytes(unpacked, path.stat().st_size, path.name)
        table = file.read(columns=names)
        table.validate(full=True)  # texts are UTF-8, and codes those of levels
        return arrow_columns(table)


def count_empty(file: Any, names: Sequence[str]) -> int:
    """Return how many cells of columns are empty, as far as the file says so; nan is not."""
    told = [chunk.statistics for chunk in _chunks(file, names)]
    return sum(facts.null_count or 0 for facts in told if facts is not None)


def _claimed_bytes(file: Any, names: Sequence[str]) -> int:
    """Return how many bytes columns take once they are unpacked, as the file says."""
    return sum(chunk.total_uncompressed_size for chunk in _chunks(file, names))


def _chunks(file: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield what a file says of columns, for each row group."""
    wanted = set(names)
    for group in range(file.num_row_groups):
        facts = file.metadata.row_group(group)
        for index in range(facts.num_columns):
            column = facts.column(index)
            if column.path_in_schema.partition(".")[0] in wanted:
                yield column


def _write(table: Table | ArrowColumns, delimiter: str | None) -> bytes:
    from pyarrow import parquet

    content = io.BytesIO()
    parquet.write_table(arrow_table(table), content)
    return content.getvalue()


PARQUET = Format((".parquet", ".pq"), b"PAR1", _read_file, _write)
