"""Classical densities to compare flows with, from scikit-learn."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bnaf.model.standardisation import Standardisation
from bnaf.tables.table import Table

COMPONENTS = (1, 2, 4, 8, 16, 32)
BANDWIDTHS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4)  # times the rule of Scott
CHOICE_SHARE, CHOICE_ROWS = 5, 2_000  # a fifth of the rows is set aside to choose by, at most
KERNEL_ROWS = 10_000  # a kernel density compares every row with each of these


class Classical(NamedTuple):
    """Log-densities of the test rows, numbers fitted, and what was chosen."""

    scores: Tensor
    weights: int | None
    note: str


def fit_gaussian(train: Table, test: Table, seed: int) -> Classical:
    """Fit one Gaussian with a full covariance.

    Args:
        train: Rows to fit.
        test: Rows to score.
        seed: Seed of what is drawn.
    """
    from sklearn.mixture import GaussianMixture

    scores, _ = _fit(GaussianMixture(random_state=seed), "n_components", [1], train, test, seed)
    return Classical(scores, _mixture_weights(1, train.features), "full covariance")


def fit_mixture(
    train: Table, test: Table, seed: int, *, components: Sequence[int] = COMPONENTS
) -> Classical:
    """Fit a mixture of Gaussians with full covariances, their number chosen by held-out rows.

    Args:
        train: Rows to fit.
        test: Rows to score.
        seed: Seed of the rows set aside and of the start.
        components: Numbers to choose from, 1 among them; those that the rows can carry are tried.
    """
    from sklearn.mixture import GaussianMixture

    most = max(1, len(train) // (2 * (train.features + 1)))
    allowed = [count for count in components if count <= most]
    mixture = GaussianMixture(random_state=seed)
    scores, chosen = _fit(mixture, "n_components", allowed, train, test, seed)
    return Classical(scores, _mixture_weights(chosen, train.features), f"{chosen} components")


def fit_kernel(train: Table, test: Table, seed: int) -> Classical:
    """Fit a kernel density, its bandwidth chosen by held-out rows.

    Args:
        train: Rows to fit; a random part of a large table.
        test: Rows to score.
        seed: Seed of the rows taken and set aside.
    """
    from sklearn.neighbors import KernelDensity

    if len(train) > KERNEL_ROWS:
        chosen = np.random.default_rng(seed).choice(len(train), KERNEL_ROWS, replace=False)
        train = train.take(torch.from_numpy(chosen))
    scott = len(train) ** (-1 / (train.features + 4))
    allowed = [factor * scott for factor in BANDWIDTHS]
    scores, bandwidth = _fit(KernelDensity(), "bandwidth", allowed, train, test, seed)
    return Classical(scores, None, f"bandwidth {bandwidth:.2g} deviations")


CLASSICAL: dict[str, Callable[[Table, Table, int], Classical]] = {
    "gaussian mixture": fit_mixture,
    "kernel density": fit_kernel,
    "gaussian": fit_gaussian,
}
"""How each is fitted, by name."""


def _fit(
    estimator: Any, setting: str, allowed: Sequence[Any], train: Table, test: Table, seed: int
) -> tuple[Tensor, Any]:
    """Fit an estimator to standardised rows, one of its settings chosen by held-out rows.

    Returns:
        Log-densities of the test rows in the table's units, and the setting.
    """
    from sklearn.model_selection import GridSearchCV, ShuffleSplit

    scales = Standardisation.from_rows(train.rows)
    rows = scales.apply(train.rows).numpy()
    held = min(len(rows) // CHOICE_SHARE, CHOICE_ROWS)
    if held and len(allowed) > 1:
        split = ShuffleSplit(1, test_size=held, random_state=seed)
        estimator = GridSearchCV(estimator, {setting: list(allowed)}, cv=split)
    else:
        estimator.set_params(**{setting: allowed[-1]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mixture that has not converged is judged as it is
        estimator.fit(rows)
    found = getattr(estimator, "best_estimator_", estimator)
    scores = torch.from_numpy(found.score_samples(scales.apply(test.rows).numpy()))
    return scores.to(torch.float64) + scales.log_det, found.get_params()[setting]


def _mixture_weights(components: int, features: int) -> int:
    return components * (1 + features + features * (features + 1) // 2) - 1
