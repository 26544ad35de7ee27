"""The rows of a table that an outlier can hardly be among."""

import warnings

import numpy as np
from jaxtyping import Float64
from sklearn.covariance import MinCovDet

from bnaf.estimators._fitting import DistinctRows, weighted_threshold

MOST_ROWS = 2_000  # that a robust Gaussian is fitted to
LEAST_ROWS, ROWS_PER_COLUMN = 20, 5  # fewer are not told apart
NOISE = 0.1  # deviations that every value is spread by, so that columns of few values have a scale


def trim_rows(distinct: DistinctRows, share: float) -> DistinctRows:
    """Return the rows without a share of them, those farthest from a robust Gaussian.

    A flow learns a knot of outliers like anything else, and is then no longer surprised by them.
    A Gaussian cannot, and the one whose half of the rows has the least covariance determinant
    (Rousseeuw and Van Driessen, 1999) does not follow them either, as long as they are fewer than
    half. Tables of few rows for their columns are left as they are.

    Args:
        distinct: Rows, and how much each counts.
        share: Share of their weight to leave out; 0 for none.
    """
    rows, weights = distinct
    if not share or len(rows) < max(LEAST_ROWS, ROWS_PER_COLUMN * rows.shape[1]):
        return distinct
    distances = robust_distances(distinct)
    kept = -distances > weighted_threshold(-distances, weights, share)
    return DistinctRows(rows[kept], weights[kept]) if kept.sum() >= LEAST_ROWS // 2 else distinct


def robust_distances(distinct: DistinctRows) -> Float64[np.ndarray, " rows"]:
    """Return the squared Mahalanobis distance of each row from most of them."""
    rows, weights = distinct
    mean = np.average(rows, axis=0, weights=weights)
    deviation = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weights))
    z = (rows - mean) / np.where(deviation > 0, deviation, 1.0)
    count = min(MOST_ROWS, max(len(rows), round(float(weights.sum()))))
    levels = (np.random.default_rng(0).permutation(count) + 0.5) / count
    reached = np.cumsum(weights) / weights.sum()
    chosen = z[np.searchsorted(reached, levels).clip(max=len(z) - 1)]
    spread = chosen + NOISE * np.random.default_rng(1).normal(size=chosen.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of determinants that stall, which do no harm here
        law = MinCovDet(random_state=0).fit(spread)
    return np.asarray(law.mahalanobis(z), dtype=np.float64)
