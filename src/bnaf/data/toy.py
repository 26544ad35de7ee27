"""Two-dimensional data sets of the flow literature, drawn afresh on each call."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from bnaf.errors import SettingsError

Points = Float[Tensor, "rows 2"]


def eight_gaussians(rows: int, generator: Generator | None = None) -> Points:
    """Draw from eight normal laws on a circle; their entropy is 2.8319 nats."""
    angle = torch.randint(8, (rows,), generator=generator) * (math.pi / 4)
    centres = 4 * torch.stack([angle.cos(), angle.sin()], 1)
    return (centres + 0.5 * torch.randn(rows, 2, generator=generator)) / 1.414


def two_spirals(rows: int, generator: Generator | None = None) -> Points:
    """Draw from two intertwined spirals with noise."""
    angle = torch.rand(rows, generator=generator).sqrt() * (540 * 2 * math.pi / 360)
    arm = torch.stack([-angle.cos() * angle, angle.sin() * angle], 1)
    arm = arm + torch.rand(rows, 2, generator=generator) / 2
    side = torch.randint(2, (rows, 1), generator=generator) * 2 - 1
    return side * arm / 3 + 0.1 * torch.randn(rows, 2, generator=generator)


def checkerboard(rows: int, generator: Generator | None = None) -> Points:
    """Draw uniformly from half of the squares of a board of area 64; the entropy is log 32."""
    across = 4 * torch.rand(rows, generator=generator) - 2
    row = torch.randint(2, (rows,), generator=generator) * 2
    up = torch.rand(rows, generator=generator) - row + across.floor() % 2
    return 2 * torch.stack([across, up], 1)


TOY_DATA: dict[str, Callable[..., Points]] = {
    "8gaussians": eight_gaussians,
    "2spirals": two_spirals,
    "checkerboard": checkerboard,
}


def draw_toy(name: str, rows: int, generator: Generator | None = None) -> Points:
    """Draw from the toy data set of that name.

    Args:
        name: "8gaussians", "2spirals" or "checkerboard".
        rows: Number of points.
        generator: Source of randomness; torch's global one by default.

    Raises:
        SettingsError: If there is no such data set.

    Example:
        >>> draw_toy("checkerboard", 5).shape
        torch.Size([5, 2])
    """
    if name not in TOY_DATA:
        raise SettingsError(f"name must be one of {', '.join(TOY_DATA)}, got {name!r}.")
    return TOY_DATA[name](rows, generator)
