"""Rows as estimators count them: those that differ, and how much each counts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64
from sklearn.utils.validation import _check_sample_weight

from bnaf.errors import SettingsError
from bnaf.tables.ties import constant_columns, tied_columns, warn_of_columns

MOST_REPEATED = 1_000_000  # rows that whole weights are written out to, or as many as came


class DistinctRows(NamedTuple):
    """Rows in sorted order, no two alike, and how much each counts."""

    rows: Float64[np.ndarray, "rows columns"]
    weights: Float64[np.ndarray, " rows"]
    lines: Int64[np.ndarray, " rows"] | None = None
    """How many rows each was before equal ones became one, where that is known."""

    @property
    def whole(self) -> bool:
        """Whether all weights are whole: how often each row comes."""
        return bool((self.weights == self.weights.round()).all())

    @property
    def stands_for(self) -> int:
        """How many rows these are written out to."""
        return int(self._times(MOST_REPEATED).sum())

    def take(self, chosen: Bool[np.ndarray, " rows"]) -> "DistinctRows":
        """Return some of the rows."""
        lines = None if self.lines is None else self.lines[chosen]
        return DistinctRows(self.rows[chosen], self.weights[chosen], lines)

    def written_out(
        self, most: int = MOST_REPEATED
    ) -> tuple[Float64[np.ndarray, "lines columns"], Float64[np.ndarray, " lines"]]:
        """Return rows as often as they count, and what each counts then.

        Where weights are not whole, or would make more rows than are wanted, it is as often as
        they came: rows that were left as one would be taken for the few that differ.

        Args:
            most: Rows that whole weights are written out to, or as many as came.
        """
        times = self._times(most)
        return np.repeat(self.rows, times, 0), np.repeat(self.weights / times, times)

    def _times(self, most: int) -> Int64[np.ndarray, " rows"]:
        came = np.ones(len(self.rows), np.int64) if self.lines is None else self.lines
        if self.whole and self.weights.sum() <= max(most, 2 * len(self.rows), came.sum()):
            return self.weights.astype(np.int64)
        return came


def merge_rows(
    rows: Float64[np.ndarray, "rows columns"], sample_weight: Any = None
) -> DistinctRows:
    """Return the rows that differ, each with the sum of its weights.

    A row that comes twice and one of weight two among others of weight one are then the same
    thing, to the last bit, and so is any order of the rows. Weights that are all alike are none.

    Args:
        rows: Finite values.
        sample_weight: How much each row counts, none below 0; those that weigh nothing are left
            out.

    Raises:
        SettingsError: If no row weighs anything.

    Example:
        >>> merge_rows(np.array([[2.0], [1.0], [2.0]]), np.array([1.0, 3.0, 1.0])).weights
        array([3., 2.])
    """
    weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    counts = weights > 0
    if not counts.any():
        raise SettingsError("sample_weight must have an entry above zero, got none.")
    rows, weights = rows[counts] + 0.0, weights[counts]  # -0 becomes 0
    if (weights == weights[0]).all():
        weights = np.ones(len(weights))
    order = np.lexsort(rows.T[::-1])
    rows = rows[order]
    first = np.flatnonzero(np.r_[True, (rows[1:] != rows[:-1]).any(1)])
    lines = np.diff(np.r_[first, len(rows)])
    return DistinctRows(rows[first], np.add.reduceat(weights[order], first), lines)


def warn_of_rows(
    rows: Float64[np.ndarray, "rows columns"], names: Sequence[str], sample_weight: Any
) -> None:
    """Warn of columns that have no density, as reading a table does."""
    if sample_weight is not None:
        rows = rows[np.broadcast_to(np.asarray(sample_weight), len(rows)) != 0]
    if len(rows):
        constant = constant_columns(rows)
        ties = tied_columns(rows, ["float64"] * rows.shape[1])
        warn_of_columns(names, len(rows), constant, ties, of=" of bnaf.read_table")
