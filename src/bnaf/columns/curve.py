"""A distribution of whole numbers, and the normal scores of its cells."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.special import ndtri_exp

from bnaf.columns.kind import Snapped, Values
from bnaf.columns.stored import entry, numbers_of, refused

NARROW = 1e-6  # scores below which the ends of a cell differ too little to be subtracted
FARTHEST = 2.0**52
LOG_ROOT = 0.5 * math.log(2 * math.pi)


class Tail(NamedTuple):
    """Generalised Pareto tail of a scale, and of a shape from 0 (exponential) upwards."""

    scale: float
    shape: float

    def log_beyond(self, distance: Values) -> Values:
        """Return the log of the share that lies farther out."""
        found: Values
        if self.shape < 1e-6:
            found = -distance / self.scale
        else:
            found = -np.log1p(self.shape / self.scale * distance) / self.shape
        return found


class Curve:
    """Distribution of whole numbers: heaps, coarse bins that are even within, two tails.

    Args:
        heaps: Numbers with a mass of their own, increasing.
        masses: Those masses; what is left to one is spread over the bins and tails.
        edges: Edges of the bins, halfway between whole numbers.
        shares: Shares of lower tail, bins and upper tail in what is spread.
        tails: Lower and upper tail.
        lowest: Least number that may occur.
        highest: Largest number that may occur.
    """

    def __init__(
        self,
        heaps: Float64[np.ndarray, " heaps"],
        masses: Float64[np.ndarray, " heaps"],
        edges: Float64[np.ndarray, " edges"],
        shares: Float64[np.ndarray, " edges+1"],
        tails: tuple[Tail, Tail],
        lowest: float = -math.inf,
        highest: float = math.inf,
    ) -> None:
        self.heaps, self.masses, self.edges, self.shares = heaps, masses, edges, shares
        self.tails, self.lowest, self.highest = tails, lowest, highest
        self._below = np.concatenate([[0.0], np.cumsum(masses)])
        self._above = np.concatenate([np.cumsum(masses[::-1])[::-1], [0.0]])
        self._spread = max(1.0 - float(masses.sum()), 0.0)
        self._ends = [
            np.concatenate([[0.0], np.cumsum(shares)])[1:-1],
            np.concatenate([np.cumsum(shares[::-1])[::-1], [0.0]])[1:-1],
        ]  # of the spread: below and above each edge
        with np.errstate(divide="ignore"):
            self._log_cut = [  # of each tail: what lies beyond the bound
                self.tails[0].log_beyond(np.maximum(edges[:1] - (lowest - 0.5), 0.0))[0],
                self.tails[1].log_beyond(np.maximum((highest + 0.5) - edges[-1:], 0.0))[0],
            ]

    def log_mass(self, k: Values) -> Values:
        """Return the log of the mass of whole numbers."""
        with np.errstate(divide="ignore", invalid="ignore"):
            log_spread = np.log(self._spread)
            place = np.searchsorted(self.edges, k)
            widths = np.concatenate([[1.0], np.diff(self.edges), [1.0]])
            found = np.log(self.shares / widths)[place]
            for side, out in ((0, place == 0), (1, place == len(self.edges))):
                if out.any():
                    found[out] = self._log_tail_cell(k[out], side)
            heap = np.minimum(np.searchsorted(self.heaps, k), max(len(self.heaps) - 1, 0))
            own = np.full(len(k), -np.inf)
            if len(self.heaps):
                own = np.where(self.heaps[heap] == k, np.log(self.masses)[heap], -np.inf)
            found = np.logaddexp(own, log_spread + found)
        outside = (k < self.lowest) | (k > self.highest)
        return np.where(outside, -np.inf, found)

    def cells(self, k: Values) -> Snapped:
        """Return the normal scores of the cells of whole numbers, k - 1/2 to k + 1/2."""
        found, places = np.unique(k, return_inverse=True)
        return Snapped(*(part[places] for part in self._cells(found)))

    def _cells(self, k: Values) -> Snapped:
        k = np.clip(k, max(self.lowest, -FARTHEST), min(self.highest, FARTHEST))
        low, high = self._log_shares(k - 0.5), self._log_shares(k + 0.5)
        middle = _score(
            *(np.logaddexp(a, b) - math.log(2) for a, b in zip(low, high, strict=True))
        )
        below, above = middle - _score(*low), _score(*high) - middle
        # where the ends are too near each other, by the density at the middle
        half = np.exp(self.log_mass(k) - math.log(2) + 0.5 * middle**2 + LOG_ROOT)
        narrow = below + above < NARROW
        return Snapped(middle, np.where(narrow, half, below), np.where(narrow, half, above))

    def find(self, z: Values) -> Values:
        """Return the whole numbers whose cells hold normal scores."""
        marks, scores = self._marks
        place = np.searchsorted(scores, z)
        ends = [max(self.lowest, -FARTHEST), min(self.highest, FARTHEST)]
        low = np.concatenate([ends[:1], marks + 0.5])[place]
        high = np.concatenate([marks - 0.5, ends[1:]])[place]
        searched = np.flatnonzero(low < high)
        while len(searched):  # for the first k whose upper end is not below the score
            middle = np.floor((low[searched] + high[searched]) / 2)
            below = _score(*self._log_shares(middle + 0.5)) < z[searched]
            low[searched] = np.where(below, middle + 1, low[searched])
            high[searched] = np.where(below, high[searched], middle)
            searched = searched[low[searched] < high[searched]]
        return low

    @cached_property
    def _marks(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends of bins and of heaps, and their normal scores."""
        marks = np.unique(np.concatenate([self.edges, self.heaps - 0.5, self.heaps + 0.5]))
        marks = marks[(marks > self.lowest) & (marks < self.highest)]
        return marks, _score(*self._log_shares(marks))

    def _log_tail_cell(self, k: Values, side: int) -> Values:
        """Return the log of the share of the spread in cells within a tail."""
        edge, tail, cut = self.edges[-side], self.tails[side], self._log_cut[side]
        near = tail.log_beyond(np.abs(k - edge) - 0.5)
        far = tail.log_beyond(np.abs(k - edge) + 0.5)
        found: Values = near + np.log1p(-np.exp(far - near)) - np.log1p(-np.exp(cut))
        return np.asarray(np.log(self.shares[-side]) + found)

    def _log_shares(self, x: Values) -> tuple[Values, Values]:
        """Return the logs of the masses below and above points between whole numbers."""
        with np.errstate(divide="ignore", invalid="ignore"):
            log_spread = np.log(self._spread)
            place = np.searchsorted(self.heaps, x)
            below, above = (
                np.logaddexp(np.log(heaped[place]), log_spread + np.log(even))
                for heaped, even in (
                    (self._below, np.interp(x, self.edges, self._ends[0])),
                    (self._above, np.interp(x, self.edges, self._ends[1])),
                )
            )
            for side, found in ((0, below), (1, above)):
                edge = self.edges[-side]
                out = x < edge if side == 0 else x > edge
                if out.any():
                    heaped = (self._below, self._above)[side][place[out]]
                    tail = self._log_tail_beyond(x[out], side)
                    found[out] = np.logaddexp(np.log(heaped), log_spread + tail)
                    other = (above, below)[side]
                    other[out] = np.log1p(-np.exp(np.minimum(found[out], 0.0)))
        below[x >= self.highest + 0.5], above[x >= self.highest + 0.5] = 0.0, -np.inf
        below[x <= self.lowest - 0.5], above[x <= self.lowest - 0.5] = -np.inf, 0.0
        return below, above

    def _log_tail_beyond(self, x: Values, side: int) -> Values:
        """Return the log of the share of the spread that lies farther out than points."""
        tail, cut = self.tails[side], self._log_cut[side]
        beyond = tail.log_beyond(np.abs(x - self.edges[-side]))
        found: Values = beyond + np.log1p(-np.exp(np.minimum(cut - beyond, 0.0)))
        return np.asarray(np.log(self.shares[-side]) + found - np.log1p(-np.exp(cut)))

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON holds it; heaps by the gaps between them, which are short."""
        gaps = np.diff(self.heaps, prepend=0.0)
        return {
            "heaps": [int(gap) for gap in gaps],
            "masses": self.masses.tolist(),
            "edges": self.edges.tolist(),
            "shares": self.shares.tolist(),
            "tails": [list(tail) for tail in self.tails],
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], lowest: float, highest: float) -> "Curve":
        """Return what :meth:`as_dict` has made.

        Raises:
            StorageError: If it is no distribution.
        """
        gaps, masses = numbers_of(stored, "heaps"), numbers_of(stored, "masses")
        heaps = np.cumsum(gaps)
        edges, shares = numbers_of(stored, "edges"), numbers_of(stored, "shares")
        if len(gaps) != len(masses) or (gaps[1:] <= 0).any() or (gaps != gaps.round()).any():
            raise refused("heaps", "increasing whole numbers, one per mass", stored["heaps"])
        if (masses < 0).any() or masses.sum() >= 1:
            raise refused("masses", "masses that leave some of one", stored["masses"])
        if not len(edges) or (np.diff(edges) <= 0).any() or np.abs(edges).max() > FARTHEST:
            raise refused("edges", "increasing edges", stored["edges"])
        if (edges + 0.5 != np.round(edges + 0.5)).any() or np.abs(heaps).max(initial=0) > FARTHEST:
            raise refused("edges", "edges halfway between whole numbers", stored["edges"])
        if len(shares) != len(edges) + 1 or (shares < 0).any() or abs(shares.sum() - 1) > 1e-6:
            raise refused("shares", "shares of bins and tails that sum to one", stored["shares"])
        tails = entry(stored, "tails")
        if not isinstance(tails, list) or len(tails) != 2:
            raise refused("tails", "two tails", tails)
        pairs = [numbers_of({"tails": tail}, "tails") for tail in tails]
        if any(len(pair) != 2 or not (pair[0] > 1e-9 and 0 <= pair[1] < 1) for pair in pairs):
            raise refused("tails", "a scale and a shape of each", tails)
        inside = heaps[(heaps < lowest) | (heaps > highest)]
        if len(inside) or edges[0] < lowest - 0.5 or edges[-1] > highest + 0.5:
            raise refused("heaps", "numbers within the bounds", stored["heaps"])
        lower, upper = (Tail(float(pair[0]), float(pair[1])) for pair in pairs)
        return cls(heaps, masses, edges, shares, (lower, upper), lowest, highest)


def _score(log_below: Values, log_above: Values) -> Values:
    """Return the normal score of a point with so much mass on either side, from the smaller."""
    lower = log_below < log_above
    found: Values = ndtri_exp(np.where(lower, log_below, log_above))
    return np.where(lower, found, -found)
