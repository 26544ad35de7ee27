"""Batches of rows from Parquet files larger than memory."""

import copy
import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnaf.tables.ties import add_grid_noise, noise_steps, nothing_varies
from bnaf.tables.parquet import column_names, column_types, group_rows, open_parquet
from bnaf.tables.sources import check_file
from bnaf.model.standardisation import Standardisation
from bnaf.tables.survey import Survey, check_rows_left, survey_parquet
from bnaf.errors import SettingsError, TableError

BUFFER_ROWS, BUFFER_VALUES = 2**17, 2**23
SUFFIXES = (".parquet", ".pq")
MEMORY_VALUES = 2**25  # more than these of a file are better streamed than read


class ParquetStream:
    """Batches of rows of a Parquet file, read by row groups and shuffled within a buffer.

    An epoch lays the row groups end to end in an order of its own, gives every process a share of
    as many rows, and shuffles each bufferful of that share. The batches depend on the settings,
    the epoch and nothing else. Iterating goes on from the position, at first the start of epoch
    0, to the end of the epoch; the position is a small dict that can be kept and set. No more
    than a few bufferfuls are held at a time, however large the file.

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
        standardise: Whether to standardise by the moments of the file; or by which.
        dtype: Element type of the batches.
        warn: Whether to warn of odd columns, once they are known.

    Raises:
        TableError: If the file cannot be read, has text columns, or less than a batch per process.

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
        standardise: bool | Standardisation = False,
        dtype: torch.dtype = torch.float32,
        warn: bool = True,
    ) -> None:
        if batch_rows < 1 or not 0 <= rank < world_size or (buffer_rows or 1) < 1:
            raise SettingsError(
                "Expected batch_rows and buffer_rows of at least 1 and a rank below world_size, "
                f"got {batch_rows}, {buffer_rows}, rank {rank} of {world_size}."
            )
        self.path = Path(path)
        check_file(self.path)
        with open_parquet(self.path) as file:
            names = column_names(file, columns)
            self.types = tuple(column_types(file, names))
            groups = range(file.num_row_groups)
            self._sizes = [file.metadata.row_group(group).num_rows for group in groups]
        self.columns, self.rows = tuple(names), sum(self._sizes)
        check_rows_left(self.path, self.rows)
        self.batch_rows, self.seed, self.dtype = batch_rows, seed, dtype
        self.rank, self.world_size = rank, world_size
        self.shuffle, self.drop_last, self.drop_missing = shuffle, drop_last, drop_missing
        self.dequantise, self.standardise, self.warn = dequantise, standardise, warn
        self._survey: Survey | None = None
        if drop_constant:
            self._drop_constant()
        most = max(BUFFER_VALUES // len(self.columns), batch_rows)
        self.buffer_rows = buffer_rows or min(BUFFER_ROWS, most)
        self._position = {"epoch": 0, "batch": 0, "block": 0, "offset": 0}
        self._check_batches()

    @property
    def survey(self) -> Survey:
        """What one pass over the file finds: moments, constant columns, ties."""
        if self._survey is None:
            self._survey = survey_parquet(
                self.path, columns=self.columns, drop_missing=self.drop_missing, seed=self.seed
            )
            if self.warn:
                self._survey.warn(without=[*self.grid])
        return self._survey

    @property
    def grid(self) -> dict[str, float]:
        """Steps of the grids that columns lie on before noise spreads them, by name."""
        return {self.columns[index]: step for index, step in self._steps.items()}

    @property
    def standardisation(self) -> Standardisation | None:
        """What the batches are standardised by."""
        if isinstance(self.standardise, Standardisation):
            return self.standardise
        return self.survey.standardisation if self.standardise else None

    def __len__(self) -> int:
        """Return the number of batches of an epoch, for this process."""
        if self.drop_last:
            complete = self.survey.rows if self.drop_missing else self.rows
            return complete // (self.world_size * self.batch_rows)
        if self.drop_missing:
            raise TypeError("The number of batches is unknown where rows are left out.")
        start, stop = self._share()
        return -(-(stop - start) // self.batch_rows)

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        return self._position["epoch"]

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self._position = {"epoch": epoch, "batch": 0, "block": 0, "offset": 0}

    def go_to(self, epoch: int, batch: int) -> None:
        """Go to a batch of an epoch, the first being 0.

        Row groups before it are not read, unless rows are left out for missing values: then
        nothing but reading tells where it begins.
        """
        self.set_epoch(epoch)
        if self.drop_missing:
            for _ in islice(self, batch):
                pass
            return
        block, offset = divmod(batch * self.batch_rows, self.buffer_rows)
        self._position.update(batch=batch, block=block, offset=offset)

    def shared(self, rank: int, world_size: int) -> "ParquetStream":
        """Return the stream of one of several processes, from the start.

        Args:
            rank: Which process, from 0.
            world_size: Number of processes.

        Raises:
            TableError: If there is less than a batch for each.
        """
        share = copy.copy(self)
        share.rank, share.world_size = rank, world_size
        share.set_epoch(0)
        share._check_batches()
        return share

    @property
    def fingerprint(self) -> str:
        """Digest of what the batches depend on; of the file its footer, which tells all sizes."""
        with self.path.open("rb") as file:
            file.seek(-8, os.SEEK_END)
            footer = int.from_bytes(file.read(4), "little") + 8
            file.seek(-min(footer, self.path.stat().st_size), os.SEEK_END)
            digest = hashlib.blake2b(file.read(), digest_size=16)
        order = {name: value for name, value in self._order().items() if name != "rank"}
        chosen = [self.columns, order, self.drop_last, self.drop_missing, self._steps]
        if self.standardisation is not None:
            scales = self.standardisation
            chosen += [scales.location.tolist(), scales.scale.tolist()]
        digest.update(repr(chosen).encode())
        return digest.hexdigest()

    def state_dict(self) -> dict[str, int]:
        """Return the position, and the settings that it holds for.

        It is the same in all processes, unless rows are left out for missing values: then each
        process has its own to keep.
        """
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
        self._position = {name: int(state[name]) for name in self._position}

    def __iter__(self) -> Iterator[Tensor]:
        """Iterate from the position to the end of its epoch."""
        parts: list[Tensor] = []
        need = self.batch_rows
        last = len(self) if self.drop_last else None
        offset = self._position["offset"]
        with open_parquet(self.path) as file:
            for block, rows in self._blocks(file, self._position["block"]):
                while offset < len(rows):
                    taken = rows[offset : offset + need]
                    parts, need, offset = [*parts, taken], need - len(taken), offset + len(taken)
                    if need:
                        continue
                    done = self._position["batch"] + 1
                    if done == last:
                        self.set_epoch(self.epoch + 1)
                    else:
                        self._position.update(batch=done, block=block, offset=offset)
                    yield torch.cat(parts)
                    if done == last:
                        return
                    parts, need = [], self.batch_rows
                offset = 0
        self.set_epoch(self.epoch + 1)
        if parts:
            yield torch.cat(parts)

    def _blocks(self, file: Any, block: int) -> Iterator[tuple[int, Tensor]]:
        """Read bufferfuls from one on; without end where all batches must be full."""
        start, stop = self._share()
        epoch, blocks = self.epoch, -(-(stop - start) // self.buffer_rows)
        found = False
        while blocks:
            first = start + (block % blocks) * self.buffer_rows
            for buffer in _fill(self._pieces(file, epoch, first, stop), self.buffer_rows):
                rows = self._prepare(buffer, epoch, block)
                found |= len(rows) > 0
                yield block, rows
                block += 1
            if not self.drop_last:
                return
            if not found:
                raise TableError(
                    f"The share of process {self.rank} has no complete rows; shuffle the file."
                )

    def _pieces(self, file: Any, epoch: int, start: int, stop: int) -> Iterator[np.ndarray]:
        """Read rows of the epoch's order from one to another."""
        order = np.arange(len(self._sizes))
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        before = 0
        for group in order.tolist():
            size = self._sizes[group]
            low, high = max(start - before, 0), min(stop - before, size)
            if low < high:
                yield from group_rows(file, group, self.columns, low, high)
            before += size

    def _prepare(self, rows: np.ndarray, epoch: int, block: int) -> Tensor:
        """Return the rows of a buffer as they go into batches."""
        generator = np.random.default_rng([self.seed, epoch, self.rank, block])
        complete = np.flatnonzero(np.isfinite(rows).all(1))
        if len(complete) < len(rows) and not self.drop_missing:
            survey_parquet(self.path, columns=self.columns)  # counts them, and raises
        rows = rows[generator.permutation(complete) if self.shuffle else complete]
        if self._steps:
            rows = add_grid_noise(rows, self._steps, generator)
        prepared = torch.from_numpy(rows)
        if self.standardisation is not None:
            prepared = self.standardisation.apply(prepared)
        return prepared.to(self.dtype)

    @cached_property
    def _steps(self) -> dict[int, float]:
        """Grid steps of the columns that noise is added to."""
        if not self.dequantise:
            return {}
        found = self.survey
        ties = {self.columns.index(name): tie for name, tie in found.ties.items()}
        return noise_steps(self.columns, self.dequantise, ties, found.looked_at, self.types)

    def _share(self) -> tuple[int, int]:
        """Return where this process begins in the epoch's order, and where it ends."""
        if self.drop_last:
            size = self.rows // self.world_size
            return self.rank * size, (self.rank + 1) * size
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
            **({"rank": self.rank} if self.drop_missing else {}),
        }

    def _check_batches(self) -> None:
        if self.drop_last and not len(self):
            raise TableError(
                f"{self.path.name} has {self.rows:,} rows, expected a batch of "
                f"{self.batch_rows:,} for each of {self.world_size} processes; choose smaller "
                "batches, or drop_last=False."
            )

    def _drop_constant(self) -> None:
        found = survey_parquet(
            self.path, columns=self.columns, drop_missing=self.drop_missing, seed=self.seed
        )
        kept = tuple(name for name in self.columns if name not in found.constant)
        if not kept:
            raise nothing_varies(self.columns, found.rows)
        self.types = tuple(self.types[self.columns.index(name)] for name in kept)
        self.columns, self._survey = kept, found.select(kept)
        if self.warn:
            self._survey.warn(without=[*self.grid])


def is_large(path: str | Path, columns: Sequence[str] | None = None) -> bool:
    """Return whether a file is Parquet, and so large that it is better streamed than read.

    Args:
        path: The file; it need not exist.
        columns: Columns that are wanted; all by default.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return False
    with open_parquet(path) as file:
        values: int = file.metadata.num_rows * len(column_names(file, columns))
        return values > MEMORY_VALUES


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
) -> ParquetStream:
    """Return a stream of standardised rows, for a fit, from the arguments of reading a table.

    Args:
        path: A Parquet file.
        columns: Which columns; all by default.
        given: Columns to condition on; a stream has none.
        drop_missing: Whether to leave out rows with a missing or infinite value.
        drop_constant: Whether to leave out columns that hold one value.
        dequantise: Whether to add noise to columns with ties; or the names of columns.
        seed: Seed of the order and of the noise.
        format: "parquet", where the name of the file does not tell.

    Raises:
        TableError: If the file is no Parquet, or cannot be modelled.
        SettingsError: If there are columns to condition on.
    """
    path = Path(path)
    if given:
        raise SettingsError(
            "A stream is modelled as it is, without columns to condition on, got given="
            f"{list(given)}; read the table at once."
        )
    if path.suffix.lower() not in SUFFIXES and format != "parquet":
        raise TableError(f"Expected a Parquet file to stream, got {path.name}; read it at once.")
    return ParquetStream(
        path,
        columns=columns,
        seed=seed,
        drop_missing=drop_missing,
        drop_constant=drop_constant,
        dequantise=dequantise,
        standardise=True,
    )


def _fill(pieces: Iterator[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Join pieces to bufferfuls of one size, the last one apart; the buffer is filled anew."""
    buffer, held = np.empty((0, 0)), 0
    for piece in pieces:
        if not len(buffer):
            buffer = np.empty((size, piece.shape[1]))
        while len(piece):
            fits = piece[: size - held]
            buffer[held : held + len(fits)] = fits
            held, piece = held + len(fits), piece[len(fits) :]
            if held == size:
                yield buffer
                held = 0
    if held:
        yield buffer[:held]
