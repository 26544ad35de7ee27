"""Arrays of NumPy, in memory and in files of their own."""

import datetime
import io
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from bnaf.errors import Argument, TableError
from bnaf.tables.arrow import LARGEST_WHOLE, ArrowColumns, RawColumn
from bnaf.tables.format import Format, Limits, Reading
from bnaf.tables.table import Table, typed_columns

PLAIN = (str, bool, np.bool_, Real, datetime.date, datetime.time, datetime.timedelta)
STARTS = {"npy": b"\x93NUMPY", "npz": b"PK\x03\x04"}


def array_columns(
    array: np.ndarray, name: str = "The array", limits: Limits | None = None
) -> list[RawColumn]:
    """Return the columns of an array; those of a structured one keep their names.

    Args:
        array: The array.
        name: What to call it in messages.
        limits: How many columns it may have; any number by default.

    Raises:
        TableError: If it has not two dimensions, no rows, or too many columns.
    """
    if array.ndim and not len(array):
        raise TableError(f"{name} has no rows: its shape is {array.shape}; expected one at least.")
    if limits is not None and array.ndim == 2:
        limits.check_columns(array.shape[1], name)
    if array.dtype.names:
        parts = [(name, array[name]) for name in array.dtype.names]
        return [_array_column(name, values) for name, values in parts]
    if array.ndim != 2:
        raise TableError(
            f"Expected an array of two dimensions, rows by columns, got shape {array.shape}; "
            "for one column use reshape(-1, 1), for one row reshape(1, -1)."
        )
    return [_array_column(f"x{index}", array[:, index]) for index in range(array.shape[1])]


def _array_column(name: str, values: np.ndarray) -> RawColumn:
    if values.dtype.kind in "mM" and values.ndim == 1:
        return RawColumn(name, str(values.dtype), None, cells=_dates(values), rows=len(values))
    if values.dtype.kind not in "buif" or values.ndim != 1:
        cells = object_cells(values.tolist()) if values.ndim == 1 else None
        return RawColumn(name, str(values.dtype), None, cells=cells, rows=len(values))
    kind = str(values.dtype) if values.dtype.itemsize <= 8 else "float64"
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    rounded = values.dtype.kind in "iu" and values.dtype.itemsize == 8 and bool(len(values))
    rounded = rounded and max(int(values.max()), -int(values.min())) > LARGEST_WHOLE
    return RawColumn(name, np.dtype(kind).newbyteorder("=").name, values, rounded=rounded)


def _dates(values: np.ndarray) -> Any:
    """Return NumPy's dates or durations as an Arrow column; none where Arrow has not the unit."""
    import pyarrow as pa

    try:
        return pa.chunked_array([pa.array(values)])
    except (pa.ArrowException, TypeError):
        return None


def _is_missing(cell: Any) -> bool:
    """Tell whether a cell is none, nan, or, as that of pandas, not even equal to anything."""
    try:
        return cell is None or bool(cell != cell)
    except (TypeError, ValueError):
        return True


def object_cells(cells: Iterable[Any]) -> Any:
    """Return Python's own values as an Arrow column; of several types, as text.

    ``None`` where some are neither text nor numbers nor dates.
    """
    import pyarrow as pa

    found = [None if _is_missing(cell) else cell for cell in cells]
    if not all(isinstance(cell, PLAIN) for cell in found if cell is not None):
        return None
    try:
        return pa.chunked_array([pa.array(found)])
    except (pa.ArrowException, TypeError, OverflowError):
        texts = [None if cell is None else str(cell) for cell in found]
        return pa.chunked_array([pa.array(texts, pa.string())])


def _read_npy(path: Path, reading: Reading) -> list[RawColumn]:
    _check_start(path, "npy")
    try:  # a map of the file: its header cannot claim more than there is
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        raise _broken(path, "npy", error) from None
    return array_columns(array, path.name, reading.limits)


def _read_npz(path: Path, reading: Reading) -> list[RawColumn]:
    _check_start(path, "npz")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            keys, key = list(arrays), reading.key
            if key not in keys and not (key is None and len(keys) == 1):
                raise TableError(
                    f"{path.name} holds the arrays {', '.join(map(repr, keys)) or 'none'}, "
                    f"expected {'one' if key is None else repr(key)}; say which with ",
                    Argument("key"),
                    ".",
                )
            name = key or keys[0]
            unpacked = sum(
                part.file_size
                for part in arrays.zip.infolist()
                if part.filename in (name, f"{name}.npy")
            )
            reading.limits.check_bytes(unpacked, path.stat().st_size, path.name)
            array = arrays[name]
    except TableError:
        raise
    except Exception as error:
        raise _broken(path, "npz", error) from None
    return array_columns(array, path.name, reading.limits)


def _check_start(path: Path, kind: str) -> None:
    """Refuse a file that does not begin as one of its format does.

    Raises:
        TableError: If it does not; one of the other format is told so.
    """
    with path.open("rb") as file:
        start = file.read(max(map(len, STARTS.values())))
    if start.startswith(STARTS[kind]):
        return
    for other, expected in STARTS.items():
        if start.startswith(expected):
            raise TableError(
                f"{path.name} is an {other} file; give ", Argument("format", other), "."
            )
    raise TableError(
        f"{path.name} is no .{kind} file: it does not begin as one, with {STARTS[kind]!r}; say "
        "what it is by ",
        Argument("format"),
        ".",
    )


def _broken(path: Path, kind: str, error: Exception) -> TableError:
    return TableError(f"{path.name} is no whole .{kind} file of numbers: {error} Write it again.")


def _write_npy(table: Table | ArrowColumns, delimiter: str | None) -> bytes:
    if not isinstance(table, Table):
        raise TableError(
            "An npy file expects numbers alone, got columns of other kinds; end the name of the "
            "file in .csv or .parquet."
        )
    content = io.BytesIO()
    same = len(set(table.types)) == 1
    columns = typed_columns(table) if same else table.rows.numpy().T
    np.save(content, np.stack(list(columns), 1), allow_pickle=False)
    return content.getvalue()


NPY = Format((".npy",), STARTS["npy"], _read_npy, _write_npy)
NPZ = Format((".npz",), STARTS["npz"], _read_npz)
