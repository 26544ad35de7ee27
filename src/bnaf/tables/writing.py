"""Tables written to files, with the types their columns came with."""

import csv
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bnaf.tables.arrow import to_arrow
from bnaf.tables.sources import FORMATS
from bnaf.tables.reading import Table
from bnaf.errors import TableError
from bnaf._files import stored_file

WRITTEN = ("csv", "parquet", "npy")


def write_table(
    table: Table,
    path: str | Path,
    *,
    overwrite: bool = False,
    format: str | None = None,
    delimiter: str | None = None,
) -> None:
    """Write a table, whole or not at all.

    Columns keep their order, names and types: values of integer columns are rounded to whole
    numbers within the range of the type, those of boolean ones are true from 0.5 on. An npy file
    has no names, and one type: that of all columns where they agree, float64 otherwise.

    Args:
        table: What to write.
        path: A file that ends in .csv, .tsv, .parquet or .npy; "-" for CSV on standard output.
        overwrite: Whether it may replace a file that exists.
        format: "csv", "parquet" or "npy", where the name of the file does not tell.
        delimiter: What stands between the values of a CSV file.

    Raises:
        TableError: If tables are not written in that format, or the file exists and may not be
            replaced, or its folder does not.
    """
    path = Path(path)
    kind = written_format(path, format)
    if delimiter is None:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    content = _CONTENT[kind](table, delimiter)
    if str(path) == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with stored_file(path, overwrite=overwrite, error=TableError) as file:
        file.write(content)


def written_format(path: Path, format: str | None = None) -> str:
    """Return the format a table is written in: the one told, or that of the name of the file.

    Raises:
        TableError: If tables are not written in it.
    """
    if format is None:
        format = "csv" if str(path) == "-" else FORMATS.get(path.suffix.lower())
        if format not in WRITTEN:
            raise TableError(
                f"Tables are written as {', '.join(WRITTEN)}, got the file name {path.name!r}; "
                "end it in .csv, .parquet or .npy."
            )
    if format not in WRITTEN:
        raise TableError(
            f"Tables are written as {', '.join(WRITTEN)}, got {format!r}; choose one."
        )
    return format


def typed_columns(table: Table) -> list[np.ndarray]:
    """Return the columns of a table in the types they came with."""
    return [
        _typed(values, kind)
        for values, kind in zip(table.rows.numpy().T, table.types, strict=True)
    ]


def _typed(values: np.ndarray, kind: str) -> np.ndarray:
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


def _arrow(table: Table) -> Any:
    import pyarrow as pa

    columns = [to_arrow(values) for values in typed_columns(table)]
    return pa.Table.from_arrays(columns, names=list(table.columns))


def _csv_content(table: Table, delimiter: str) -> bytes:
    import pyarrow.csv

    header = io.StringIO()
    csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(table.columns)
    content = io.BytesIO()
    content.write(header.getvalue().encode())
    options = pyarrow.csv.WriteOptions(include_header=False, delimiter=delimiter)
    pyarrow.csv.write_csv(_arrow(table), content, options)
    return content.getvalue()


def _parquet_content(table: Table, delimiter: str) -> bytes:
    from pyarrow import parquet

    content = io.BytesIO()
    parquet.write_table(_arrow(table), content)
    return content.getvalue()


def _npy_content(table: Table, delimiter: str) -> bytes:
    content = io.BytesIO()
    same = len(set(table.types)) == 1
    columns = typed_columns(table) if same else table.rows.numpy().T
    np.save(content, np.stack(list(columns), 1), allow_pickle=False)
    return content.getvalue()


_CONTENT = {"csv": _csv_content, "parquet": _parquet_content, "npy": _npy_content}
