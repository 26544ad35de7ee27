"""Splines of rational quadratic functions as curves."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bnaf.laws.curves import Curve, Elements, Numbers

LEAST_BIN, LEAST_SLOPE = 1e-3, 1e-3
SHIFT = math.log(math.expm1(1 - LEAST_SLOPE))  # at which a slope is 1


class SplineCurve(Curve):
    r"""Rational quadratic spline (Durkan et al., 2019) within bounds, the identity outside.

    Between knots :math:`(x_k, y_k)` and :math:`(x_{k+1}, y_{k+1})` with slopes :math:`\delta_k`
    and :math:`\delta_{k+1}`, :math:`s` the slope of their chord, :math:`h = y_{k+1} - y_k` and
    :math:`\xi` the share of the way:

    .. math::
        y = y_k + \frac{h \, (s \xi^2 + \delta_k \xi (1 - \xi))}{D}, \qquad
        D = s + (\delta_{k+1} + \delta_k - 2 s) \, \xi (1 - \xi)

        \frac{dy}{dx} = \frac{s^2 \,
        (\delta_{k+1} \xi^2 + 2 s \xi (1 - \xi) + \delta_k (1 - \xi)^2)}{D^2}

    Both sides are closed-form.

    Args:
        bins: Number of pieces.
        bound: Where the first and the last end, on either side of zero.
    """

    def __init__(self, bins: int, bound: float) -> None:
        self.bins, self.bound = bins, bound
        self.numbers = 3 * bins - 1

    def start(self) -> Float[Tensor, " numbers"]:
        return torch.zeros(self.numbers)

    def map(self, x: Elements, numbers: Numbers) -> tuple[Elements, Elements]:
        inside = x.abs() < self.bound
        at = torch.where(inside, x, 0.0)
        left, width, low, height, slope, next_slope = self._piece(at, numbers, by_height=False)
        chord = height / width
        share = (at - left) / width
        mixed = share * (1 - share)
        below = chord + (next_slope + slope - 2 * chord) * mixed
        y = low + height * (chord * share.square() + slope * mixed) / below
        rise = next_slope * share.square() + 2 * chord * mixed + slope * (1 - share).square()
        log_slope = 2 * chord.log() + rise.log() - 2 * below.log()
        return torch.where(inside, y, x), torch.where(inside, log_slope, 0.0)

    def invert(self, y: Elements, numbers: Numbers) -> Elements:
        inside = y.abs() < self.bound
        at = torch.where(inside, y, 0.0)
        left, width, low, height, slope, next_slope = self._piece(at, numbers, by_height=True)
        chord = height / width
        gone = at - low
        bend = gone * (next_slope + slope - 2 * chord)
        a, b, c = height * (chord - slope) + bend, height * slope - bend, -chord * gone
        share = 2 * c / (-b - (b.square() - 4 * a * c).clamp(min=0.0).sqrt())
        return torch.where(inside, share * width + left, y)

    def _piece(self, at: Elements, numbers: Numbers, *, by_height: bool) -> tuple[Elements, ...]:
        """Return where the piece begins that holds x, or y, its size and its slopes.

        In this order: its left end, its width, its lower end, its height, and the slopes at both.
        """
        raw_widths, raw_heights, raw_slopes = numbers.split(
            [self.bins, self.bins, self.bins - 1], -1
        )
        widths, lefts = self._ends(raw_widths)
        heights, lows = self._ends(raw_heights)
        slopes = F.pad(LEAST_SLOPE + F.softplus(raw_slopes + SHIFT), (1, 1), value=1.0)
        index = _count_below(at, lows if by_height else lefts)
        return (
            _pick(lefts, index),
            _pick(widths, index),
            _pick(lows, index),
            _pick(heights, index),
            _pick(slopes, index),
            _pick(slopes, index + 1),
        )

    def _ends(self, raw: Numbers) -> tuple[Numbers, Numbers]:
        """Return the sizes of the pieces along one axis, and where each begins."""
        weights = (raw - raw.amax(-1, keepdim=True).detach()).exp()  # softmax is slow for so few
        free = (2 * self.bound * (1 - LEAST_BIN * self.bins)) / weights.sum(-1, keepdim=True)
        sizes = torch.addcmul(weights.new_tensor(2 * self.bound * LEAST_BIN), weights, free)
        return sizes, F.pad(sizes[..., :-1].cumsum(-1), (1, 0)) - self.bound


def _count_below(at: Elements, begins: Numbers) -> Int[Tensor, "..."]:
    """Return the index of the last piece that begins at or before a place."""
    return (at.unsqueeze(-1) >= begins[..., 1:]).sum(-1)


def _pick(parts: Numbers, index: Int[Tensor, "..."]) -> Elements:
    parts = parts.expand(*index.shape, -1)
    return parts.gather(-1, index.unsqueeze(-1)).squeeze(-1)
