"""Columns of Arrow tables as NumPy arrays."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from bnaf.tables.table import Table, typed_columns

NUMPY_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}


STRINGS = ("string", "large_string", "string_view")
LARGEST_WHOLE = 2**53  # up to which float64 has every whole number


@runtime_checkable
class ArrowColumns(Protocol):
    """What has columns of any kind, as a frame does."""

    def to_arrow(self) -> Any:
        """Return the columns as an Arrow table."""


class RawColumn(NamedTuple):
    """Column before it is checked; its values are ``None`` where they are no numbers."""

    name: str
    kind: str
    values: np.ndarray | None
    rounded: bool = False
    """Whether it has whole numbers that float64 does not."""
    cells: Any = None
    """What Arrow has of it, where it came that way; text and dates are there alone."""
    rows: int = 0
    """How many cells it has, where they cannot be read at all."""
    nullable: bool = False
    """Whether it came in a type of pandas that has a value for empty cells."""


def arrow_columns(table: Any) -> list[RawColumn]:
    """Return the columns of an Arrow table."""
    return [
        arrow_column(name, table.column(index)) for index, name in enumerate(table.column_names)
    ]


def arrow_column(name: str, column: Any) -> RawColumn:
    """Return one column; missing values are nan."""
    kind = number_name(column.type)
    if kind is None:
        return RawColumn(name, text_name(column.type), None, cells=column)
    rounded = _is_rounded(column, kind)
    return RawColumn(name, kind, float_values(column), rounded=rounded, cells=column)


def _is_rounded(column: Any, kind: str) -> bool:
    if kind not in ("int64", "uint64") or not len(column):
        return False
    from pyarrow import compute

    ends = compute.min_max(column.cast(_plain(column.type))).as_py()
    return any(end is not None and abs(end) > LARGEST_WHOLE for end in ends.values())


def number_name(kind: Any) -> str | None:
    """Return NumPy's name of an Arrow type of numbers, or ``None`` for other types."""
    import pyarrow as pa

    kind = _plain(kind)
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return "float64"
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return NUMPY_NAMES.get(str(kind), str(kind))
    return None


def text_name(kind: Any) -> str:
    """Return what to call an Arrow type that stands for no numbers."""
    plain = str(_plain(kind))
    binary = plain.startswith(("binary", "large_binary", "fixed_size_binary"))
    return "text" if plain in STRINGS or binary else plain


def float_values(column: Any) -> np.ndarray:
    """Return the numbers of an Arrow column in float64; missing values are nan."""
    import pyarrow as pa

    values = column.cast(_plain(column.type)).cast(pa.float64(), safe=False)
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    parts = [_chunk_values(chunk) for chunk in chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.empty(0)


def _chunk_values(chunk: Any) -> np.ndarray:
    """Return the numbers of one piece, read off its memory: Arrow's own way imports pandas."""
    present, data = chunk.buffers()
    values = np.frombuffer(data, np.float64, len(chunk), 8 * chunk.offset)
    if not chunk.null_count:
        return values
    bits = np.unpackbits(np.frombuffer(present, np.uint8), bitorder="little")
    return np.where(bits[chunk.offset : chunk.offset + len(chunk)], values, np.nan)


def to_arrow(values: np.ndarray) -> Any:
    """Return numbers as an Arrow array, without a look at pandas."""
    import pyarrow as pa

    packed = np.packbits(values, bitorder="little") if values.dtype == bool else values
    memory = pa.py_buffer(np.ascontiguousarray(packed))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, memory])


def arrow_table(table: Table | ArrowColumns) -> Any:
    """Return a table as one of Arrow, in the types its columns came with."""
    import pyarrow as pa

    if not isinstance(table, Table):
        return table.to_arrow()
    columns = [to_arrow(values) for values in typed_columns(table)]
    return pa.Table.from_arrays(columns, names=list(table.columns))


def _plain(kind: Any) -> Any:
    """Return the type of the values, where they are stored by number in a dictionary."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def text_example(column: Any) -> str:
    """Return the first value that is neither a number nor missing, where there are strings."""
    from pyarrow import csv

    missing = csv.ConvertOptions().null_values
    for chunk in column.iterchunks():
        for value in chunk.to_pylist():
            text = value.decode(errors="replace") if isinstance(value, bytes) else value
            if isinstance(text, str) and not parses(text) and text not in missing:
                return text if len(text) <= 20 else text[:20] + "..."
    return ""


def parses(text: str) -> bool:
    """Tell whether Python reads a number off a text."""
    try:
        float(text)
    except ValueError:
        return False
    return True
