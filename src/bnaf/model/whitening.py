r"""The Gaussian that rows are whitened by: means, deviations and correlations, shrunk."""

import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf.model.standardisation import Standardisation

SHRINKAGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
LEAST_VARIANCE = 1e-10  # in units of the column's own, below which a direction counts as flat


def whiten(
    scales: Standardisation,
    rows: Float64[Tensor, "rows columns"],
    given: Float64[Tensor, "rows given_columns"] | None = None,
    weights: Float64[Tensor, " rows"] | None = None,
) -> Standardisation:
    r"""Return a standardisation after which columns do not correlate, nor with given ones.

    A flow of such rows that is the identity is the Gaussian with their means and covariance, or
    the linear regression on the given columns with Gaussian residuals. Correlations C are shrunk
    towards none,

    .. math:: C_\alpha = (1 - \alpha) C + \alpha I,

    by the share that gives each row the highest log-density under the Gaussian of all others. The
    order of the rows does not matter.

    Args:
        scales: Location and scale of each column.
        rows: Rows in the units of the table.
        given: Standardised given columns, if any.
        weights: How much each row counts; all alike by default.
    """
    parts = [scales.apply(rows)] if given is None else [given, scales.apply(rows)]
    z = torch.cat(parts, 1)
    known = z.shape[1] - rows.shape[1]
    shares = torch.ones(len(z), dtype=torch.float64) if weights is None else weights
    shares = shares / shares.sum()
    correlation = (z * shares.unsqueeze(1)).t() @ z
    correlation.fill_diagonal_(1.0)  # also of a constant column
    scores = _score_shrinkages(z, correlation, shares)
    if known:
        scores -= _score_shrinkages(z[:, :known], correlation[:known, :known], shares)
    shrinkage = SHRINKAGES[int(scores.nan_to_num(-torch.inf).argmax())]
    if scores.isneginf().logical_or(scores.isnan()).all():
        shrinkage = SHRINKAGES[-1]
    shrunk = (1 - shrinkage) * correlation + shrinkage * torch.eye(len(correlation)).to(z)
    lower = torch.linalg.cholesky(shrunk)
    slopes = None
    if known:  # rows given the others: S = L_xc L_cc^-1
        slopes = torch.linalg.solve_triangular(
            lower[:known, :known], lower[known:, :known], upper=False, left=False
        )
    return Standardisation(scales.location, scales.scale, lower[known:, known:], slopes)


def _score_shrinkages(
    z: Float64[Tensor, "rows columns"],
    correlation: Float64[Tensor, "columns columns"],
    shares: Float64[Tensor, " rows"],
) -> Float64[Tensor, " shrinkages"]:
    r"""Return, for each shrinkage, the mean log-density of a row under the Gaussian of the others.

    Without row i, of share s, mean and correlations are :math:`-s z / (1 - s)` and
    :math:`C / (1 - s) - s z z^\top / (1 - s)^2`; what is subtracted is of rank one, so that
    inverse and determinant follow from those of C. Constants are left out; a shrinkage under
    which some Gaussian is degenerate scores minus infinity.
    """
    variances, directions = torch.linalg.eigh(correlation)
    squares = (z @ directions).square()
    rest = (1 - shares).clamp(min=LEAST_VARIANCE)
    scores = []
    for shrinkage in SHRINKAGES:
        spread = (1 - shrinkage) * variances.clamp(min=0) / rest.unsqueeze(1) + shrinkage
        distance = (squares / spread).sum(1)
        left = 1 - (1 - shrinkage) * shares / rest.square() * distance
        density = -0.5 * (spread.log().sum(1) + left.log() + distance / (left * rest.square()))
        flat = (spread < LEAST_VARIANCE).any() or (left < LEAST_VARIANCE).any()
        scores.append(-torch.inf if flat else (shares * density).sum().item())
    return torch.tensor(scores, dtype=torch.float64)
