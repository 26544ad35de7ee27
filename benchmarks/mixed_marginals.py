"""Laws of single columns on the cells of a table, and their bins."""

from typing import Any

import numpy as np
import pandas as pd
from mixed_tables import Column

MOST_BINS = 50


def smooth(counts: np.ndarray) -> np.ndarray:
    """Return logs of frequencies, with half a count more for each level."""
    return np.log((counts + 0.5) / (counts + 0.5).sum())


class Marginal:
    """Law of one column: smoothed frequencies of levels, a mixture of three laws of numbers.

    Numbers, in steps, follow a mixture of their frequencies, of a histogram of 50 quantiles and
    of a Cauchy law, with weights that suit rows held out.
    """

    def __init__(self, column: Column, values: pd.Series, seed: int) -> None:
        self.column = column
        empty = values.isna().to_numpy()
        self.log_empty = smooth(np.array([(~empty).sum(), empty.sum()]))
        if column.levels:
            counts = values.value_counts().reindex(column.levels, fill_value=0)
            self.log_levels = smooth(counts.to_numpy())
            return
        places = self.places(values[~empty])
        order = np.random.default_rng(seed).permutation(len(places))
        held = order[: max(2, len(order) // 5)]
        self.learn(np.delete(places, held))
        masses = self.masses(places[held], places[held])  # (rows, laws)
        weights = np.full(3, 1 / 3)
        for _ in range(50):
            shares = weights * masses + 1e-300
            weights = (shares / shares.sum(1, keepdims=True)).mean(0)
        self.weights = 0.999 * weights + 0.001 / 3
        self.learn(places)

    def places(self, values: Any) -> np.ndarray:
        """Return numbers in steps from the offset."""
        numbers = np.asarray(values, dtype=np.float64)
        return np.round((numbers - self.column.offset) / self.column.step)

    def learn(self, places: np.ndarray) -> None:
        """Learn the three laws."""
        self.known = np.sort(places)
        levels = np.linspace(0, 1, min(MOST_BINS, len(np.unique(places))) + 1)
        self.ends, first = np.unique(np.quantile(places, levels), return_index=True)
        self.ends = np.r_[self.ends[0] - 0.5, self.ends[1:] + 0.5]
        self.reached = np.r_[0.0, levels[first][1:]]
        self.reached[-1] = 1.0
        low, self.middle, high = np.quantile(places, [0.25, 0.5, 0.75])
        self.spread = max(1.0, (high - low) / 2)

    def masses(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return what each law gives to the cells from one to another, both included."""
        from scipy.stats import cauchy

        def below(x: np.ndarray) -> np.ndarray:
            return np.stack(
                [
                    np.searchsorted(self.known, x, side="right") / len(self.known),
                    np.interp(x, self.ends, self.reached),
                    cauchy.cdf(x, self.middle, self.spread),
                ],
                -1,
            )

        return np.maximum(below(high + 0.5) - below(low - 0.5), 0)

    def log_mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return the log of the mass of the cells from one to another."""
        return np.log(self.masses(low, high) @ self.weights + 1e-300)

    def score(self, values: pd.Series) -> np.ndarray:
        """Return the log of the mass of each cell."""
        empty = values.isna().to_numpy()
        found = np.zeros(len(values))
        if self.column.levels:
            codes = pd.Categorical(values[~empty], categories=self.column.levels).codes
            found[~empty] = self.log_levels[codes]
        else:
            places = self.places(values[~empty])
            found[~empty] = self.log_mass(places, places)
        return found + (self.log_empty[empty.astype(int)] if self.column.empty else 0.0)


class Bins:
    """Bins of one column: its levels, its values where they are few, else 50 quantiles."""

    def __init__(self, law: Marginal, values: pd.Series) -> None:
        self.law, column = law, law.column
        self.inner = np.empty(0)
        if not column.levels:
            known = np.unique(law.places(values.dropna()))
            if len(known) > MOST_BINS:
                levels = np.linspace(0, 1, MOST_BINS + 1)[1:-1]
                known = np.unique(np.quantile(law.places(values.dropna()), levels))
                self.inner = np.floor(known) + 0.5
                self.inner = np.unique(self.inner)
            else:
                self.inner = np.floor((known[1:] + known[:-1]) / 2) + 0.5
        self.present = len(column.levels) or len(self.inner) + 1
        self.count = self.present + column.empty

    def encode(self, values: pd.Series) -> np.ndarray:
        """Return the bin of each cell; the last one is that of empty cells."""
        if self.law.column.levels:
            codes = pd.Categorical(values, categories=self.law.column.levels).codes.astype(int)
        else:
            codes = np.searchsorted(self.inner, self.law.places(values.fillna(0.0)))
        return np.where(values.isna(), self.present, codes)

    def within(self, values: pd.Series) -> np.ndarray:
        """Return the log of the share of each cell in its bin."""
        found = np.zeros(len(values))
        if self.law.column.levels:
            return found
        there = values.notna().to_numpy()
        places = self.law.places(values[there])
        ends = np.r_[-np.inf, self.inner, np.inf]
        codes = np.searchsorted(self.inner, places)
        low, high = ends[codes] + 0.5, ends[codes + 1] - 0.5
        found[there] = self.law.log_mass(places, places) - self.law.log_mass(low, high)
        return found

    def draw(self, codes: np.ndarray, rows: pd.Series, draws: np.random.Generator) -> np.ndarray:
        """Return values of bins, drawn from those seen there."""
        known, values = self.encode(rows), rows.to_numpy()
        order = np.argsort(known, kind="stable")
        start = np.searchsorted(known[order], codes)
        count = np.searchsorted(known[order], codes, side="right") - start
        chosen = order[np.minimum(start + draws.integers(np.maximum(count, 1)), len(order) - 1)]
        return values[chosen]
