"""Bijections that are affine in what they change; both sides are closed-form."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bnaf.block.context import LOG_SCALE_LIMIT
from bnaf.laws.transforms import Inversion, LogDet, Rows, RowTransform


def bounded(raw: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return log-scales bounded smoothly, so that no input can make a flow explode."""
    return LOG_SCALE_LIMIT * (raw / LOG_SCALE_LIMIT).tanh()


def finite(y: Rows) -> Bool[Tensor, "..."]:
    """Tell which rows have a pre-image under a bijection of the whole space."""
    return y.isfinite().all(-1)


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
        super().__init__()
        self.log_scale, self.shift = log_scale, shift

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        y = torch.addcmul(self.shift, x, self.log_scale.exp())
        return y, self.log_scale.sum(-1).expand(y.shape[:-1])

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        x = (y - self.shift) * (-self.log_scale).exp()
        return Inversion(x, self.log_scale.sum(-1).expand(x.shape[:-1]), finite(x))


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
        super().__init__()
        self.matrix, self.lower, self.upper = matrix, lower, upper
        self.order, self.log_det = order, log_det

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        return F.linear(x, self.matrix), self.log_det.expand(x.shape[:-1])

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        rows = y[..., self.order.argsort()].reshape(-1, y.shape[-1])  # L U x, one per row
        rows = torch.linalg.solve_triangular(
            self.lower.mT, rows, upper=True, left=False, unitriangular=True
        )
        rows = torch.linalg.solve_triangular(self.upper.mT, rows, upper=False, left=False)
        x = rows.reshape(y.shape)
        return Inversion(x, self.log_det.expand(x.shape[:-1]), finite(x))


class CouplingTransform(RowTransform):
    r"""Scale and shift of some features, as a network says that reads the others.

    .. math::
        y_a = x_a, \qquad y_b = e^{s(x_a, c)} \odot x_b + t(x_a, c), \qquad
        \log |\det J| = \sum_i s_i

    s is bounded smoothly by :math:`\pm 3`, and t because the network has tanh between its layers:
    a row far out is not pushed farther by each of many couplings.

    Args:
        weights: Weights of the network's layers, first to last.
        biases: Their biases.
        kept: Number of features in :math:`x_a`, those that come first.
        context: c, read beside :math:`x_a`.
    """

    def __init__(
        self,
        weights: list[Float[Tensor, "_ _"]],
        biases: list[Float[Tensor, " _"]],
        *,
        kept: int,
        context: Float[Tensor, "*batch context_features"] | None = None,
    ) -> None:
        super().__init__()
        self.weights, self.biases, self.kept, self.context = weights, biases, kept, context

    def predict(
        self, x: Float[Tensor, "... kept"]
    ) -> tuple[Float[Tensor, "... changed"], Float[Tensor, "... changed"]]:
        """Return the log-scales and shifts of the features that change."""
        if self.context is not None:
            batch = torch.broadcast_shapes(x.shape[:-1], self.context.shape[:-1])
            x = torch.cat([x.expand(*batch, -1), self.context.expand(*batch, -1)], -1)
        last = len(self.weights) - 1
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = F.linear(x, weight, bias)
            x = x.tanh() if index < last else x
        raw, shift = x.chunk(2, -1)
        return bounded(raw), shift

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        kept, changed = x[..., : self.kept], x[..., self.kept :]
        log_scale, shift = self.predict(kept)
        changed = torch.addcmul(shift, changed, log_scale.exp())
        return self._join(kept, changed), log_scale.sum(-1)

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        kept, changed = y[..., : self.kept], y[..., self.kept :]
        log_scale, shift = self.predict(kept)
        x = self._join(kept, (changed - shift) * (-log_scale).exp())
        return Inversion(x, log_scale.sum(-1), finite(x))

    def _join(self, kept: Tensor, changed: Tensor) -> Tensor:
        return torch.cat([kept.expand(*changed.shape[:-1], -1), changed], -1)
