"""Columns as they come: from files, streams, frames and arrays."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bnaf.errors import TableError
from bnaf.tables.arrays import array_columns, object_cells
from bnaf.tables.arrow import RawColumn, arrow_column, arrow_columns
from bnaf.tables.delimited import read_csv
from bnaf.tables.format import Reading
from bnaf.tables.formats import FORMATS, file_format
from bnaf.tables.names import check_names


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
    if has_names(source):
        return _named_columns(source)
    library = type(source).__module__.partition(".")[0]
    if library == "polars" and hasattr(source, "collect"):
        source = source.collect()
    if library in ("pandas", "polars") and not hasattr(source, "columns"):
        row = " or .to_frame().T for a row" if library == "pandas" else ""
        raise TableError(
            f"Expected a frame, got a {type(source).__name__} of {library}; give .to_frame() for "
            f"a column{row}."
        )
    if library == "pandas":
        return _pandas_columns(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _arrow_stream(source)
    if isinstance(source, np.ndarray | Sequence) or hasattr(source, "__array__"):
        return array_columns(_as_array(source))
    raise TableError(
        "Expected a path, a file, a pandas or Polars frame, a dict, an array or a tensor, got "
        f"{type(source).__name__}; convert it to one of these."
    )


def part_index(
    raw: list[RawColumn], columns: Sequence[str] | None = None
) -> tuple[str | None, list[RawColumn]]:
    """Return the name of a first column that is an index of the rows, and the other columns.

    R and pandas write the names or numbers of rows first, without a name; pandas reads such a
    column back as "Unnamed: 0".

    Args:
        raw: All columns.
        columns: Those that are wanted; an index among them is none.
    """
    if len(raw) < 2 or not _is_index(raw[0]) or raw[0].name in (columns or ()):
        return None, raw
    return raw[0].name, raw[1:]


def _is_index(raw: RawColumn) -> bool:
    if raw.name == "":
        return True
    if raw.name != "Unnamed: 0" or raw.values is None or not len(raw.values):
        return False
    start = raw.values[0]
    return start in (0, 1) and bool((raw.values == start + np.arange(len(raw.values))).all())


def give_names(raw: list[RawColumn], names: Sequence[str] | None) -> list[RawColumn]:
    """Give the columns other names, where there are some, and check that each has its own.

    Raises:
        TableError: If there are more or fewer names than columns, or one occurs twice.
    """
    if names is not None:
        if len(names) != len(raw):
            raise TableError(
                f"names must name each of the {len(raw)} columns, got {len(names)} names."
            )
        raw = [column._replace(name=name) for column, name in zip(raw, names, strict=True)]
    check_names([column.name for column in raw])
    return raw


def _read_path(source: str | Path, reading: Reading) -> list[RawColumn]:
    if str(source) == "-":
        return _read_stream(sys.stdin.buffer, reading)
    path = Path(source)
    kind = file_format(path, reading.kind)
    check_file(path)
    return FORMATS[kind].read(path, reading)


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


def _read_stream(stream: Any, reading: Reading) -> list[RawColumn]:
    name = str(getattr(stream, "name", "the stream"))
    text = stream.read()
    content = text.encode() if isinstance(text, str) else bytes(text)
    found = [
        kind
        for kind, format in FORMATS.items()
        if format.start is not None and content.startswith(format.start)
    ]
    kind = reading.kind or (found[0] if found else "csv")
    if kind != "csv":
        raise TableError(
            f"Streams are read as CSV, got {kind} from {name}; give the path of a file instead."
        )
    return arrow_columns(read_csv(content, name, reading))


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


def _arrow_stream(source: Any) -> list[RawColumn]:
    import pyarrow as pa

    try:
        return arrow_columns(pa.table(source))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TableError(
            f"Expected columns with names, got a {type(source).__name__} that Arrow reads as no "
            f"table: {str(error)[:200]}; make it a frame."
        ) from None


def _pandas_columns(frame: Any) -> list[RawColumn]:
    import pandas as pd
    import pyarrow as pa

    columns = []
    for index, label in enumerate(frame.columns):
        name = "_".join(map(str, label)) if isinstance(label, tuple) else str(label)
        try:
            values = pa.chunked_array([pa.array(frame.iloc[:, index], from_pandas=True)])
        except (pa.ArrowException, OverflowError):  # objects of several types, or huge numbers
            kind, cells = str(frame.dtypes.iloc[index]), object_cells(frame.iloc[:, index])
            columns.append(RawColumn(name, kind, None, cells=cells, rows=len(frame)))
        else:
            nullable = getattr(frame.dtypes.iloc[index], "na_value", None) is pd.NA
            columns.append(arrow_column(name, values)._replace(nullable=nullable))
    return columns


def has_names(source: object) -> bool:
    """Tell whether rows are columns by name in a mapping, or one mapping each in a list."""
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(row, Mapping) for row in source)
    return isinstance(source, Mapping) and not hasattr(source, "shape")  # sparse arrays are some


def _named_columns(source: Any) -> list[RawColumn]:
    """Return columns by name, or those of a list of rows; what a row has not is empty."""
    import pyarrow as pa

    if not isinstance(source, Mapping):
        names = dict.fromkeys(name for row in source for name in row)
        source = {name: [row.get(name) for row in source] for name in names}
    values = [_as_list(cells) for cells in source.values()]
    if len({len(cells) for cells in values}) > 1:
        raise TableError(
            "Expected columns of one length, got "
            f"{', '.join(str(len(cells)) for cells in values[:8])} cells; give as many of each."
        )
    try:
        cells = [pa.array(cell, from_pandas=True) for cell in values]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise TableError(
            f"Expected columns of numbers, text or dates, got others: {error}"
        ) from None
    return arrow_columns(pa.Table.from_arrays(cells, names=[str(name) for name in source]))


def _as_list(cells: object) -> Any:
    if isinstance(cells, str | bytes | Path) or not hasattr(cells, "__len__"):
        return [cells]
    if getattr(cells, "ndim", 1) == 0:
        return [cells.item() if hasattr(cells, "item") else cells]
    dated = getattr(getattr(cells, "dtype", None), "kind", None) in ("m", "M")
    return cells.tolist() if hasattr(cells, "tolist") and not dated else cells
