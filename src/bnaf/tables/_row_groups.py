"""Rows of a Parquet file by their row groups, in any order of these."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from bnaf.tables.moments import RunningMoments
from bnaf.tables.parquet import group_rows, number_rows

Piece = tuple[Any, np.ndarray]
"""Rows, an array of numbers unless they are read otherwise, and their numbers in the file."""


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Row groups of a file, and which of its rows count.

    Args:
        sizes: Rows of each.
        chosen: Which rows of the file count, one truth value for each; all by default.
        reader: What to make of a batch of Arrow: numbers by default.
    """

    sizes: list[int]
    chosen: np.ndarray | None = None
    reader: Callable[[Any], Any] = number_rows

    @classmethod
    def of(cls, file: Any) -> "RowGroups":
        """Return those of an open file."""
        groups = range(file.num_row_groups)
        return cls([file.metadata.row_group(group).num_rows for group in groups])

    @property
    def rows(self) -> int:
        """Number of rows that count."""
        return sum(self.counts)

    @property
    def marks(self) -> Bool[np.ndarray, " all_rows"]:
        """Which rows of the file count, one truth value for each."""
        return np.ones(sum(self.sizes), dtype=bool) if self.chosen is None else self.chosen

    @cached_property
    def counts(self) -> list[int]:
        """Rows of each group that count."""
        if self.chosen is None:
            return self.sizes
        parts = np.split(self.chosen, np.cumsum(self.sizes)[:-1])
        return [int(part.sum()) for part in parts]

    def read(
        self, file: Any, columns: Sequence[str], order: Iterable[int], start: int, stop: int
    ) -> Iterator[Piece]:
        """Read the rows that count, with the groups laid end to end in some order.

        Args:
            file: The open file.
            columns: Columns to read, in that order.
            order: That of the groups.
            start: First row wanted.
            stop: Row after the last wanted.
        """
        firsts = np.cumsum([0, *self.sizes])
        before = 0
        for group in order:
            first, last = int(firsts[group]), int(firsts[group + 1])
            low, high = max(start - before, 0), min(stop - before, self.counts[group])
            if low < high:
                chosen = None if self.chosen is None else self.chosen[first:last]
                pieces = group_rows(file, group, columns, chosen, low, high, self.reader)
                for rows, places in pieces:
                    yield rows, first + places
            before += self.counts[group]

    def moments(
        self, file: Any, columns: Sequence[str], weights: Tensor | None = None
    ) -> RunningMoments:
        """Return the moments of the rows that count.

        Args:
            file: The open file.
            columns: Of which columns.
            weights: How much each row of the file counts, by its number.
        """
        moments = RunningMoments(len(columns))
        for rows, numbers in self.read(file, columns, range(len(self.sizes)), 0, self.rows):
            parts = None if weights is None else weights[torch.from_numpy(numbers)]
            moments.update(torch.from_numpy(rows), parts)
        return moments


def fill_buffers(pieces: Iterator[Piece], size: int) -> Iterator[Piece]:
    """Join pieces to bufferfuls of one size, the last one apart; the buffers are filled anew."""
    rows, numbers, held = np.empty((0, 0)), np.empty(0, int), 0
    for values, places in pieces:
        if not len(rows):
            rows, numbers = np.empty((size, values.shape[1])), np.empty(size, np.int64)
        while len(values):
            count = min(len(values), size - held)
            rows[held : held + count] = values[:count]
            numbers[held : held + count] = places[:count]
            held, values, places = held + count, values[count:], places[count:]
            if held == size:
                yield rows, numbers
                held = 0
    if held:
        yield rows[:held], numbers[:held]
