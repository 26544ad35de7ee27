"""Rows as estimators count them: those that differ, and how much each counts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64
from sklearn.utils.validation import _check_sample_weight

from bnaf.errors import SettingsError
from bnaf.tables.ties import constant_columns, tied_columns, warn_of_columns


class DistinctRows(NamedTuple):
    """Rows in sorted order, no two alike, and how much each counts."""

    rows: Float64[np.ndarray, "rows columns"]
    weights: Float64[np.ndarray, " rows"]
    lines: int = 0
    """How many rows there were before equal ones became one, where that is known."""

    @property
    def whole(self) -> bool:
        """Whether all weights are whole: how often each row comes."""
        return bool((self.weights == self.weights.round()).all())

    @property
    def stands_for(self) -> float:
        """How many rows these stand for."""
        return max(self.lines, len(self.rows), self.weights.sum() if self.whole else 0)

    def take(self, chosen: Bool[np.ndarray, " rows"]) -> "DistinctRows":
        """Return some of the rows."""
        return DistinctRows(self.rows[chosen], self.weights[chosen], self.lines)


def merge_rows(
    rows: Float64[np.ndarray, "rows columns"], sample_weight: Any = None
) -> DistinctRows:
    """Return the rows that differ, each with the sum of its weights.

    A row that comes twice and a row of weight two are then the same thing, to the last bit, and
    so is any order of the rows. Weights that are all alike are none: only proportions count.

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
    return DistinctRows(rows[first], np.add.reduceat(weights[order], first), len(rows))


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
