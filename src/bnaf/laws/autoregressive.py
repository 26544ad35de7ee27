"""Autoregressive transforms: a curve for each feature, as the features before it say."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.laws.curves import Curve
from bnaf.laws.solved import SolvedTransform
from bnaf.laws.transforms import Inside, LogDet, Passage, Points


@runtime_checkable
class Predictor(Protocol):
    """What says the numbers of every feature's curve, from the features before it."""

    def __call__(self, x: Points) -> Float[Tensor, "... features numbers"]:
        """Return the numbers, one for each row and context."""


class AutoregressiveTransform(SolvedTransform):
    r"""A curve for each feature, whose numbers follow from the features before it.

    .. math::
        y_i = f(x_i; \theta_i(x_1, \dots, x_{i-1}, c)), \qquad
        \log |\det J| = \sum_i \log \frac{dy_i}{dx_i}

    All features are mapped at once; the inverse goes through them one by one.

    Args:
        curve: f.
        predict: :math:`\theta`, a context read already.
        features: Number of columns of a row.
        like: A tensor of the type and on the device of the rows.
        context_batch: Batch shape of the contexts that were read.
    """

    def __init__(
        self,
        curve: Curve,
        predict: Predictor,
        features: int,
        like: Tensor,
        context_batch: Sequence[int] = (),
    ) -> None:
        super().__init__(features, like, context_batch)
        self.curve, self.predict = curve, predict

    def _numbers(self, x: Points) -> Float[Tensor, "... features numbers"]:
        """Return what is predicted, in the type of the rows: under autocast it is of another."""
        return self.predict(x).to(x.dtype)

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        y, log_slope = self.curve.map(x, self._numbers(x))
        return Passage(y, log_slope.sum(-1))

    def _pull_back(self, x: Points) -> tuple[LogDet, Inside | None]:
        return self.curve.log_density(x, self._numbers(x)).sum(-1), None

    def _solve(self, y: Points) -> Points:
        x = torch.zeros_like(y)
        for feature in range(self.features):
            numbers = self._numbers(x)[..., feature, :]
            x[..., feature] = self.curve.invert(y[..., feature], numbers)
        return x
