"""Batches of rows from Parquet files larger than memory."""

import copy
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bnaf._checks import whole
from bnaf.errors import SettingsError, TableError
from bnaf.tables._row_groups import Piece, RowGroups, fill_buffers
from bnaf.tables.moments import RunningMoments
from bnaf.tables.names import find_columns
from bnaf.tables.parquet import column_names, column_types, open_parquet
from bnaf.tables.sources import check_file
from bnaf.tables.survey import Survey, check_rows_left, survey_parquet
from bnaf.tables.ties import add_grid_noise, noise_steps, nothing_varies

BUFFER_ROWS, BUFFER_VALUES = 2**17, 2**23


class NumberedRows(NamedTuple):
    """Rows of a file, and their numbers in it, from 0."""

    rows: Tensor
    numbers: np.ndarray


class ParquetStream:
    """Batches of rows of a Parquet file, read by row groups and shuffled within a buffer.

    Rows come as they are, in the units of the file. An epoch lays the row groups end to end in an
    order of its own, gives every process a share of as many rows, and shuffles each bufferful of
    that share. The batches depend on the settings, the epoch and nothing else. Iterating goes on
    from the position, at first the start of epoch 0, to the end of the epoch; the position is a
    small dict that can be kept and set. No more than a few bufferfuls are held at a time, however
    large the file, and a byte for every row where some are left out.

    With ``drop_last`` all processes have the same number of batches, each of them full, and
    the last rows that do not fill one are left for another epoch's order. Without it every row
    comes once.

    Args:
        path: The file.
        batch_rows: Rows of a batch, per process.
        columns: Which columns, by name and in that order; all by default.
        seed: Seed of the order and of the noise.
        rank: Which process this is, from 0.
        world_size: Number of processes that share the rows.
        buffer_rows: Rows shuffled among themselves; 131,072 or 64 MB by default.
        shuffle: Whether to shuffle row groups and buffers; otherwise the order of the file.
        drop_last: Whether to leave out a batch that is not full.
        drop_missing: Whether to leave out rows with a missing or infinite value.
        drop_constant: Whether to leave out columns that hold one value.
        dequantise: Whether to add uniform noise, afresh each epoch and as wide as the column's
            own grid, to columns with few distinct values or heavy ties; or the names of columns.
        given: Columns that will be conditioned on: their values may repeat, so ties in them are
            neither warned of nor spread by ``dequantise=True``.
        dtype: Element type of the batches.
        warn: Whether to warn of odd columns, once they are known.
        reader: From a batch of Arrow, with these columns in this order, to an array of a row for
            each of its rows, where columns are not all numbers: the stream is then one of these
            arrays, and leaves out no rows and columns by what they hold.

    Raises:
        TableError: If the file cannot be read, has text columns that no reader takes, or less
            than a batch per process.

    Example:
        >>> stream = ParquetStream("rows.parquet", 512, seed=1)  # doctest: +SKIP
        >>> for batch in stream:  # doctest: +SKIP
        ...     train(batch)
        ...     position = stream.state_dict()
    """

    def __init__(
        self,
        path: str | Path,
        batch_rows: int = 512,
        *,
        columns: Sequence[str] | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        buffer_rows: int | None = None,
        shuffle: bool = True,
        drop_last: bool = True,
        drop_missing: bool = False,
        drop_constant: bool = False,
        dequantise: bool | Sequence[str] = False,
        given: Sequence[str] = (),
        dtype: torch.dtype = torch.float64,
        warn: bool = True,
        reader: Callable[[Any], np.ndarray] | None = None,
    ) -> None:
        batch_rows, seed = whole("batch_rows", batch_rows), whole("seed", seed, least=0)
        buffer_rows = None if buffer_rows is None else whole("buffer_rows", buffer_rows)
        rank, world_size = whole("rank", rank, least=0), whole("world_size", world_size)
        if not 0 <= rank < world_size:
            raise SettingsError(
                f"Expected a rank below world_size, got rank {rank} of {world_size}."
            )
        if reader is not None and (drop_missing or drop_constant or dequantise):
            raise SettingsError(
                "drop_missing, drop_constant and dequantise are for columns of numbers, got a "
                "reader; leave them out, or have the reader see to it."
            )
        self.path = Path(path)
        check_file(self.path)
        with open_parquet(self.path) as file:
            names = column_names(file, columns)
            self.types = tuple(column_types(file, names)) if reader is None else ()
            self._groups = RowGroups.of(file)
        self.reads_numbers = reader is None
        if reader is not None:
            self._groups = replace(self._groups, reader=reader)
        self.columns = tuple(names)
        check_rows_left(self.path, self._groups.rows)
        self.batch_rows, self.seed, self.dtype = batch_rows, seed, dtype
        self.rank, self.world_size = rank, world_size
        self.shuffle, self.drop_last, self.drop_missing = shuffle, drop_last, drop_missing
        self.dequantise, self.given, self.warn = dequantise, tuple(given), warn
        self.numbered = False
        if drop_constant:
            self._drop_constant()
        if drop_missing:
            self._groups = replace(self._groups, chosen=self.survey.complete)
        most = max(BUFFER_VALUES // len(self.columns), batch_rows)
        self.buffer_rows = buffer_rows or min(BUFFER_ROWS, most)
        self.set_epoch(0)
        self._check_batches()

    @cached_property
    def survey(self) -> Survey:
        """What one pass over the file finds: complete rows, constant columns, ties."""
        found = survey_parquet(
            self.path, columns=self.columns, drop_missing=self.drop_missing, seed=self.seed
        )
        if self.warn:
            found.warn(without=[*self._grid(found), *self.given])
        return found

    @property
    def grid(self) -> dict[str, float]:
        """Steps of the grids that columns lie on before noise spreads them, by name."""
        return {self.columns[index]: step for index, step in self._steps.items()}

    @property
    def rows(self) -> int:
        """Number of rows of an epoch, all processes together."""
        return self._groups.rows

    @property
    def chosen(self) -> np.ndarray:
        """Which rows of the file an epoch has: one truth value for each."""
        return self._groups.marks

    def moments(
        self, columns: Sequence[str] | None = None, weights: Tensor | None = None
    ) -> RunningMoments:
        """Return the moments of the rows, as they are in the file.

        Args:
            columns: Of which columns; all by default.
            weights: How much each row of the file counts, by its number.
        """
        names = list(self.columns if columns is None else columns)
        with open_parquet(self.path) as file:
            return self._groups.moments(file, names, weights)

    def view(
        self,
        *,
        chosen: np.ndarray | None = None,
        columns: Sequence[str] | None = None,
        numbered: bool | None = None,
        shuffle: bool | None = None,
        drop_last: bool | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> "ParquetStream":
        """Return a stream of the same file, from the start, with some of its settings changed.

        Args:
            chosen: Which rows of the file count: one truth value for each.
            columns: Which columns, and in which order.
            numbered: Whether batches come as :class:`NumberedRows`.
            shuffle: As in the constructor, and the others.
            drop_last: Whether to leave out a batch that is not full.
            rank: Which process.
            world_size: Number of processes.

        Raises:
            TableError: If there is less than a batch for each process, or no such column.
        """
        other = copy.copy(self)
        if columns is not None and tuple(columns) != self.columns:
            if not self.reads_numbers:
                raise SettingsError(
                    f"A stream with a reader keeps its columns, {', '.join(self.columns[:8])}; "
                    "make another for others."
                )
            indices = find_columns(columns, self.columns)
            steps = self._steps
            other.types = tuple(self.types[index] for index in indices)
            other.columns = tuple(columns)
            other.__dict__.pop("survey", None)
            other.__dict__["_steps"] = {
                place: steps[index] for place, index in enumerate(indices) if index in steps
            }
        if chosen is not None:
            other._groups = replace(self._groups, chosen=chosen)
        changes: dict[str, Any] = {"numbered": numbered, "shuffle": shuffle}
        changes |= {"drop_last": drop_last, "rank": rank, "world_size": world_size}
        for name, value in changes.items():
            if value is not None:
                setattr(other, name, value)
        other.set_epoch(0)
        other._check_batches()
        return other

    def __len__(self) -> int:
        """Return the number of batches of an epoch, for this process."""
        if self.drop_last:
            return self.rows // (self.world_size * self.batch_rows)
        start, stop = self._share()
        return -(-(stop - start) // self.batch_rows)

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        return self._position["epoch"]

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self.go_to(epoch, 0)

    def go_to(self, epoch: int, batch: int) -> None:
        """Go to a batch of an epoch, the first being 0; row groups before it are not read."""
        self._position = {"epoch": epoch, "batch": batch}

    @property
    def fingerprint(self) -> str:
        """Digest of what the batches depend on; of the file its footer, which tells all sizes."""
        with self.path.open("rb") as file:
            file.seek(-8, os.SEEK_END)
            footer = int.from_bytes(file.read(4), "little") + 8
            file.seek(-min(footer, self.path.stat().st_size), os.SEEK_END)
            digest = hashlib.blake2b(file.read(), digest_size=16)
        chosen = [self.columns, self._order(), self.drop_last, self._steps]
        digest.update(repr(chosen).encode())
        if self._groups.chosen is not None:
            digest.update(np.packbits(self._groups.chosen).data)
        return digest.hexdigest()

    def state_dict(self) -> dict[str, int]:
        """Return the position, and the settings that it holds for; it is that of all processes."""
        return {**self._position, **self._order()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a position.

        Raises:
            SettingsError: If it was kept by a stream that orders its rows otherwise.
        """
        for name, value in self._order().items():
            if state.get(name) != value:
                raise SettingsError(
                    f"The position was kept by a stream with {name}={state.get(name)!r}, this one "
                    f"has {value!r}; open the same file with the same settings."
                )
        self.go_to(int(state["epoch"]), int(state["batch"]))

    def __iter__(self) -> Iterator[Any]:
        """Iterate from the position to the end of its epoch."""
        epoch, batch, batches = self.epoch, self._position["batch"], len(self)
        start, stop = self._share()
        block, offset = divmod(batch * self.batch_rows, self.buffer_rows)
        left = stop - start - batch * self.batch_rows
        parts: list[NumberedRows] = []
        need = min(self.batch_rows, left)
        with open_parquet(self.path) as file:
            pieces = self._pieces(file, epoch, start + block * self.buffer_rows, stop)
            for buffer in fill_buffers(pieces, self.buffer_rows):
                rows = self._prepare(buffer, epoch, block)
                while offset < len(rows.rows):
                    chosen = slice(offset, offset + need)
                    taken = NumberedRows(rows.rows[chosen], rows.numbers[chosen])
                    parts, count = [*parts, taken], len(taken.rows)
                    need, left, offset = need - count, left - count, offset + count
                    if need:
                        continue
                    batch += 1
                    self.go_to(*((epoch + 1, 0) if batch == batches else (epoch, batch)))
                    yield self._join(parts)
                    if batch == batches:
                        return
                    parts, need = [], min(self.batch_rows, left)
                block, offset = block + 1, 0

    def _join(self, parts: Sequence[NumberedRows]) -> Tensor | NumberedRows:
        rows = torch.cat([part.rows for part in parts])
        if not self.numbered:
            return rows
        return NumberedRows(rows, np.concatenate([part.numbers for part in parts]))

    def _pieces(self, file: Any, epoch: int, start: int, stop: int) -> Iterator[Piece]:
        """Read rows of the epoch's order from one to another, with their numbers."""
        order = np.arange(len(self._groups.sizes))
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        return self._groups.read(file, self.columns, order.tolist(), start, stop)

    def _prepare(self, buffer: Piece, epoch: int, block: int) -> NumberedRows:
        """Return the rows of a buffer as they go into batches."""
        rows, numbers = buffer
        generator = np.random.default_rng([self.seed, epoch, self.rank, block])
        if self.reads_numbers and not np.isfinite(rows).all():
            survey_parquet(self.path, columns=self.columns)  # counts them, and raises
        order = generator.permutation(len(rows)) if self.shuffle else np.arange(len(rows))
        rows = rows[order]
        if self._steps:
            rows = add_grid_noise(rows, self._steps, generator)
        return NumberedRows(torch.from_numpy(rows).to(self.dtype), numbers[order])

    @cached_property
    def _steps(self) -> dict[int, float]:
        """Grid steps of the columns that noise is added to."""
        if not self.dequantise:
            return {}
        grid = self._grid(self.survey)
        return {self.columns.index(name): step for name, step in grid.items()}

    def _grid(self, survey: Survey) -> dict[str, float]:
        if not self.dequantise:
            return {}
        place = {name: index for index, name in enumerate(survey.columns)}
        ties = {place[name]: t for name, t in survey.ties.items() if name not in self.given}
        steps = noise_steps(survey.columns, self.dequantise, ties, survey.looked_at, survey.types)
        return {survey.columns[index]: step for index, step in steps.items()}

    def _share(self) -> tuple[int, int]:
        """Return where this process begins in the epoch's order, and where it ends."""
        start, stop = (edge * self.rows // self.world_size for edge in (self.rank, self.rank + 1))
        return start, stop

    def _order(self) -> dict[str, int]:
        """Return what the order of the rows, and so the meaning of a position, depends on."""
        return {
            "rows": self.rows,
            "seed": self.seed,
            "world_size": self.world_size,
            "batch_rows": self.batch_rows,
            "buffer_rows": self.buffer_rows,
            "shuffle": int(self.shuffle),
        }

    def _check_batches(self) -> None:
        if not len(self) and (self.drop_last or not self.rows):
            raise TableError(
                f"{self.path.name} has {self.rows:,} rows, expected a batch of "
                f"{self.batch_rows:,} for each of {self.world_size} processes; make the stream "
                "with smaller batches."
            )

    def _drop_constant(self) -> None:
        found = survey_parquet(
            self.path, columns=self.columns, drop_missing=self.drop_missing, seed=self.seed
        )
        kept = tuple(name for name in self.columns if name not in found.constant)
        if not kept:
            raise nothing_varies(self.columns, found.rows)
        self.types = tuple(self.types[self.columns.index(name)] for name in kept)
        self.columns = kept
