"""The rows of a table that an outlier can hardly be among."""

import warnings

import numpy as np
import torch
from jaxtyping import Float64
from sklearn.covariance import MinCovDet
from torch import Tensor

from bnaf.columns.schema import Schema
from bnaf.estimators._fitting import WeighedRows, weighted_threshold
from bnaf.estimators._frames import WeighedFrame
from bnaf.estimators._rows import DistinctRows
from bnaf.evaluation.independent import level_log_shares
from bnaf.laws.normal import normal_cdf
from bnaf.laws.packed import PackedRows, row_layout

MOST_ROWS = 2_000  # that a robust Gaussian is fitted to
LEAST_ROWS, ROWS_PER_COLUMN = 20, 5  # fewer are not told apart
NOISE = 0.1  # deviations that every value is spread by, so that columns of few values have a scale


def trim_rows(rows: WeighedRows, share: float) -> WeighedRows:
    """Return the rows without a share of them, those least likely under a law no knot can bend.

    A flow learns a knot of outliers like anything else, and is then no longer surprised by them.
    A Gaussian cannot, and the one whose half of the rows has the least covariance determinant
    (Rousseeuw and Van Driessen, 1999) does not follow them either, as long as they are fewer than
    half. Nor can levels of columns that are taken for independent. Tables of few rows for their
    columns are left as they are.

    Args:
        rows: Rows, and how much each counts.
        share: Share of their weight to leave out, or somewhat less where rows are as likely; 0
            for none.
    """
    count = len(rows.weights)
    columns = len(rows.rows.names) if isinstance(rows, WeighedFrame) else rows.rows.shape[1]
    if not share or count < max(LEAST_ROWS, ROWS_PER_COLUMN * columns):
        return rows
    surprise = frame_surprise(rows) if isinstance(rows, WeighedFrame) else robust_distances(rows)
    kept = -surprise >= weighted_threshold(-surprise, rows.weights, share)
    return rows.take(kept) if kept.sum() >= LEAST_ROWS // 2 else rows


def robust_distances(distinct: DistinctRows) -> Float64[np.ndarray, " rows"]:
    """Return the squared Mahalanobis distance of each row from most of them."""
    rows, weights, _ = distinct
    mean = np.average(rows, axis=0, weights=weights)
    deviation = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weights))
    z = (rows - mean) / np.where(deviation > 0, deviation, 1.0)
    return _squared_distances(z, z, weights)


def frame_surprise(weighed: WeighedFrame) -> Float64[np.ndarray, " rows"]:
    r"""Return how unlikely each row of a frame is, in nats and up to a constant.

    .. math:: \tfrac{1}{2} d^2 - \sum_c \log p(\text{level}_c)

    Levels have their shares of the weight, one column apart from the others, and d is the
    Mahalanobis distance of the numbers in the scale of a flow. So that cells shared by many rows
    do not look as if they had no spread, the Gaussian is fitted to points drawn from each cell;
    of an empty one, and of a value that counts as a level, to any.
    """
    frame, weights, kinds = weighed
    schema = Schema.fit(frame, kinds=kinds, weights=weights)
    layout = row_layout(schema.levels, schema.numbers, schema.statuses)
    packed = layout.split(schema.encode(frame).rows)
    surprise = np.zeros(len(frame))
    for part, count in enumerate(schema.levels):
        levels = packed.levels[:, part]
        shares = level_log_shares(levels, count, torch.from_numpy(weights))
        surprise -= shares[levels.long()].numpy()
    if schema.numbers:
        middle = packed.middle.nan_to_num(nan=0.0).numpy()
        surprise += 0.5 * _squared_distances(_draw_points(packed).numpy(), middle, weights)
    return surprise


def _draw_points(packed: PackedRows) -> Float64[Tensor, "rows numbers"]:
    """Return points of normal cells: themselves, or drawn from where intervals are or none is."""
    _, middle, below, above = packed
    low = normal_cdf((middle - below).nan_to_num(nan=-torch.inf))
    high = normal_cdf((middle + above).nan_to_num(nan=torch.inf))
    levels = torch.from_numpy(np.random.default_rng(2).random(middle.shape))
    drawn = torch.special.ndtri((low + levels * (high - low)).clamp(2**-50, 1 - 2**-50))
    return torch.where(below + above == 0, middle, drawn).where(~middle.isnan(), drawn)


def _squared_distances(
    points: Float64[np.ndarray, "rows columns"],
    z: Float64[np.ndarray, "rows columns"],
    weights: Float64[np.ndarray, " rows"],
) -> Float64[np.ndarray, " rows"]:
    """Return the squared distances of rows from the robust Gaussian of some of the points."""
    count = min(MOST_ROWS, max(len(points), round(float(weights.sum()))))
    levels = (np.random.default_rng(0).permutation(count) + 0.5) / count
    reached = np.cumsum(weights) / weights.sum()
    chosen = points[np.searchsorted(reached, levels).clip(max=len(points) - 1)]
    spread = chosen + NOISE * np.random.default_rng(1).normal(size=chosen.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of determinants that stall, which do no harm here
        law = MinCovDet(random_state=0).fit(spread)
    return np.asarray(law.mahalanobis(z), dtype=np.float64)
