"""Points and weights for integrals that have no closed form."""

from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@cache
def gauss_legendre(nodes: int) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Return the points and weights of Gauss and Legendre's rule on the unit interval.

    Example:
        >>> t, weight = gauss_legendre(3)
        >>> round(float((weight * t**5).sum()), 12)  # the integral of t⁵ is 1/6
        0.166666666667
    """
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return torch.from_numpy(points + 1) / 2, torch.from_numpy(weights) / 2


def square_grid(limit: float, points: int) -> tuple[Float[Tensor, "rows 2"], float]:
    """Return the middles of the cells of a square around the origin, and the area of a cell.

    The midpoint rule converges faster than any power of the spacing where the integrand is smooth
    and has died out at the border.

    Args:
        limit: Half of the side of the square.
        points: Cells along a side.

    Example:
        >>> middles, area = square_grid(1.0, 2)
        >>> middles.tolist(), area
        ([[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]], 1.0)
    """
    spacing = 2 * limit / points
    middles = (torch.arange(points, dtype=torch.float64) + 0.5) * spacing - limit
    return torch.cartesian_prod(middles, middles), spacing**2
