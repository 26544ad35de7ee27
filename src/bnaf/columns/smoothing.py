r"""The smoothed distribution of whole numbers: heaps on coarse bins, with parametric tails.

A value k that n of N rows have gets the mass

.. math:: p(k) = \frac{\max(n_k - d, 0)}{N} + \lambda\, q(k)

by absolute discounting: every value gives up to d of its rows away, and a coarse distribution q,
even within bins that hold equally many of those rows, spreads them, so that values never seen
have a mass, too. Beyond the outermost bins q has generalised Pareto tails. The discount and the
number of bins are those under which held-out rows are most probable.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from bnaf.columns.curve import Curve, Tail

DISCOUNTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, math.inf)
BINS = (4, 8, 16, 32, 64, 128)
MOST_HEAPS = 2**14
CHOICE_ROWS = 20_000  # that discount and bins are chosen by
SINGLE = 0.5  # rows that every bin has more than were seen in it


def smooth(
    values: Int64[np.ndarray, " rows"],
    weights: Float64[np.ndarray, " rows"] | None = None,
    lowest: float = -math.inf,
    highest: float = math.inf,
) -> Curve:
    """Return the smoothed distribution of whole numbers.

    Args:
        values: The numbers, one per row.
        weights: What each row counts for; one each by default.
        lowest: Least number that may occur.
        highest: Largest number that may occur.
    """
    if weights is None:
        weights = np.ones(len(values))
    weights = weights * (len(weights) / weights.sum())
    discount, bins = _choose(values, weights, lowest, highest)
    return _fit(*_tally(values, weights), discount, bins, lowest, highest)


def _choose(
    values: np.ndarray, weights: np.ndarray, lowest: float, highest: float
) -> tuple[float, int]:
    """Return discount and number of bins under which one half makes the other most probable."""
    order = np.random.default_rng(0).permutation(len(values))[:CHOICE_ROWS]
    halves = [_tally(values[half], weights[half]) for half in (order[::2], order[1::2])]
    if len(order) < 8:
        return 1.0, BINS[0]

    @cache
    def score(discount: float, bins: int) -> float:
        total = 0.0
        for fitted, (found, counts) in (halves, halves[::-1]):
            curve = _fit(*fitted, discount, bins, lowest, highest)
            total += float(counts @ curve.log_mass(found.astype(np.float64)))
        return total

    discount, bins = 1.0, 16
    fitting = [bins for bins in BINS if bins <= max(4, len(order) // 8)]
    for _ in range(2):  # the one given the other, twice
        bins = max(fitting, key=lambda option: score(discount, option))
        discount = max(DISCOUNTS, key=lambda option: score(option, bins))
    return discount, bins


def _tally(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values, and how much each counts for."""
    found, places = np.unique(values, return_inverse=True)
    return found, np.bincount(places, weights, len(found))


def _fit(
    found: np.ndarray,
    counts: np.ndarray,
    discount: float,
    bins: int,
    lowest: float,
    highest: float,
) -> Curve:
    rows = counts.sum()
    heaped = counts > discount
    if heaped.sum() > MOST_HEAPS:  # those with more rows than the first that has no room
        heaped &= counts > np.sort(counts)[-MOST_HEAPS - 1]
    excess = np.where(heaped, counts - discount, 0.0) if heaped.any() else np.zeros(len(counts))
    masses = _short(excess[heaped] / rows, 7)
    spread = counts - excess
    edges = _edges(found, spread, bins)
    inside = np.searchsorted(edges, found)  # 0 below the first edge, len(edges) above the last
    held = np.bincount(inside, spread, len(edges) + 1) + SINGLE
    room = (lowest - 0.5 < edges[0], highest + 0.5 > edges[-1])
    held[0] *= room[0]
    held[-1] *= room[1]
    tails = (
        _tail(edges[0] - found, spread, edges),
        _tail(found - edges[-1], spread, edges),
    )
    held = _short(held / held.sum(), 10)
    return Curve(found[heaped].astype(np.float64), masses, edges, held, tails, lowest, highest)


def _edges(found: np.ndarray, spread: np.ndarray, bins: int) -> np.ndarray:
    """Return edges of bins that hold equally many rows, between the two tails."""
    reached = np.cumsum(spread)
    rows = reached[-1]
    tail = min(0.25, max(0.02, 5 / rows))
    shares = np.linspace(tail, 1 - tail, bins + 1)
    places = np.minimum(np.searchsorted(reached, shares * rows), len(found) - 1)
    edges = found[places] + 0.5
    edges[0] = found[places[0]] - 0.5
    return np.unique(edges)


def _tail(distance: np.ndarray, spread: np.ndarray, edges: np.ndarray) -> Tail:
    """Return the tail that fits mean and variance of the distances beyond an edge."""
    beyond = distance > 0
    rows: Any = spread[beyond].sum()
    if not rows:
        return Tail(max(0.5, 0.05 * float(edges[-1] - edges[0])), 0.0)
    mean = float(distance[beyond] @ spread[beyond] / rows)
    spreading = float((distance[beyond] - mean) ** 2 @ spread[beyond] / rows)
    shape = 0.0
    if rows >= 5 and spreading > mean**2:
        shape = min(0.4, 0.5 * (1 - mean**2 / spreading))
    scale = max(mean, 0.5) * (1 - shape)
    return Tail(scale, shape)


def _short(masses: np.ndarray, digits: int) -> np.ndarray:
    """Return masses with few digits, so that a file holds them in short."""
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** (digits - 1 - np.floor(np.log10(masses)))
        return np.where(masses > 0, np.round(masses * unit) / unit, 0.0)
