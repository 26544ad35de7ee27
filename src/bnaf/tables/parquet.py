"""Parquet files, opened with errors that say what is wrong."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bnaf.tables.arrow import float_values, number_name, text_name
from bnaf.tables.ties import check_names, find_columns, text_columns
from bnaf.errors import TableError

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
    except (pa.ArrowException, OSError) as error:
        raise TableError(
            f"{path.name} is truncated or no Parquet file: {str(error)[:200]} "
            "Copy or write it again."
        ) from None


def column_names(file: Any, columns: Sequence[str] | None = None) -> list[str]:
    """Return the names of the wanted columns, or of all but the index of a pandas frame.

    Raises:
        TableError: If one is missing, without a name or there twice.
    """
    names = [name for name in file.schema_arrow.names if not INDEX.fullmatch(name)]
    check_names(names)
    if columns is not None:
        names = [names[index] for index in find_columns(columns, names)]
    if not names:
        raise TableError("The file has no columns to read, expected one at least; choose some.")
    return names


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Return the Arrow table of a Parquet file, or some of its columns."""
    with open_parquet(path) as file:
        return file.read(columns=column_names(file, columns))


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


def group_rows(
    file: Any, group: int, names: Sequence[str], start: int = 0, stop: int | None = None
) -> Iterator[np.ndarray]:
    """Read some rows of one row group, in order and in pieces of bounded size.

    Args:
        file: An open Parquet file.
        group: Which row group.
        names: Columns to read, in that order.
        start: First row wanted.
        stop: Row after the last wanted; to the end by default.
    """
    stop = file.metadata.row_group(group).num_rows if stop is None else stop
    size = max(1024, min(PIECE_ROWS, PIECE_VALUES // max(len(names), 1)))
    first = 0
    for batch in file.iter_batches(size, row_groups=[group], columns=names, use_threads=False):
        low, high = max(start - first, 0), min(stop - first, len(batch))
        if low < high:
            columns = [float_values(batch.column(name)) for name in names]
            yield np.stack(columns, 1)[low:high]
        first += len(batch)
        if first >= stop:
            return
