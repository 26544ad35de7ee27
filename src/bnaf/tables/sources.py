"""Columns as they come: from files, streams, frames and arrays."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bnaf.tables.arrow import RawColumn, arrow_column, arrow_columns
from bnaf.tables.delimited import read_csv
from bnaf.tables.parquet import read_parquet
from bnaf.errors import TableError

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npz",
}
COMPRESSIONS = (".gz", ".bz2", ".zst")
STARTS = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"PK\x03\x04": "npz"}  # of no CSV


class Reading(NamedTuple):
    """How a source is to be read."""

    kind: str | None = None
    delimiter: str | None = None
    decimal: str = "."
    header: bool = True
    key: str | None = None
    columns: Sequence[str] | None = None


def read_columns(source: object, reading: Reading) -> list[RawColumn]:
    """Return the columns of a file, a stream, a frame or an array.

    Raises:
        TableError: If it cannot be read as a table.
    """
    if isinstance(source, str | Path):
        return _read_path(source, reading)
    if hasattr(source, "read"):
        return _read_stream(source, reading)
    if isinstance(source, torch.Tensor):
        return array_columns(_tensor_values(source))
    library = type(source).__module__.partition(".")[0]
    if library == "pandas" and hasattr(source, "columns"):
        return _pandas_columns(source)
    if library == "polars" and hasattr(source, "collect"):
        source = source.collect()
    if hasattr(source, "__arrow_c_stream__"):
        import pyarrow as pa

        return arrow_columns(pa.table(source))
    if isinstance(source, np.ndarray | Sequence) or hasattr(source, "__array__"):
        return array_columns(_as_array(source))
    raise TableError(
        "Expected a path, a file, a pandas or Polars frame, an array or a tensor, got "
        f"{type(source).__name__}; convert it to one of these."
    )


def file_format(path: Path, kind: str | None = None) -> str:
    """Return the format of a file: the one told, or that of its name.

    Raises:
        TableError: If neither says which.
    """
    if kind is not None:
        if kind not in FORMATS.values():
            raise TableError(
                f"format must be one of {', '.join(sorted(set(FORMATS.values())))}, got {kind!r}."
            )
        return kind
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    if not suffixes or suffixes[-1] not in FORMATS:
        raise TableError(
            f"Expected a file name that ends in {', '.join(FORMATS)}, got {path.name!r}; "
            'rename it, or say what it is with format="csv" or another.'
        )
    return FORMATS[suffixes[-1]]


def _read_path(source: str | Path, reading: Reading) -> list[RawColumn]:
    if str(source) == "-":
        return _read_stream(sys.stdin.buffer, reading)
    path = Path(source)
    kind = file_format(path, reading.kind)
    check_file(path)
    if kind == "csv":
        if ".tsv" in path.suffixes and reading.delimiter is None:
            reading = reading._replace(delimiter="\t")
        return arrow_columns(_read_csv(_read_bytes(path), path.name, reading))
    if kind == "parquet":
        return arrow_columns(read_parquet(path, reading.columns))
    return array_columns(_read_numpy(path, kind, reading.key))


def check_file(path: Path) -> None:
    """Check that there is a file, and something in it.

    Raises:
        TableError: If there is none, or it is empty.
    """
    if not path.is_file():
        what = "a folder" if path.is_dir() else "nothing"
        raise TableError(f"Expected a file at {path}, got {what}; check the path.")
    if path.stat().st_size == 0:
        raise TableError(f"{path.name} is empty (0 bytes), expected a table; write it again.")


def _read_bytes(path: Path) -> bytes:
    import pyarrow as pa

    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            return bytes(stream.read())
    except (OSError, pa.ArrowException) as error:
        raise TableError(f"{path.name} cannot be read: {error}; is it whole?") from None


def _read_stream(stream: Any, reading: Reading) -> list[RawColumn]:
    name = str(getattr(stream, "name", "the stream"))
    text = stream.read()
    content = text.encode() if isinstance(text, str) else bytes(text)
    found = [kind for start, kind in STARTS.items() if content.startswith(start)]
    kind = reading.kind or (found[0] if found else "csv")
    if kind != "csv":
        raise TableError(
            f"Streams are read as CSV, got {kind} from {name}; give the path of a file instead."
        )
    return arrow_columns(_read_csv(content, name, reading))


def _read_csv(text: bytes, name: str, reading: Reading) -> Any:
    return read_csv(
        text,
        name,
        delimiter=reading.delimiter,
        decimal=reading.decimal,
        header=reading.header,
    )


def _read_numpy(path: Path, kind: str, key: str | None) -> np.ndarray:
    try:
        if kind == "npy":  # a map of the file: its header cannot claim more than there is
            return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            keys = list(arrays)
            if key not in keys and not (key is None and len(keys) == 1):
                raise TableError(
                    f"{path.name} holds the arrays {', '.join(map(repr, keys)) or 'none'}, "
                    f"expected {'one' if key is None else repr(key)}; say which with key=...."
                )
            return arrays[key or keys[0]]  # type: ignore[no-any-return]
    except TableError:
        raise
    except Exception as error:
        raise TableError(
            f"{path.name} is no whole .{kind} file of numbers: {error} Write it again."
        ) from None


def _tensor_values(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    return (tensor.double() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _as_array(source: Any) -> np.ndarray:
    try:
        return source if isinstance(source, np.ma.MaskedArray) else np.asarray(source)
    except ValueError as error:
        raise TableError(
            f"Expected rows of equal length, got a list that is not: {error}"
        ) from None


def array_columns(array: np.ndarray) -> list[RawColumn]:
    """Return the columns of an array; those of a structured one keep their names."""
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
    if values.dtype.kind not in "buif" or values.ndim != 1:
        return RawColumn(name, str(values.dtype), None)
    kind = str(values.dtype) if values.dtype.itemsize <= 8 else "float64"
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    return RawColumn(name, np.dtype(kind).newbyteorder("=").name, values)


def _pandas_columns(frame: Any) -> list[RawColumn]:
    import pyarrow as pa

    columns = []
    for index, label in enumerate(frame.columns):
        name = "_".join(map(str, label)) if isinstance(label, tuple) else str(label)
        try:
            values = pa.chunked_array([pa.array(frame.iloc[:, index], from_pandas=True)])
        except pa.ArrowException:  # objects of several types
            columns.append(RawColumn(name, str(frame.dtypes.iloc[index]), None))
        else:
            columns.append(arrow_column(name, values))
    return columns
