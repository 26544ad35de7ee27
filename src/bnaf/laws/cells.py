r"""Cells of a row: a point, an interval, or nothing known; and the normal mass of an interval.

An interval is its middle with the distances to its two ends, never the two ends: where it is
narrow their difference would have no digits left.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bnaf._torch import traced
from bnaf.errors import ShapeError, TableError
from bnaf.laws.normal import Elements, log_ndtr, log_normal_density

NODES, WEIGHTS = (part / 2 for part in np.polynomial.legendre.leggauss(7))
WIDEST = 1.0  # interval that the rule takes
STEEPEST = {torch.float32: 8.0, torch.float64: 1.0}  # and by how many nats the density may fall

Snap = Callable[[int, Tensor], tuple[Tensor, Tensor, Tensor] | None]
"""From the number of a feature and its draws to the middles of their cells and the distances to
the ends; a middle of NaN, or nothing at all, where it is not known."""


class Cells(NamedTuple):
    """Rows of cells, each a point, an interval or not known.

    Args:
        middle: The point, or what stands for the interval where others look at it.
        below: Distance down to the interval's lower end; infinite where it has none.
        above: Distance up to its upper end; a point has zero for both.
        known: Which cells carry a number; the others hold zeros.
    """

    middle: Float[Tensor, "*batch features"]
    below: Float[Tensor, "*batch features"]
    above: Float[Tensor, "*batch features"]
    known: Bool[Tensor, "*batch features"]

    @classmethod
    def of(cls, middle: Elements, below: Elements, above: Elements) -> "Cells":
        """Return the cells of numbers in which a middle of NaN means that it is not known.

        Raises:
            ShapeError: If the three differ in shape.
            TableError: If a distance is negative or NaN.

        Example:
            >>> Cells.of(torch.tensor([1.0, torch.nan]), torch.zeros(2), torch.zeros(2)).middle
            tensor([1., 0.])
        """
        if not middle.shape == below.shape == above.shape:
            raise ShapeError(
                "Cells expects middle, below and above of one shape, got "
                f"{', '.join(str(tuple(part.shape)) for part in (middle, below, above))}."
            )
        known = ~middle.isnan()
        middle, below, above = (torch.where(known, part, 0.0) for part in (middle, below, above))
        if not traced() and not ((below >= 0) & (above >= 0)).all():
            raise TableError(
                "The ends of a cell must lie on either side of its middle: some distances to "
                "them are negative or NaN; give middle - lower end and upper end - middle."
            )
        return cls(middle, below, above, known)

    @classmethod
    def points(cls, x: Float[Tensor, "*batch features"]) -> "Cells":
        """Return cells that are points; NaN is not known."""
        return cls.of(x, torch.zeros_like(x), torch.zeros_like(x))

    @property
    def wide(self) -> Bool[Tensor, "*batch features"]:
        """Which cells are intervals."""
        return self.known & ((self.below > 0) | (self.above > 0))


def log_mass(z: Elements, below: Elements, above: Elements) -> Elements:
    r"""Return the logarithm of the standard normal mass between z - below and z + above.

    With D the width and m the centre of the interval, narrow ones take Gauss and Legendre's rule
    of seven points, and wide ones, turned into the lower tail, the distribution function,

    .. math::
        \log D + \log \sum_k w_k \varphi(m + D t_k), \qquad
        L(b) + \log \bigl( 1 - e^{L(a) - L(b)} \bigr), \quad L = \log \Phi

    so that no digits cancel in float32. A width that underflows counts as the least there is.

    Args:
        z: Points of the intervals.
        below: Distances to their lower ends; infinite where there is none.
        above: Distances to their upper ends.

    Example:
        >>> log_mass(*torch.tensor([[0.0, 0.0], [1e-3, torch.inf], [1e-3, 0.0]]))
        tensor([-7.1335, -0.6931])
    """
    no_lower, no_upper = below.isinf(), above.isinf()
    halved = no_lower | no_upper
    down = torch.where(no_lower, 0.0, below)
    up = torch.where(no_upper, 0.0, above)
    tail = log_ndtr(torch.where(no_lower, z + up, down - z))
    tail = torch.where(no_lower & no_upper, 0.0, tail)
    down, up = (torch.where(halved, 0.5, part) for part in (down, up))
    return torch.where(halved, tail, _log_bounded_mass(z, down, up))


def _log_bounded_mass(z: Elements, below: Elements, above: Elements) -> Elements:
    """Return the log-mass of intervals with two ends."""
    # in the lower half, where logarithms of the distribution function have all their digits
    turned = z + (above - below) / 2 > 0
    z = torch.where(turned, -z, z)
    below, above = torch.where(turned, above, below), torch.where(turned, below, above)
    width = (below + above).clamp(min=torch.finfo(z.dtype).tiny)
    centre = z + (above - below) / 2
    steepest = STEEPEST.get(z.dtype, STEEPEST[torch.float32])
    narrow = ((width < WIDEST) & (centre.abs() * width < steepest)).detach()
    by_rule = _narrow(torch.where(narrow, centre, 0.0), torch.where(narrow, width, 0.5))
    low, high = torch.where(narrow, -1.0, z - below), torch.where(narrow, 0.0, z + above)
    width = torch.where(narrow, 1.0, width)
    log_high = log_ndtr(high)
    # at least this, whatever rounding has left of the difference far out
    fall = torch.maximum(log_high - log_ndtr(low), -width * high)
    return torch.where(narrow, by_rule, log_high + (-(-fall).exp()).log1p())


def _narrow(centre: Elements, width: Elements) -> Elements:
    """Return the log-mass of narrow intervals by the rule."""
    nodes, log_weights = (
        torch.as_tensor(part, dtype=centre.dtype, device=centre.device)
        for part in (NODES, np.log(WEIGHTS))
    )
    moved = width.unsqueeze(-1) * nodes
    # relative to the density at the centre, which may be far out
    relative = -moved * (centre.unsqueeze(-1) + moved / 2)
    return log_normal_density(centre) + width.log() + (relative + log_weights).logsumexp(-1)
