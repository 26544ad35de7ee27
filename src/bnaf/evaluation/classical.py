"""Classical densities to compare flows with, from scikit-learn."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bnaf.model.standardisation import Standardisation
from bnaf.tables.reading import Table

COMPONENTS = (1, 2, 4, 8, 16, 32)
BANDWIDTHS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4)  # times the rule of Scott
CHOICE_SHARE, CHOICE_ROWS = 5, 2_000  # a fifth of the rows is set aside to choose by, at most
KERNEL_ROWS = 10_000  # a kernel density compares every row with each of these


class Rival(NamedTuple):
    """Log-densities of the test rows, numbers fitted, and what was chosen."""

    scores: Tensor
    weights: int | None
    note: str


def fit_gaussian(train: Table, test: Table, seed: int) -> Rival:
    """Fit one Gaussian with a full covariance.

    Args:
        train: Rows to fit.
        test: Rows to score.
        seed: Seed of what is drawn.
    """
    scores = _score(lambda rows: _mixture(1, seed), train, test, seed, 0)
    return Rival(scores, _mixture_weights(1, train.features), "full covariance")


def fit_mixture(
    train: Table, test: Table, seed: int, *, components: Sequence[int] = COMPONENTS
) -> Rival:
    """Fit a mixture of Gaussians with full covariances, their number chosen by held-out rows.

    Args:
        train: Rows to fit.
        test: Rows to score.
        seed: Seed of the rows set aside and of the start.
        components: Numbers to choose from, 1 among them; those that the rows can carry are tried.
    """
    most = max(1, len(train) // (2 * (train.features + 1)))
    allowed = [count for count in components if count <= most]
    chosen: list[int] = []

    def choose(rows: np.ndarray) -> Any:
        chosen.append(_choose(allowed, lambda count: _mixture(count, seed), rows, seed))
        return _mixture(chosen[0], seed)

    scores = _score(choose, train, test, seed, 0)
    weights = _mixture_weights(chosen[0], train.features)
    return Rival(scores, weights, f"{chosen[0]} components")


def fit_kernel(train: Table, test: Table, seed: int) -> Rival:
    """Fit a kernel density, its bandwidth chosen by held-out rows.

    Args:
        train: Rows to fit; a random part of a large table.
        test: Rows to score.
        seed: Seed of the rows taken and set aside.
    """
    scott = min(len(train), KERNEL_ROWS) ** (-1 / (train.features + 4))
    chosen: list[float] = []

    def choose(rows: np.ndarray) -> Any:
        allowed = [factor * scott for factor in BANDWIDTHS]
        chosen.append(_choose(allowed, _kernel, rows, seed))
        return _kernel(chosen[0])

    scores = _score(choose, train, test, seed, KERNEL_ROWS)
    return Rival(scores, None, f"bandwidth {chosen[0]:.2g} deviations")


RIVALS: dict[str, Callable[[Table, Table, int], Rival]] = {
    "gaussian mixture": fit_mixture,
    "kernel density": fit_kernel,
    "gaussian": fit_gaussian,
}
"""How each is fitted, by name."""


def _score(
    choose: Callable[[np.ndarray], Any], train: Table, test: Table, seed: int, most: int
) -> Tensor:
    """Fit an estimator to standardised rows, and return log-densities in the table's units."""
    scales = Standardisation.from_rows(train.rows)
    rows = scales.apply(train.rows).numpy()
    if most and len(rows) > most:
        rows = rows[np.random.default_rng(seed).choice(len(rows), most, replace=False)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mixture that has not converged is judged as it is
        estimator = choose(rows).fit(rows)
    scores = torch.from_numpy(estimator.score_samples(scales.apply(test.rows).numpy()))
    return scores.to(torch.float64) + scales.log_det


def _choose(
    allowed: Sequence[Any], make: Callable[[Any], Any], rows: np.ndarray, seed: int
) -> Any:
    """Return the setting that gives held-out rows the highest log-likelihood."""
    held = min(len(rows) // CHOICE_SHARE, CHOICE_ROWS)
    if not held or len(allowed) == 1:
        return allowed[-1]
    order = np.random.default_rng(seed).permutation(len(rows))
    chosen, best = allowed[0], -math.inf
    for setting in allowed:
        likelihood = make(setting).fit(rows[order[held:]]).score_samples(rows[order[:held]]).mean()
        if likelihood > best:
            chosen, best = setting, likelihood
    return chosen


def _mixture(components: int, seed: int) -> Any:
    from sklearn.mixture import GaussianMixture

    return GaussianMixture(components, random_state=seed)


def _kernel(bandwidth: float) -> Any:
    from sklearn.neighbors import KernelDensity

    return KernelDensity(bandwidth=bandwidth)


def _mixture_weights(components: int, features: int) -> int:
    return components * (1 + features + features * (features + 1) // 2) - 1
