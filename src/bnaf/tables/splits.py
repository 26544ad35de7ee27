"""Which rows of a table a fit was given, written down so that they can be found again."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bnaf.tables.reading import Table, split_table
from bnaf.errors import TableError


@dataclass(frozen=True)
class RowSplit:
    """Split of the rows of one table, by numbers and a seed.

    Args:
        rows: How many rows the table has.
        valid: How many of them were set aside to choose by.
        test: How many were set aside to test with, and never seen.
        seed: Seed of the split.
        digest: What :func:`digest_table` says of the table.

    Example:
        >>> table = Table(torch.arange(6.0).reshape(6, 1), ("a",))
        >>> split = RowSplit.of(table, valid=1, test=2)
        >>> [len(part) for part in split.indices()], split.matches(table)
        ([3, 1, 2], True)
    """

    rows: int
    valid: int
    test: int
    seed: int
    digest: str

    @classmethod
    def of(
        cls, table: Table, valid: float = 0.0, test: float = 0.0, *, seed: int = 0
    ) -> "RowSplit":
        """Plan a split.

        Args:
            table: The rows.
            valid: Share of the rows, below 1, or number of them, to choose by.
            test: Share or number of rows to test with.
            seed: Seed of the split.

        Raises:
            TableError: If no row would be left to train on.
        """
        parts = split_table(table, valid, test, seed=seed)
        counts = [0 if part is None else len(part) for part in (parts.valid, parts.test)]
        return cls(len(table), counts[0], counts[1], seed, digest_table(table))

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "RowSplit":
        """Return the split that :meth:`as_dict` wrote down.

        Raises:
            TableError: If the facts are not those of a split.
        """
        try:
            split = cls(**facts)
            counts = [split.rows, split.valid, split.test, split.seed]
            valid = all(type(count) is int and count >= 0 for count in counts)
        except TypeError:
            valid = False
        if not valid or split.valid + split.test >= split.rows:
            raise TableError(f"Expected the facts of a split of rows, got {dict(facts)!r}.")
        return split

    def as_dict(self) -> dict[str, Any]:
        """Return the split ready for JSON."""
        return dataclasses.asdict(self)

    def matches(self, table: Table) -> bool:
        """Return whether this is the table that was split: same columns, same rows, same order."""
        return len(table) == self.rows and digest_table(table) == self.digest

    def indices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return where the rows to train on, to choose by and to test with stand."""
        numbers = Table(torch.arange(self.rows, dtype=torch.float64).unsqueeze(1), ("row",))
        parts = split_table(numbers, self.valid, self.test, seed=self.seed)
        train, valid, test = (
            torch.empty(0, dtype=torch.long) if part is None else part.rows[:, 0].long()
            for part in parts
        )
        return train, valid, test


def digest_table(table: Table) -> str:
    """Return a number, in hexadecimal, that stands for the columns and rows of a table."""
    names = json.dumps(table.columns).encode()
    return hashlib.sha256(names + table.rows.numpy().astype("<f8").tobytes()).hexdigest()
