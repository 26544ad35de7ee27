"""Targets of few values: a density could be as high as it likes at each of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64

from bnaf.laws.cells import log_mass
from bnaf.laws.normal import normal_cdf
from bnaf.model.model import Model

ROWS_PER_VALUE = 5  # from which on values are few
MOST_VALUES = 2_000  # that are few: what is computed of a row grows with them
RECURRING = 2  # rows that differ per value, from which on they are
ROUNDING = 1e-12  # of the largest value: closer ones are one value, but for how it was computed
POINTS = 65_536  # pairs of a row and an end that are scored at a time

Numbers = Float64[np.ndarray, " rows"]
Levels = Float64[np.ndarray, "rows inner_ends"]


class Steps(NamedTuple):
    """Values of a column, each with the cell of numbers that are nearer to it than to others.

    Within the cells a law has their masses, beyond them it stays the density that it is: so it
    integrates to one, and a value that was never seen is unlikely, not impossible. Draws,
    quantiles, means and scores count what lies there as the outermost value.

    Args:
        values: The values, in order.
        ends: Ends of their cells, one more.
    """

    values: Float64[np.ndarray, " values"]
    ends: Float64[np.ndarray, " ends"]

    @classmethod
    def of(cls, column: Numbers, rows: float) -> "Steps | None":
        """Return the values of a column, or ``None`` where they are not few.

        Few values recur beside others: rows that come several times alone make none few.

        Args:
            column: The column in rows that differ.
            rows: How many rows these stand for.

        Example:
            >>> Steps.of(np.repeat([1.0, 2.0, 4.0], 2), 15).ends
            array([0.5, 1.5, 3. , 5. ])
        """
        values = np.unique(column)
        few = ROWS_PER_VALUE * len(values) <= rows and RECURRING * len(values) <= len(column)
        if not (2 <= len(values) <= MOST_VALUES and few):
            return None
        halves = np.diff(values) / 2
        if halves.min() <= ROUNDING * np.abs(values).max():
            return None
        first, last = values[0] - halves[0], values[-1] + halves[-1]
        return cls(values, np.concatenate([[first], values[:-1] + halves, [last]]))

    def snap(self, numbers: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
        """Return the values whose cells numbers lie in, the outermost for those beyond."""
        found: np.ndarray = self.values[self._cells(numbers)]
        return found

    def upper(self, column: Numbers) -> Numbers:
        """Return the upper ends of the cells of the last values up to numbers.

        Beyond all cells it is the numbers themselves.
        """
        ends = self.ends[np.searchsorted(self.values, column, "right")]
        found: np.ndarray = np.where(self._beyond(column), column, ends)
        return found

    def log_prob(self, model: Model, given: Any, column: Numbers) -> Numbers:
        """Return the log-density of numbers: within cells that of the cell, which is even."""
        cell, given = self._cells(column), torch.from_numpy(np.array(given))
        low, high = (torch.from_numpy(ends).unsqueeze(1) for ends in self._ends_of(cell))
        below, above = (model.base_noise(end, given).squeeze(1) for end in (low, high))
        masses = log_mass(above, (above - below).abs(), torch.zeros_like(above))
        found = masses - (high - low).squeeze(1).log()
        far = torch.from_numpy(self._beyond(column))
        if far.any():
            rows = torch.from_numpy(column).unsqueeze(1)
            found[far] = model.log_prob(rows[far], given[far])
        return found.numpy()

    def moments(self, model: Model, given: Any) -> np.ndarray:
        """Return the mean and the deviation of each row, of its probabilities of the values."""
        found = [self._moments(levels) for _, levels in self._levels(model, given)]
        return np.concatenate(found, 1)[..., None]

    def rank_scores(self, model: Model, given: Any, targets: Numbers) -> Numbers:
        """Return the continuous ranked probability score of targets, values or not."""
        parts = self._levels(model, given)
        return np.concatenate([self._rank_scores(levels, targets[part]) for part, levels in parts])

    def _moments(self, levels: Levels) -> np.ndarray:
        masses = np.diff(levels, prepend=0, append=1)
        mean = masses @ self.values
        variance = (masses * (self.values - mean[:, None]) ** 2).sum(1)
        return np.stack([mean, np.sqrt(variance)])

    def _rank_scores(self, levels: Levels, targets: Numbers) -> Numbers:
        values = self.values
        above = targets[:, None] > values
        scores = (levels - ~above[:, :-1]) ** 2 @ np.diff(values)
        # of the gap that a target lies in, only what is below it was meant
        gap = np.clip(np.searchsorted(values, targets) - 1, 0, len(values) - 2)
        rest = np.where(above[:, 0], values[gap + 1] - np.minimum(targets, values[-1]), 0)
        scores += rest * (1 - 2 * np.take_along_axis(levels, gap[:, None], 1)[:, 0])
        beyond: np.ndarray = np.maximum(values[0] - targets, targets - values[-1])
        return scores + np.maximum(beyond, 0)  # type: ignore[no-any-return]

    def _levels(self, model: Model, given: Any) -> Iterator[tuple[slice, Levels]]:
        """Yield the probability of at most each value but the last, for some rows at a time."""
        ends = torch.from_numpy(self.ends[1:-1]).view(-1, 1, 1)
        context, size = torch.from_numpy(np.array(given)), max(1, POINTS // len(ends))
        for start in range(0, len(context), size):
            rows = slice(start, start + size)
            points = ends.expand(-1, len(context[rows]), 1)
            yield rows, normal_cdf(model.base_noise(points, context[rows]).squeeze(-1)).T.numpy()

    def _cells(self, numbers: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.searchsorted(self.ends[1:-1], numbers)
        return found

    def _ends_of(self, cells: np.ndarray) -> tuple[Numbers, Numbers]:
        return self.ends[cells], self.ends[cells + 1]

    def _beyond(self, numbers: np.ndarray) -> np.ndarray:
        found: np.ndarray = (numbers < self.ends[0]) | (numbers > self.ends[-1])
        return found
