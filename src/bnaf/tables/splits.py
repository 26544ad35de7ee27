"""Which rows of a table a fit was given, written down so that they can be found again."""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bnaf._checks import plain
from bnaf.errors import TableError
from bnaf.tables.table import Table, TableSplit


class RowSets(NamedTuple):
    """Which rows are to train on, to choose by and to test with: indices, no two alike."""

    train: Tensor
    valid: Tensor
    test: Tensor


def split_rows(rows: int, valid: float = 0.0, test: float = 0.0, *, seed: int = 0) -> RowSets:
    """Split a number of rows at random.

    Args:
        rows: How many there are.
        valid: Share of the rows, below 1, or number of them, to choose by; 0 for none.
        test: Share or number of rows to test with; 0 for none.
        seed: Seed of the split.

    Raises:
        TableError: If no row would be left to train on.

    Example:
        >>> [len(part) for part in split_rows(100, valid=0.2, test=5)]
        [75, 20, 5]
    """
    counts = count_held_out(rows, valid, test)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(rows))
    held, train = order[: sum(counts)], order[sum(counts) :]
    return RowSets(train, *held.split(counts))


def count_held_out(rows: int, valid: float = 0.0, test: float = 0.0) -> tuple[int, int]:
    """Return how many rows a split sets aside to choose by, and to test with.

    Args:
        rows: How many there are.
        valid: Share of the rows, below 1, or number of them, to choose by.
        test: Share or number of rows to test with.

    Raises:
        TableError: If no row would be left to train on.

    Example:
        >>> count_held_out(100, 0.2, 5)
        (20, 5)
    """
    counts = _share("valid", valid, rows), _share("test", test, rows)
    if sum(counts) >= rows:
        raise TableError(
            f"A split of {rows:,} rows into {counts[0]:,} for validation and {counts[1]:,} for "
            "testing leaves none to train on, expected one at least; ask for fewer."
        )
    return counts


def split_table(
    table: Table, valid: float = 0.1, test: float = 0.1, *, seed: int = 0
) -> TableSplit:
    """Split the rows of a table at random, as :func:`split_rows` does.

    Args:
        table: Rows to split.
        valid: Share or number of rows to choose by; 0 for none.
        test: Share or number of rows to test with; 0 for none.
        seed: Seed of the split.

    Raises:
        TableError: If no row would be left to train on.
    """
    sets = split_rows(len(table), valid, test, seed=seed)
    parts = [table.take(part) if len(part) else None for part in sets[1:]]
    return TableSplit(table.take(sets.train), *parts)


def _share(name: str, value: object, rows: int) -> int:
    share = plain(value)
    number = isinstance(share, int | float) and not isinstance(share, bool)
    if not number or share < 0 or (share >= 1 and share != int(share)):
        raise TableError(f"{name} must be a share below 1 or a number of rows, got {value!r}.")
    return int(share) if share >= 1 else round(share * rows)


@dataclass(frozen=True)
class RowSplit:
    """Split of the rows of one table, by numbers and a seed.

    Args:
        rows: How many rows the table has.
        valid: How many of them were set aside to choose by.
        test: How many were set aside to test with, and never seen.
        seed: Seed of the split.

    Example:
        >>> [len(part) for part in RowSplit.plan(6, valid=1, test=2).sets()]
        [3, 1, 2]
    """

    rows: int
    valid: int
    test: int
    seed: int

    @classmethod
    def plan(
        cls, rows: int, valid: float = 0.0, test: float = 0.0, *, seed: int = 0
    ) -> "RowSplit":
        """Plan a split.

        Args:
            rows: How many rows the table has.
            valid: Share of the rows, below 1, or number of them, to choose by.
            test: Share or number of rows to test with.
            seed: Seed of the split.

        Raises:
            TableError: If no row would be left to train on.
        """
        sets = split_rows(rows, valid, test, seed=seed)
        return cls(plain(rows), len(sets.valid), len(sets.test), plain(seed))

    @classmethod
    def from_dict(cls, facts: Any) -> "RowSplit":
        """Return the split that :meth:`as_dict` wrote down, today or with a digest of the table.

        Raises:
            TableError: If the facts are not those of a split.
        """
        try:
            split = cls(**{name: value for name, value in facts.items() if name != "digest"})
            counts = [split.rows, split.valid, split.test, split.seed]
            valid = all(type(count) is int and count >= 0 for count in counts)
        except (AttributeError, TypeError):  # they are no mapping, or one of other names
            valid = False
        if not valid or split.valid + split.test >= split.rows:
            raise TableError(f"Expected the facts of a split of rows, got {facts!r:.200}.")
        return split

    def as_dict(self) -> dict[str, Any]:
        """Return the split ready for JSON."""
        return dataclasses.asdict(self)

    def sets(self) -> RowSets:
        """Return where the rows to train on, to choose by and to test with stand."""
        return split_rows(self.rows, self.valid, self.test, seed=self.seed)
