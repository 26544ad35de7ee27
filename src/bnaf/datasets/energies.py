r"""Energies U1 to U4 of Rezende and Mohamed (2015, table 1), the targets of density matching.

A target is :math:`p(z) = e^{-U(z)} / Z`. U2 to U4 do not normalise on the plane, so that the
walls of the authors' code of De Cao et al. (2019) belong to every energy here:

.. math:: U(z) + \sum_i \max(|z_i| - 6, 0)^2

With them :math:`\log Z` is known, and so is the least loss there is: for draws z of a law q,
:math:`\mathrm{KL}(q \| p) = E_q[\log q(z) + U(z)] + \log Z`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bnaf.errors import SettingsError

Points = Float[Tensor, "*batch 2"]
Values = Float[Tensor, "*batch"]
Indices = Int[Tensor, "*batch"]
WALL = 6.0
STRIPS = (-4.0, -2.0, 0.0, 2.0, 4.0)


@dataclass(frozen=True)
class Energy:
    """Energy of points of the plane, with what is known of the law that it defines.

    Args:
        name: "u1" to "u4".
        potential: U without walls.
        log_normaliser: log Z, walls included.
        region: From points to the number of the region that each lies in.
        regions: Names of the regions: the modes, or pieces of a ridge that has no modes.
        masses: Probability of each under the law.
    """

    name: str
    potential: Callable[[Points], Values]
    log_normaliser: float
    region: Callable[[Points], Indices]
    regions: tuple[str, ...]
    masses: tuple[float, ...]

    def __call__(self, z: Points) -> Values:
        """Return the energy, walls included."""
        return self.potential(z) + F.relu(z.abs() - WALL).square().sum(-1)

    def log_prob(self, z: Points) -> Values:
        """Return the log-density of the normalised law, in nats."""
        return -self(z) - self.log_normaliser

    def coverage(self, z: Points) -> dict[str, float]:
        """Return the share of points in each region, to stand beside ``masses``."""
        counts = torch.bincount(self.region(z).flatten(), minlength=len(self.regions))
        shares = (counts.double() / max(1, counts.sum().item())).tolist()
        return dict(zip(self.regions, shares, strict=True))


def _bell(value: Values, width: float) -> Values:
    return -0.5 * (value / width).square()


def _wave(z1: Values) -> Values:
    return (2 * math.pi / 4 * z1).sin()


def _bump(z1: Values) -> Values:
    return 3 * _bell(z1 - 1, 0.6).exp()


def _step(z1: Values) -> Values:
    return 3 * ((z1 - 1) / 0.3).sigmoid()


def _two_moons(z: Points) -> Values:
    """Return U1: two arcs of a ring."""
    ends = torch.logaddexp(_bell(z[..., 0] - 2, 0.6), _bell(z[..., 0] + 2, 0.6))
    return -_bell(z.norm(dim=-1) - 2, 0.4) - ends


def _single_wave(z: Points) -> Values:
    """Return U2: one ridge along a sine wave."""
    return -_bell(z[..., 1] - _wave(z[..., 0]), 0.4)


def _split_wave(z: Points) -> Values:
    """Return U3: a ridge that parts in two near z1 = 1 and joins again."""
    upper, lower = _ridges(z, _bump, 0.35)
    return -torch.logaddexp(upper, lower)


def _forked_wave(z: Points) -> Values:
    """Return U4: a ridge that forks in two near z1 = 1."""
    upper, lower = _ridges(z, _step, 0.4)
    return -torch.logaddexp(upper, lower)


def _ridges(
    z: Points, distance: Callable[[Values], Values], width: float
) -> tuple[Values, Values]:
    """Return the logarithms of the upper ridge, on the wave, and of the lower one."""
    offset = z[..., 1] - _wave(z[..., 0])
    return _bell(offset, width), _bell(offset + distance(z[..., 0]), 0.35)


def _side(z: Points) -> Indices:
    return (z[..., 0] > 0).long()


def _strip(z: Points) -> Indices:
    return torch.bucketize(z[..., 0].contiguous(), z.new_tensor(STRIPS))


def _split(z: Points) -> Indices:
    """Return upper, lower, left or right: the ridges of U3 are two for z1 from 0 to 2."""
    upper, lower = _ridges(z, _bump, 0.35)
    ridge = (lower > upper).long()
    ridge = torch.where(z[..., 0] < 0, 2, ridge)
    return torch.where(z[..., 0] > 2, 3, ridge)


def _fork(z: Points) -> Indices:
    """Return upper, lower or left: the ridges of U4 are two from z1 = 1 on."""
    upper, lower = _ridges(z, _step, 0.4)
    return torch.where(z[..., 0] < 1, 2, (lower > upper).long())


ENERGIES: dict[str, Energy] = {
    energy.name: energy
    for energy in (
        Energy("u1", _two_moons, 1.877502, _side, ("left", "right"), (0.5, 0.5)),
        Energy(
            "u2",
            _single_wave,
            2.625318,
            _strip,
            ("below -4", "-4 to -2", "-2 to 0", "0 to 2", "2 to 4", "above 4"),
            (0.209565, 0.145217, 0.145217, 0.145217, 0.145217, 0.209565),
        ),
        Energy(
            "u3",
            _split_wave,
            3.184934,
            _split,
            ("upper", "lower", "left", "right"),
            (0.072609, 0.072609, 0.5, 0.354783),
        ),
        Energy(
            "u4",
            _forked_wave,
            3.253927,
            _fork,
            ("upper", "lower", "left"),
            (0.227927, 0.199464, 0.572609),
        ),
    )
}


def energy_named(name: str) -> Energy:
    """Return the energy of that name.

    Raises:
        SettingsError: If there is none.

    Example:
        >>> energy_named("u2")(torch.zeros(3, 2)).tolist()
        [0.0, 0.0, 0.0]
    """
    if name not in ENERGIES:
        raise SettingsError(f"name must be one of {', '.join(ENERGIES)}, got {name!r}.")
    return ENERGIES[name]
