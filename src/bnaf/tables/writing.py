"""Tables written to files, with the types their columns came with."""

import sys
from pathlib import Path

from bnaf._files import stored_file
from bnaf.errors import TableError
from bnaf.tables.arrow import ArrowColumns
from bnaf.tables.formats import FORMATS, written_format
from bnaf.tables.table import Table


def write_table(
    table: Table | ArrowColumns,
    path: str | Path,
    *,
    overwrite: bool = False,
    format: str | None = None,
    delimiter: str | None = None,
) -> None:
    """Write a table, whole or not at all.

    Columns keep their order, names and types: values of integer columns are rounded to whole
    numbers within the range of the type, those of boolean ones are true from 0.5 on. An npy file
    has no names, and one type: that of all columns where they agree, float64 otherwise. Names and
    texts are written as they are, also those that begin with "=", "+", "-" or "@", which a
    spreadsheet may take for a formula.

    Args:
        table: What to write: a table of numbers, or a frame of columns of any kind.
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
    if delimiter is None and path.suffix.lower() == ".tsv":
        delimiter = "\t"
    write = FORMATS[kind].write
    assert write is not None
    content = write(table, delimiter)
    if str(path) == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with stored_file(path, overwrite=overwrite, error=TableError) as file:
        file.write(content)
