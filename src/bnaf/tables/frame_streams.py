"""Parquet files with columns of every kind, larger than memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from bnaf._checks import whole
from bnaf.tables._row_groups import Piece, RowGroups
from bnaf.tables.arrow import text_name
from bnaf.tables.frames import Frame, arrow_frame
from bnaf.tables.names import find_columns
from bnaf.tables.parquet import column_names, open_parquet
from bnaf.tables.sources import check_file
from bnaf.tables.streams import BUFFER_ROWS, BUFFER_VALUES, ParquetStream
from bnaf.tables.survey import check_rows_left
from bnaf.tables.ties import nothing_varies

SAMPLE_ROWS, SAMPLE_VALUES = 200_000, 2**22  # that columns are read off


class FrameStream:
    """Rows of a Parquet file with columns of every kind, for a fit that reads them by batches.

    Texts and dates are no numbers until it is known what a column means, and that is read off a
    sample: rows drawn at random from all of the file. :meth:`encoded` then gives the batches, of
    whatever numbers stand for a row. No more than the sample and a few bufferfuls are held at a
    time, and some bytes for every row.

    Args:
        path: The file.
        batch_rows: Rows of a batch, per process.
        columns: Which columns, by name and in that order; all by default.
        seed: Seed of the order and of the sample.
        buffer_rows: Rows shuffled among themselves; 131,072 or 64 MB by default.
        drop_missing: Whether to leave out rows with an empty cell or an infinite number.
        drop_constant: Whether to leave out columns that hold one value in all of the sample.

    Raises:
        TableError: If the file cannot be read, or no row or column is left.

    Example:
        >>> stream = FrameStream("sales.parquet")  # doctest: +SKIP
        >>> model = bnaf.Model.fit(stream)  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | Path,
        batch_rows: int = 512,
        *,
        columns: Sequence[str] | None = None,
        seed: int = 0,
        buffer_rows: int | None = None,
        drop_missing: bool = False,
        drop_constant: bool = False,
    ) -> None:
        self.batch_rows, self.seed = whole("batch_rows", batch_rows), whole("seed", seed, least=0)
        self.buffer_rows = None if buffer_rows is None else whole("buffer_rows", buffer_rows)
        self.path = Path(path)
        check_file(self.path)
        with open_parquet(self.path) as file:
            self.columns = tuple(column_names(file, columns))
            self._groups = RowGroups.of(file)
        check_rows_left(self.path, self.rows)
        if drop_missing:
            complete = [frame.complete for frame in self.frames()]
            self._groups = replace(self._groups, chosen=np.concatenate(complete))
            check_rows_left(self.path, self.rows)
        if drop_constant:
            varying = [column.name for column in self.sample().columns if not column.constant]
            if not varying:
                raise nothing_varies(self.columns, self.rows)
            self.columns = tuple(varying)

    @property
    def rows(self) -> int:
        """Number of rows that are not left out."""
        return self._groups.rows

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the columns of text."""
        with open_parquet(self.path) as file:
            kinds = {name: file.schema_arrow.field(name).type for name in self.columns}
        return tuple(name for name, kind in kinds.items() if text_name(kind) == "text")

    @property
    def chosen(self) -> Bool[np.ndarray, " all_rows"]:
        """Which rows of the file are not left out: one truth value for each."""
        return self._groups.marks

    def frames(
        self,
        columns: Sequence[str] | None = None,
        *,
        chosen: Bool[np.ndarray, " all_rows"] | None = None,
    ) -> Iterator[Frame]:
        """Read the rows piece by piece, each with the numbers that they have in the file.

        Args:
            columns: Which columns; all by default.
            chosen: Which rows of the file; all that are not left out by default.
        """
        for cells, numbers in self._pieces(columns, chosen):
            yield arrow_frame(cells, numbers)

    def sample(
        self, most: int | None = None, *, among: Int64[np.ndarray, " _"] | None = None
    ) -> Frame:
        """Read rows drawn at random, none twice and in the order of the file.

        Args:
            most: How many, or all where there are fewer; 200,000 by default, fewer of many
                columns.
            among: Numbers in the file of the rows they are drawn from; all that are not left out
                by default.
        """
        import pyarrow as pa

        among = np.flatnonzero(self.chosen) if among is None else among
        most = min(SAMPLE_ROWS, SAMPLE_VALUES // len(self.columns)) if most is None else most
        if most < len(among):
            among = np.random.default_rng(self.seed).choice(among, most, replace=False)
        chosen = np.zeros(len(self.chosen), dtype=bool)
        chosen[among] = True
        pieces = [*self._pieces(None, chosen)]
        cells = pa.Table.from_batches([cells for cells, _ in pieces])
        return arrow_frame(cells, np.concatenate([numbers for _, numbers in pieces]))

    def read(self) -> Frame:
        """Read all rows at once."""
        return self.sample(self.rows)

    def encoded(
        self,
        columns: Sequence[str],
        encode: Callable[[Frame], Float64[np.ndarray, "rows width"]],
        width: int,
    ) -> ParquetStream:
        """Return a stream of the numbers that stand for rows.

        Args:
            columns: Columns that the numbers are made of.
            encode: From some rows of these columns to their numbers.
            width: How many these are for one row.
        """
        most = min(BUFFER_ROWS, max(BUFFER_VALUES // max(width, 1), self.batch_rows))
        stream = ParquetStream(
            self.path,
            self.batch_rows,
            columns=columns,
            seed=self.seed,
            buffer_rows=self.buffer_rows or most,
            drop_last=False,
            reader=lambda cells: encode(arrow_frame(cells)),
        )
        return stream.view(chosen=self._groups.chosen)

    def _pieces(self, columns: Sequence[str] | None, chosen: np.ndarray | None) -> Iterator[Piece]:
        names = self.columns if columns is None else columns
        find_columns(names, self.columns)
        marked = self._groups.chosen if chosen is None else chosen
        groups = replace(self._groups, chosen=marked, reader=_as_it_is)
        with open_parquet(self.path) as file:
            yield from groups.read(file, names, range(len(groups.sizes)), 0, groups.rows)


def _as_it_is(cells: Any) -> Any:
    return cells
