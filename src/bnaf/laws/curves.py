"""Increasing functions of one number, whose own numbers are predicted for each feature."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from bnaf.laws.affine import LOG_SCALE_LIMIT, bounded
from bnaf.laws.normal import log_normal_density
from bnaf.laws.roots import Targets, solve_increasing

LEAST_LEAK, START_LEAK = 0.05, 3.0  # of bends: the least, and the logit of the first

Elements = Float[Tensor, "..."]
Numbers = Float[Tensor, "... numbers"]


class Curve(ABC):
    """Increasing function from the line onto the line, the same for all features but its numbers.

    Attributes:
        numbers: How many numbers make one.
    """

    numbers: int

    @abstractmethod
    def start(self) -> Float[Tensor, " numbers"]:
        """Return numbers to start from, which make it nearly a straight line."""

    @abstractmethod
    def map(self, x: Elements, numbers: Numbers) -> tuple[Elements, Elements]:
        """Return y and log dy/dx of each element, given the numbers of each."""

    def invert(self, y: Elements, numbers: Numbers) -> Elements:
        """Return x, without gradients; found as a root where there is no formula.

        Raises:
            InversionError: If a root is not found.
        """
        flat = numbers.expand(*y.shape, -1).reshape(y.numel(), self.numbers)
        return solve_increasing(_OneEach(self, flat), y.reshape(1, -1)).reshape(y.shape)

    def log_density(self, x: Elements, numbers: Numbers) -> Elements:
        """Return the log-density of x if y is standard normal."""
        y, log_slope = self.map(x, numbers)
        return log_normal_density(y) + log_slope


class _OneEach(NamedTuple):
    """A curve as a function of one unknown per row."""

    curve: Curve
    numbers: Float[Tensor, "rows numbers"]

    def value_and_slope(self, x: Targets) -> tuple[Targets, Targets]:
        y, log_slope = self.curve.map(x, self.numbers.unsqueeze(0))
        return y, log_slope.exp()

    def keep(self, rows: Bool[Tensor, " rows"]) -> "_OneEach":
        return self._replace(numbers=self.numbers[rows])


class AffineCurve(Curve):
    r"""Straight line.

    .. math:: y = e^{s} x + t, \qquad \log \frac{dy}{dx} = s

    s is bounded smoothly.

    Args:
        limit: Its bound on either side.
    """

    numbers = 2

    def __init__(self, limit: float = LOG_SCALE_LIMIT) -> None:
        self.limit = limit

    def start(self) -> Float[Tensor, " numbers"]:
        return torch.zeros(2)

    def map(self, x: Elements, numbers: Numbers) -> tuple[Elements, Elements]:
        raw, shift = numbers.unbind(-1)
        log_scale = bounded(raw, self.limit)
        return torch.addcmul(shift, x, log_scale.exp()), log_scale

    def invert(self, y: Elements, numbers: Numbers) -> Elements:
        raw, shift = numbers.unbind(-1)
        return (y - shift) * (-bounded(raw, self.limit)).exp()


class BendCurve(Curve):
    r"""Straight line, bent at zero: a smooth leaky ReLU.

    .. math::
        y = \alpha h + (1 - \alpha) \operatorname{softplus}(h), \qquad h = e^{s} x + t, \qquad
        \frac{dy}{dx} = e^{s} \, (\alpha + (1 - \alpha) \, \sigma(h))

    s is bounded smoothly, and :math:`\alpha` is between 0.05 and 1.
    """

    numbers = 3

    def start(self) -> Float[Tensor, " numbers"]:
        return torch.tensor([0.0, 0.0, START_LEAK])

    def map(self, x: Elements, numbers: Numbers) -> tuple[Elements, Elements]:
        raw, shift, raw_leak = numbers.unbind(-1)
        log_scale = bounded(raw)
        h = torch.addcmul(shift, x, log_scale.exp())
        leak = LEAST_LEAK + (1 - LEAST_LEAK) * raw_leak.sigmoid()
        y = torch.lerp(F.softplus(h), h, leak)
        return y, log_scale + torch.lerp(h.sigmoid(), torch.ones_like(h), leak).log()
