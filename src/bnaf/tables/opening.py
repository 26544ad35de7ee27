"""Whether a table is read at once or batch by batch."""

from collections.abc import Sequence
from pathlib import Path

from bnaf.errors import TableError
from bnaf.tables.arrow import number_name
from bnaf.tables.frame_streams import FrameStream
from bnaf.tables.parquet import PARQUET, column_names, count_empty, open_parquet
from bnaf.tables.streams import ParquetStream

MEMORY_VALUES = 2**25  # more than these of a file are better streamed than read


def is_large(
    path: str | Path, columns: Sequence[str] | None = None, *, most: int = MEMORY_VALUES
) -> bool:
    """Return whether a file is Parquet, and so large that it is better streamed than read.

    Args:
        path: The file; it need not exist.
        columns: Columns that are wanted; all by default.
        most: Values up to which it is not.
    """
    path = Path(path)
    if path.suffix.lower() not in PARQUET.suffixes or not path.is_file():
        return False
    with open_parquet(path) as file:
        values: int = file.metadata.num_rows * len(column_names(file, columns))
        return values > most


def open_stream(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    given: Sequence[str] = (),
    drop_missing: bool = False,
    drop_constant: bool = False,
    dequantise: bool | Sequence[str] = False,
    seed: int = 0,
    format: str | None = None,
    kinds: bool | None = False,
) -> ParquetStream | FrameStream:
    """Return a stream of rows, for a fit, from the arguments of reading a table.

    Args:
        path: A Parquet file.
        columns: Which columns; all by default.
        given: Which of them will be conditioned on.
        drop_missing: Whether to leave out rows with a missing or infinite value.
        drop_constant: Whether to leave out columns that hold one value.
        dequantise: Whether to add noise to columns with ties; or the names of columns.
        seed: Seed of the order and of the noise.
        format: "parquet", where the name of the file does not tell.
        kinds: Whether columns are of every kind, not plain numbers; ``None`` for those that hold
            something else than numbers, or have empty cells that are not left out.

    Raises:
        TableError: If the file is no Parquet, or cannot be modelled.
    """
    path = Path(path)
    if path.suffix.lower() not in PARQUET.suffixes and format != "parquet":
        raise TableError(f"Expected a Parquet file to stream, got {path.name}; read it at once.")
    if kinds is None:
        kinds = not _holds_numbers(path, columns, empty=drop_missing)
    if kinds:
        return FrameStream(
            path,
            columns=columns,
            seed=seed,
            drop_missing=drop_missing,
            drop_constant=drop_constant,
        )
    return ParquetStream(
        path,
        columns=columns,
        given=given,
        seed=seed,
        drop_missing=drop_missing,
        drop_constant=drop_constant,
        dequantise=dequantise,
        drop_last=False,
    )


def _holds_numbers(path: Path, columns: Sequence[str] | None, *, empty: bool) -> bool:
    """Return whether columns are numbers, none of them empty unless that is no matter."""
    with open_parquet(path) as file:
        names = column_names(file, columns)
        types = [file.schema_arrow.field(name).type for name in names]
        if not all(number_name(kind) for kind in types):
            return False
        return empty or not count_empty(file, names)
