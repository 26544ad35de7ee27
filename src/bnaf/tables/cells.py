"""Cells of a frame to and from Arrow: numbers, text, categories, dates and times."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from bnaf.errors import TableError
from bnaf.tables.arrow import STRINGS, RawColumn, arrow_column, number_name, to_arrow
from bnaf.tables.column import DATES, Column
from bnaf.tables.marks import read_days
from bnaf.tables.names import list_columns
from bnaf.tables.table import TYPES, typed_values

DATED = re.compile(r"\d{4}-\d\d-\d\d")
SECONDS_OF_DAY = 86400
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # of a second
ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([\w/+:-]{1,64})\]")


def frame_column(raw: RawColumn) -> Column:
    """Return a column as it came, with a mask of its empty cells."""
    return replace(_column(raw), nullable=raw.nullable)


def _column(raw: RawColumn) -> Column:
    cells = raw.cells
    if raw.values is None and cells is not None and number_name(cells.type):
        raw = arrow_column(raw.name, cells)  # Python's own numbers
    if raw.values is not None and (cells is None or not _is_dictionary(cells.type)):
        values = np.asarray(raw.values, np.float64)
        return Column(raw.name, raw.kind, values, np.isnan(values))
    if cells is None:
        return _objects(raw.name, raw.kind, raw.rows)
    if _is_text(cells.type) or _is_dictionary(cells.type):
        return _texts(raw.name, cells)
    if str(cells.type).startswith(DATES):
        return _dates(raw.name, cells)
    return _objects(raw.name, str(cells.type), len(cells))


def arrow_cells(column: Column) -> Any:
    """Return the cells of a column as an Arrow array of the type they came with."""
    import pyarrow as pa

    if column.holds == "numbers":
        plain = np.where(column.empty, 0.0, column.values)
        return _masked(to_arrow(typed_values(plain, column.type)), column.empty)
    if column.holds == "dates":
        kind = date_type(column.type)
        within = np.clip(np.where(column.empty, 0, column.values), *_tick_range(kind))
        ticks = to_arrow(within.astype(np.int64))
        small = pa.types.is_date32(kind) or pa.types.is_time32(kind)
        return _masked((ticks.cast(pa.int32()) if small else ticks).cast(kind), column.empty)
    if column.holds == "objects":
        return pa.nulls(len(column))
    levels: Any = pa.array(column.levels, pa.string())
    if column.of in TYPES:
        levels = levels.cast(pa.from_numpy_dtype(np.dtype(column.of)))
    codes = to_arrow(np.where(column.empty, 0, column.values).astype(np.int32))
    if not len(levels):
        return pa.nulls(len(column), pa.string())
    codes = _masked(codes, column.empty)
    found = pa.DictionaryArray.from_arrays(codes, levels, ordered=column.type == "ordered")
    return found.cast(levels.type) if column.type == "text" else found


def date_type(name: str) -> Any:
    """Return the Arrow type of dates or times that a name stands for.

    Raises:
        ValueError: If it stands for none.
    """
    import pyarrow as pa

    zoned = ZONED.fullmatch(name)
    if zoned:
        return pa.timestamp(zoned[1], zoned[2])
    if not name.startswith(DATES):
        raise ValueError(f"expected a type of dates, got {name!r:.40}")
    return pa.type_for_alias(name)


def _tick_range(kind: Any) -> tuple[int, int]:
    """Return the least and the largest tick of a type of dates or times."""
    import pyarrow as pa

    if pa.types.is_time(kind):
        return 0, SECONDS_OF_DAY * TICKS[kind.unit] - 1
    ends = np.iinfo(np.int32 if pa.types.is_date32(kind) else np.int64)
    return int(ends.min), int(ends.max)


def is_dated(column: Column) -> bool:
    """Return whether a column holds text that is all dates, such as 2024-12-31."""
    if column.holds != "texts" or not column.levels or not DATED.match(column.levels[0]):
        return False
    try:
        as_dates(column)
    except TableError:
        return False
    return True


def as_dates(column: Column) -> Column:
    """Return the same cells as dates or times: text is parsed.

    Days may also be written 31.12.2024 or 12/31/2024, where some day is above 12.

    Raises:
        TableError: If a cell is none, or day and month cannot be told apart.
    """
    import pyarrow as pa
    from pyarrow import compute

    if column.holds == "dates":
        return column
    orders = read_days(column.levels)
    if len(orders) > 1:
        raise TableError(
            f"{list_columns([column.name])} holds dates such as {column.levels[0]!r}, of which "
            f"day and month cannot be told apart ({' or '.join(orders)}); write them as "
            "2024-12-31."
        )
    if orders:
        (found,) = orders.values()
        ticks = np.array([*found, 0])[np.where(column.empty, -1, column.values)]
        return Column(column.name, "date32[day]", ticks, column.empty)
    try:
        if column.holds != "texts":
            raise pa.ArrowInvalid(column.type)
        texts = pa.array(column.levels, pa.string())
        times = texts.cast(pa.timestamp("us"))
    except pa.ArrowException:
        raise TableError(
            f"{list_columns([column.name])} holds {column.type}, expected dates; write them as "
            "2024-12-31, or give a type of dates."
        ) from None
    days = compute.equal(compute.max(compute.utf8_length(texts)), 10).as_py()
    parsed = _dates(column.name, times.cast(pa.date32()) if days else times)
    ticks = np.append(parsed.values, 0)[np.where(column.empty, -1, column.values)]
    return Column(column.name, parsed.type, ticks, column.empty)


def _as_written(cells: Any) -> Any:
    """Return a dictionary of anything as one of the texts that people write for its values."""
    import pyarrow as pa

    chunks = []
    for chunk in cells.chunks if isinstance(cells, pa.ChunkedArray) else [cells]:
        texts = [None if value is None else str(value) for value in chunk.dictionary.to_pandas()]
        values = pa.array(texts, pa.large_string())
        chunks.append(pa.DictionaryArray.from_arrays(chunk.indices, values))
    kind = pa.dictionary(cells.type.index_type, pa.large_string())
    return pa.chunked_array(chunks, kind)


def _objects(name: str, kind: str, rows: int) -> Column:
    return Column(name, kind, np.zeros(rows, np.int64), np.ones(rows, dtype=bool))


def _texts(name: str, cells: Any) -> Column:
    """Return texts by code; a category keeps the order of its levels, and those it has."""
    import pyarrow as pa

    kind, of = "text", "text"
    if _is_dictionary(cells.type):
        kind = "ordered" if cells.type.ordered else "category"
        of = number_name(cells.type.value_type) or "text"
        if not _is_text(cells.type.value_type) and of == "text":  # of dates or intervals, say
            cells = _as_written(cells)
    else:
        cells = cells.cast(pa.large_string()).dictionary_encode()
    joined = cells.unify_dictionaries().combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        joined = pa.concat_arrays(joined.chunks)
    texts = joined.dictionary.cast(pa.large_string()).to_pylist()
    codes, empty = _ticks(joined.indices.cast(pa.int64()))
    blank = [index for index, text in enumerate(texts) if text is None]
    if blank:
        empty = empty | np.isin(codes, blank)
        texts = ["" if text is None else text for text in texts]
    return Column(name, kind, codes, empty, tuple(texts), of)


def _dates(name: str, cells: Any) -> Column:
    import pyarrow as pa

    kind = cells.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        cells = cells.cast(pa.int32())
    values, empty = _ticks(cells.cast(pa.int64()))
    return Column(name, str(kind), values, empty)


def _ticks(cells: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers and which are empty, read off memory: Arrow's way imports pandas."""
    import pyarrow as pa

    values, empty = [np.empty(0, np.int64)], [np.empty(0, bool)]
    for chunk in cells.chunks if isinstance(cells, pa.ChunkedArray) else [cells]:
        if not len(chunk):
            continue
        present, data = chunk.buffers()
        values.append(np.frombuffer(data, np.int64, len(chunk), 8 * chunk.offset))
        mask = np.zeros(len(chunk), bool)
        if chunk.null_count:
            bits = np.unpackbits(np.frombuffer(present, np.uint8), bitorder="little")
            mask = bits[chunk.offset : chunk.offset + len(chunk)] == 0
        empty.append(mask)
    return np.concatenate(values), np.concatenate(empty)


def _masked(cells: Any, empty: np.ndarray) -> Any:
    from pyarrow import compute

    return compute.if_else(to_arrow(~empty), cells, None) if empty.any() else cells


def _is_text(kind: Any) -> bool:
    return str(kind) in STRINGS


def _is_dictionary(kind: Any) -> bool:
    return str(kind).startswith("dictionary")
