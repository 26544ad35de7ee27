"""Targets of few values: a density could be as high as it likes at each of them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf.laws.cells import log_mass

ROWS_PER_VALUE = 5  # from which on values are few

Numbers = Float64[np.ndarray, " rows"]


class Steps(NamedTuple):
    """Values of a column, each with the cell of numbers that are nearer to it than to others.

    Args:
        values: The values, in order.
        ends: Ends of their cells, one more.
    """

    values: Float64[np.ndarray, " values"]
    ends: Float64[np.ndarray, " ends"]

    @classmethod
    def of(cls, column: Numbers) -> "Steps | None":
        """Return the values of a column, or ``None`` where they are not few.

        Example:
            >>> Steps.of(np.repeat([1.0, 2.0, 4.0], 5)).ends
            array([0.5, 1.5, 3. , 5. ])
        """
        values = np.unique(column)
        if len(values) < 2 or ROWS_PER_VALUE * len(values) > len(column):
            return None
        halves = np.diff(values) / 2
        first, last = values[0] - halves[0], values[-1] + halves[-1]
        return cls(values, np.concatenate([[first], values[:-1] + halves, [last]]))

    def snap(self, numbers: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
        """Return the values whose cells numbers lie in, the outermost for those beyond."""
        found: np.ndarray = self.values[self._cells(numbers)]
        return found

    def upper(self, column: Numbers) -> Numbers:
        """Return the upper ends of the cells of the last values up to numbers."""
        found: np.ndarray = self.ends[np.searchsorted(self.values, column, "right")]
        return found

    def log_prob(self, scores: Callable[[Numbers], Tensor], column: Numbers) -> Numbers:
        """Return the logarithm of the mean density of the cells that numbers lie in.

        Args:
            scores: Normal scores of numbers under the law of each row.
            column: The numbers.
        """
        cell = self._cells(column)
        low, high = self.ends[cell], self.ends[cell + 1]
        above = scores(high)
        masses = log_mass(above, (above - scores(low)).abs(), torch.zeros_like(above))
        found: np.ndarray = masses.numpy() - np.log(high - low)
        return found

    def _cells(self, numbers: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.ends[1:-1], numbers)
