"""Integrals over a law, from values at points of its base."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf.errors import SettingsError
from bnaf.laws.normal import normal_cdf

REACH, NODES = 8.0, 401  # of the trapezoidal rule over the base, exact for what is smooth


def normal_nodes() -> tuple[
    Float64[Tensor, "points 1"], Float64[np.ndarray, " points"], Float64[np.ndarray, " points"]
]:
    """Return base points, weights of integrals over the standard normal law, and levels."""
    z = torch.linspace(-REACH, REACH, NODES, dtype=torch.float64)
    weights = (-0.5 * z.square()).exp()
    return z.unsqueeze(1), (weights / weights.sum()).numpy(), normal_cdf(z).numpy()


def check_levels(quantiles: Sequence[float] | np.ndarray) -> Float64[np.ndarray, " levels"]:
    """Return the levels of quantiles.

    Raises:
        SettingsError: If they are none.
    """
    levels = np.asarray(quantiles, dtype=np.float64)
    if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise SettingsError(f"quantiles must be numbers between 0 and 1, got {quantiles!r}.")
    return levels


def moments(
    weights: Float64[np.ndarray, " points"], values: Float64[np.ndarray, "points rows columns"]
) -> Float64[np.ndarray, "rows 2 columns"]:
    """Return means and variances of each row."""
    mean = np.tensordot(weights, values, 1)
    variance = np.tensordot(weights, (values - mean) ** 2, 1)
    return np.stack([mean, variance], 1)


def pool_moments(
    parts: Sequence[Float64[np.ndarray, "rows 2 columns"]],
) -> tuple[Float64[np.ndarray, "rows columns"], Float64[np.ndarray, "rows columns"]]:
    """Return means and deviations of the average of laws, from the moments of each."""
    means, variances = np.stack(parts).swapaxes(0, 2).swapaxes(1, 2)
    mean = means.mean(0)
    variance = (variances + (means - mean) ** 2).mean(0)
    return mean, np.sqrt(variance)


def rows_first(values: Float64[np.ndarray, "points rows ..."]) -> Float64[np.ndarray, "rows ..."]:
    """Return values with the rows in front of the points."""
    return np.moveaxis(values, 0, 1)


def rank_scores(
    values: Float64[np.ndarray, "rows points"],
    levels: Float64[np.ndarray, " points"],
    weights: Float64[np.ndarray, " points"],
    targets: Float64[np.ndarray, "rows 1"],
) -> Float64[np.ndarray, " rows"]:
    """Return the continuous ranked probability score of targets, from quantiles of their laws."""
    scores: np.ndarray = 2 * (((values > targets) - levels) * (values - targets)) @ weights
    return scores
