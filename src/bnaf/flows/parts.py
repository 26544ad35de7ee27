"""What several flows are made of."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from bnaf.laws.affine import bounded
from bnaf.laws.transforms import Passage, Points, RowTransform, finite_passage


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
        super().__init__(kept + len(biases[-1]) // 2, biases[-1])
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

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        kept, changed = x[..., : self.kept], x[..., self.kept :]
        log_scale, shift = self.predict(kept)
        changed = torch.addcmul(shift, changed, log_scale.exp())
        return Passage(self._join(kept, changed), log_scale.sum(-1))

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        kept, changed = y[..., : self.kept], y[..., self.kept :]
        log_scale, shift = self.predict(kept)
        x = self._join(kept, (changed - shift) * (-log_scale).exp())
        return finite_passage(x, -log_scale.sum(-1))

    def _join(self, kept: Tensor, changed: Tensor) -> Tensor:
        return torch.cat([kept.expand(*changed.shape[:-1], -1), changed], -1)
