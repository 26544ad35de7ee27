"""Bijections that are affine in what they change; both sides are closed-form."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bnaf.laws.transforms import Passage, Points, RowTransform, finite_passage

LOG_SCALE_LIMIT = 3.0


def bounded(raw: Float[Tensor, "..."], limit: float = LOG_SCALE_LIMIT) -> Float[Tensor, "..."]:
    """Return log-scales bounded smoothly, so that no input can make a flow explode."""
    return limit * (raw / limit).tanh()


class ScaleTransform(RowTransform):
    r"""Scale and shift of every feature.

    .. math:: y = e^{s} \odot x + b, \qquad \log |\det J| = \sum_i s_i

    Args:
        log_scale: s, for all rows or, with a batch shape, for each.
        shift: b, likewise.
    """

    def __init__(
        self, log_scale: Float[Tensor, "*batch features"], shift: Float[Tensor, "*batch features"]
    ) -> None:
        batch = torch.broadcast_shapes(log_scale.shape, shift.shape)[:-1]
        super().__init__(shift.shape[-1], shift, batch)
        self.log_scale, self.shift = log_scale, shift

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        y = torch.addcmul(self.shift, x, self.log_scale.exp())
        return Passage(y, self.log_scale.sum(-1).expand(y.shape[:-1]))

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        x = (y - self.shift) * (-self.log_scale).exp()
        return finite_passage(x, -self.log_scale.sum(-1))


class MixingTransform(RowTransform):
    r"""Linear map by a matrix that is kept factored, with a permutation that stays as it is.

    .. math:: y = P L U x, \qquad \log |\det J| = \sum_i \log |U_{ii}|

    Args:
        matrix: P L U.
        lower: L, with ones on its diagonal.
        upper: U.
        order: Row i of P L U is row ``order[i]`` of L U.
        log_det: The sum of the logarithms.
    """

    def __init__(
        self,
        matrix: Float[Tensor, "features features"],
        lower: Float[Tensor, "features features"],
        upper: Float[Tensor, "features features"],
        order: Int[Tensor, " features"],
        log_det: Float[Tensor, ""],
    ) -> None:
        super().__init__(len(matrix), matrix)
        self.matrix, self.lower, self.upper = matrix, lower, upper
        self.order, self.log_det = order, log_det

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        y = F.linear(x, self.matrix).to(x.dtype)  # under autocast it is of another
        return Passage(y, self.log_det.expand(x.shape[:-1]))

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        rows = y[..., self.order.argsort()].reshape(-1, y.shape[-1])  # L U x, one per row
        rows = torch.linalg.solve_triangular(
            self.lower.mT, rows, upper=True, left=False, unitriangular=True
        )
        rows = torch.linalg.solve_triangular(self.upper.mT, rows, upper=False, left=False)
        return finite_passage(rows.reshape(y.shape), -self.log_det)
