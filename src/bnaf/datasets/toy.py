"""Two-dimensional data sets of the flow literature, drawn afresh on each call.

The names and numbers are those of the studies that made them familiar: 8 gaussians, 2 spirals and
the checkerboard of the paper's figure, and their usual company.

Example:
    >>> spirals = toy_named("2spirals")
    >>> x = spirals.draw(1000, 0)  # 1000 points, from a private generator with seed 0
    >>> round(spirals.entropy(), 3)  # the least negative log-likelihood there is
    2.645
    >>> spirals.log_prob(x).shape
    torch.Size([1000])
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from bnaf.datasets.toy_laws import Checkerboard, NoisyCurves, Pinwheel, Points, Toy
from bnaf.errors import SettingsError

__all__ = ["TOY_DATA", "Points", "Toy", "draw_toy", "toy_named"]

Numbers = Float[Tensor, " rows"]
Indices = Int[Tensor, " rows"]


def _polar(radius: Numbers, angle: Numbers) -> Points:
    return radius.unsqueeze(1) * torch.stack([angle.cos(), angle.sin()], 1)


def _centre(t: Numbers, index: Indices) -> Points:
    """Return one of eight points on a circle."""
    return _polar(torch.full_like(t, 4 / 1.414), index.to(t.dtype) * (math.pi / 4))


def _spiral(t: Numbers, index: Indices) -> Points:
    """Return the middle of the box of one arm; the other is its mirror image."""
    angle = t * (540 * 2 * math.pi / 360)
    arm = torch.stack([-angle.cos() * angle, angle.sin() * angle], 1)
    return (arm + 0.25) / 3


def _moon(t: Numbers, index: Indices) -> Points:
    """Return a point of the upper (0) or of the lower (1) half circle."""
    arc = _polar(torch.ones_like(t), math.pi * t)
    shifted = torch.where((index == 0).unsqueeze(1), arc, arc.new_tensor([1.0, 0.5]) - arc)
    return 2 * shifted - arc.new_tensor([1.0, 0.2])


def _circle(t: Numbers, index: Indices) -> Points:
    """Return a point of the inner (0) or of the outer (1) circle."""
    return _polar(1.5 * (index + 1).to(t.dtype), 2 * math.pi * t)


def _ring(t: Numbers, index: Indices) -> Points:
    """Return a point of one of four circles."""
    return _polar(0.75 * (index + 1).to(t.dtype), 2 * math.pi * t)


def _roll(t: Numbers, index: Indices) -> Points:
    """Return a point of a spiral of one and a half turns."""
    angle = 1.5 * math.pi * (1 + 2 * t)
    return _polar(angle / 5, angle)


TOY_DATA: dict[str, Toy] = {
    toy.name: toy
    for toy in (
        NoisyCurves("8gaussians", 6.0, _centre, 8, 0.5 / 1.414, nodes=1),
        NoisyCurves(
            "2spirals", 4.5, _spiral, 1, 0.1, box=1 / 6, mirrored=True, power=2, nodes=320
        ),
        Checkerboard("checkerboard", 4.0),
        NoisyCurves("moons", 5.0, _moon, 2, 0.2, nodes=128),
        NoisyCurves("circles", 5.0, _circle, 2, 0.24),
        Pinwheel("pinwheel", 6.0),
        NoisyCurves("swissroll", 5.0, _roll, 1, 0.2),
        NoisyCurves("rings", 5.0, _ring, 4, 0.24),
    )
}


def toy_named(name: str) -> Toy:
    """Return the toy data set of that name.

    Raises:
        SettingsError: If there is none.
    """
    if name not in TOY_DATA:
        raise SettingsError(f"name must be one of {', '.join(TOY_DATA)}, got {name!r}.")
    return TOY_DATA[name]


def draw_toy(name: str, rows: int, generator: Generator | int | None = None) -> Points:
    """Draw from the toy data set of that name.

    Args:
        name: A key of ``TOY_DATA``: "8gaussians", "2spirals", "checkerboard", "moons", "circles",
            "pinwheel", "swissroll" or "rings".
        rows: Number of points.
        generator: Source of randomness, or the seed of a private one; torch's global one by
            default.

    Raises:
        SettingsError: If there is no such data set.

    Example:
        >>> draw_toy("checkerboard", 5).shape
        torch.Size([5, 2])
    """
    return toy_named(name).draw(rows, generator)
