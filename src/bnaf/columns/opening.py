"""Numbers between bounds sent to the whole line, smoothly."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.columns.kind import Bounds

NEAREST = 1e-9  # to a bound, as a share of the softness or of the range
SOFT = 0.25  # deviations from a bound within which the scale is bent


class Opening(NamedTuple):
    r"""Increasing map from between two bounds, or one, or none, onto the line.

    With a lower bound a and a softness s it is

    .. math:: y = s \log(e^{(x - a) / s} - 1),

    which is x - a but for x near a; with an upper bound it is mirrored; with both it is s times
    the log-odds; with none it changes nothing.

    Args:
        bounds: Lower and upper bound, ``None`` where there is none.
        soft: The softness, in the units of x.
    """

    bounds: Bounds
    soft: float

    def apply(
        self, x: Float[Tensor, " *batch"]
    ) -> tuple[Float[Tensor, " *batch"], Float[Tensor, " *batch"]]:
        """Return y and the log of its slope; what lies outside is taken to the bounds."""
        low, high = self.bounds
        if low is not None and high is not None:
            nearest = NEAREST * (high - low)
            left, right = (x - low).clamp(min=nearest), (high - x).clamp(min=nearest)
            return self.soft * (left / right).log(), (self.soft * (1 / left + 1 / right)).log()
        if low is not None:
            distance, sign = x - low, 1.0
        elif high is not None:
            distance, sign = high - x, -1.0
        else:
            return x, torch.zeros_like(x)
        distance = (distance / self.soft).clamp(min=NEAREST)
        # log(e^d - 1) = d + log(1 - e^-d), of slope 1 / (1 - e^-d)
        bent = (-torch.expm1(-distance)).log()
        return sign * self.soft * (distance + bent), -bent

    def undo(self, y: Float[Tensor, " *batch"]) -> Float[Tensor, " *batch"]:
        """Return x of y; nan where there is no number."""
        low, high = self.bounds
        if low is not None and high is not None:
            return low + (high - low) * torch.sigmoid(y / self.soft)
        if low is not None:
            return low + self.soft * torch.logaddexp(y / self.soft, torch.zeros_like(y))
        if high is not None:
            return high - self.soft * torch.logaddexp(-y / self.soft, torch.zeros_like(y))
        return y
