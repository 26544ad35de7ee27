"""How the toy data sets are drawn, and their densities."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from bnaf._checks import whole
from bnaf.datasets._quadrature import gauss_legendre, square_grid

Points = Float[Tensor, "rows 2"]
Curve = Callable[[Float[Tensor, " rows"], Int[Tensor, " rows"]], Points]
ELEMENTS = 2**17  # rows times nodes evaluated at once
CAP = 20.0  # beyond it the complementary error function is replaced by its asymptote


@dataclass(frozen=True)
class Toy(ABC):
    """Two-dimensional law that can be drawn from and whose density is known.

    Args:
        name: What it is called in tables and on command lines.
        limit: Half of the side of a square around the origin that holds all but a negligible
            share of it.
    """

    name: str
    limit: float

    def draw(
        self,
        rows: int,
        generator: Generator | int | None = None,
        *,
        dtype: torch.dtype = torch.float32,
    ) -> Points:
        """Draw points.

        Args:
            rows: Number of points.
            generator: Source of randomness, or the seed of a private one; torch's global one by
                default.
            dtype: Floating-point type of the points.

        Raises:
            SettingsError: If the number of points or the seed is no whole number.
        """
        rows = whole("rows", rows, least=0)
        if generator is not None and not isinstance(generator, Generator):
            generator = Generator().manual_seed(whole("generator", generator, least=0))
        return self._draw(rows, generator, dtype)

    def log_prob(self, x: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
        """Return the log-density of points, in nats; computed in float64 throughout."""
        points = x.reshape(-1, 2).double()
        parts = [self._log_prob(part) for part in points.split(max(1, ELEMENTS // self._nodes()))]
        return torch.cat(parts).to(x.dtype).reshape(x.shape[:-1])

    def entropy(self) -> float:
        """Return the entropy in nats: the least negative log-likelihood that a model can reach.

        It is integrated on a grid, once per process.
        """
        return _entropy(self)

    @abstractmethod
    def _draw(self, rows: int, generator: Generator | None, dtype: torch.dtype) -> Points: ...

    @abstractmethod
    def _log_prob(self, x: Points) -> Float[Tensor, " rows"]: ...

    @abstractmethod
    def _nodes(self) -> int:
        """Return how many numbers the density of one point takes."""


@cache
def _entropy(toy: Toy) -> float:
    points, area = square_grid(toy.limit, 240)
    log_prob = toy.log_prob(points)
    return -float((log_prob.exp() * log_prob.clamp(min=-1e3)).sum() * area)


@dataclass(frozen=True)
class NoisyCurves(Toy):
    r"""Points on curves, each of the same probability, with normal noise around them.

    .. math::
        x = \pm \bigl( c_k(t) + \text{box} \cdot (u - \tfrac12) \bigr) + \text{noise} \cdot
        \epsilon, \qquad
        p(x) = \frac1K \sum_k \int_0^1 p(t) \, p(x \mid c_k(t)) \, dt

    with u uniform on the unit square. Given t the law is a product of two normal laws, or of two
    differences of normal distribution functions where there is a box; the integral over t is taken
    by Gauss and Legendre's rule.

    Args:
        name: What it is called.
        limit: Half of the side of a square that holds it.
        curve: From t in [0, 1] and the number k of the curve to its point.
        curves: Number K of curves.
        noise: Standard deviation of the noise in each coordinate.
        box: Side of the square over which points are spread.
        mirrored: Whether the sign is drawn too, with equal chances.
        power: t is U^(1 / power), so that p(t) = power * t^(power - 1).
        nodes: Points of the rule along each curve.
    """

    curve: Curve
    curves: int
    noise: float
    box: float = 0.0
    mirrored: bool = False
    power: int = 1
    nodes: int = 256

    def _draw(self, rows: int, generator: Generator | None, dtype: torch.dtype) -> Points:
        t = torch.rand(rows, generator=generator, dtype=dtype) ** (1 / self.power)
        x = self.curve(t, torch.randint(self.curves, (rows,), generator=generator))
        if self.box:
            x = x + self.box * (torch.rand(rows, 2, generator=generator, dtype=dtype) - 0.5)
        if self.mirrored:
            x = x * (2 * torch.randint(2, (rows, 1), generator=generator) - 1)
        return x + self.noise * torch.randn(rows, 2, generator=generator, dtype=dtype)

    def _nodes(self) -> int:
        return self.curves * self.nodes

    def _log_prob(self, x: Points) -> Float[Tensor, " rows"]:
        t, weight = gauss_legendre(self.nodes)
        log_weight = (weight * self.power * t ** (self.power - 1) / self.curves).log()
        index = torch.arange(self.curves).repeat_interleave(self.nodes)
        centres = self.curve(t.repeat(self.curves), index)  # (curves * nodes, 2)
        log_weight = log_weight.repeat(self.curves)
        log_prob = (self._log_kernel(x, centres) + log_weight).logsumexp(1)
        if not self.mirrored:
            return log_prob
        other = (self._log_kernel(-x, centres) + log_weight).logsumexp(1)
        return torch.logaddexp(log_prob, other) - math.log(2)

    def _log_kernel(
        self, x: Points, centres: Float[Tensor, "nodes 2"]
    ) -> Float[Tensor, "rows nodes"]:
        """Return log p(x | c), summed over the two coordinates."""
        pairs = zip(x.unbind(1), centres.unbind(1), strict=True)
        first, second = (one.unsqueeze(1) - centre for one, centre in pairs)
        if self.box:
            return self._log_smoothed_box(first) + self._log_smoothed_box(second)
        squares = first.square() + second.square()
        return -squares / (2 * self.noise**2) - math.log(2 * math.pi * self.noise**2)

    def _log_smoothed_box(
        self, distance: Float[Tensor, "rows nodes"]
    ) -> Float[Tensor, "rows nodes"]:
        """Return the log-density of a uniform number on the box plus the noise."""
        distance, unit = distance.abs(), self.noise * math.sqrt(2)
        near, far = (distance - self.box / 2) / unit, (distance + self.box / 2) / unit
        capped = near.clamp(max=CAP)
        share = (torch.erfc(capped) - torch.erfc(far.clamp(max=CAP + 1))) / (2 * self.box)
        # far out erfc(a) is exp(-a²) / (a √π): what lies beyond the cap is added in logarithms
        beyond = capped.square() - near.clamp(min=CAP).square() - (near / CAP).clamp(min=1).log()
        return share.log() + torch.where(near > CAP, beyond, 0.0)


@dataclass(frozen=True)
class Checkerboard(Toy):
    """Uniform law on every other square of a board whose squares have side 2.

    Its entropy is the logarithm of the area, 32.
    """

    area: float = 32.0

    def _draw(self, rows: int, generator: Generator | None, dtype: torch.dtype) -> Points:
        across = 4 * torch.rand(rows, generator=generator, dtype=dtype) - 2
        lower = 2 * torch.randint(2, (rows,), generator=generator)
        up = torch.rand(rows, generator=generator, dtype=dtype) - lower + across.floor() % 2
        return 2 * torch.stack([across, up], 1)

    def _nodes(self) -> int:
        return 1

    def _log_prob(self, x: Points) -> Float[Tensor, " rows"]:
        square = (x / 2).floor()
        on_board = ((square >= -2) & (square < 2)).all(1)
        filled = on_board & (square.sum(1) % 2 == 0)
        return torch.where(filled, x.new_tensor(-math.log(self.area)), -torch.inf)


@dataclass(frozen=True)
class Pinwheel(Toy):
    r"""Five blades, bent because a point turns further the farther out it lies.

    .. math:: x = 2 R(-a_k - \tfrac14 e^{f_1}) f, \qquad f \sim N((1, 0), (0.3^2, 0.1^2))

    Turning keeps the radius r, so in polar coordinates only the angle changes, from that of f to
    :math:`h(\phi) = \phi - \tfrac14 e^{r \cos \phi} - a_k`. The density of x is the sum of that of
    f, over :math:`4 |h'|`, at all solutions of :math:`h(\phi) = \arg x`; they are bracketed on a
    grid of angles and refined by Newton's method.
    """

    blades: int = 5
    radial: float = 0.3
    tangential: float = 0.1
    rate: float = 0.25
    angles: int = 512

    def _draw(self, rows: int, generator: Generator | None, dtype: torch.dtype) -> Points:
        noise = torch.randn(rows, 2, generator=generator, dtype=dtype)
        first, second = 1 + self.radial * noise[:, 0], self.tangential * noise[:, 1]
        blade = torch.randint(self.blades, (rows,), generator=generator)
        turn = 2 * math.pi / self.blades * blade + self.rate * first.exp()
        cos, sin = turn.cos(), turn.sin()
        return 2 * torch.stack([first * cos + second * sin, second * cos - first * sin], 1)

    def _nodes(self) -> int:
        return self.angles

    def _log_prob(self, x: Points) -> Float[Tensor, " rows"]:
        radius = x.norm(dim=1) / 2
        angle = torch.atan2(x[:, 1], x[:, 0])
        grid = torch.linspace(-math.pi, math.pi, self.angles + 1, dtype=x.dtype)
        turned = grid - self.rate * (radius.unsqueeze(1) * grid.cos()).exp()  # (rows, angles + 1)
        log_probs = [
            self._log_blade(radius, angle + 2 * math.pi * blade / self.blades, grid, turned)
            for blade in range(self.blades)
        ]
        return torch.stack(log_probs).logsumexp(0) - math.log(4 * self.blades)

    def _log_blade(
        self,
        radius: Float[Tensor, " rows"],
        angle: Float[Tensor, " rows"],
        grid: Float[Tensor, " nodes"],
        turned: Float[Tensor, "rows nodes"],
    ) -> Float[Tensor, " rows"]:
        """Return the log-density, in units of f, at x turned back to the first blade."""
        lap = ((turned - angle.unsqueeze(1)) / (2 * math.pi)).floor()
        row, cell = (lap[:, 1:] != lap[:, :-1]).nonzero(as_tuple=True)
        target = angle[row] + 2 * math.pi * torch.maximum(lap[row, cell], lap[row, cell + 1])
        r, phi = radius[row], (grid[cell] + grid[cell + 1]) / 2
        for _ in range(6):
            push = self.rate * (r * phi.cos()).exp()
            slope = 1 + push * r * phi.sin()
            phi = (phi - (phi - push - target) / slope).clamp(grid[cell], grid[cell + 1])
        first, second = r * phi.cos() - 1, r * phi.sin()
        log_prob = -0.5 * ((first / self.radial) ** 2 + (second / self.tangential) ** 2)
        log_prob = log_prob - slope.abs().log()
        log_prob = log_prob - math.log(2 * math.pi * self.radial * self.tangential)
        largest = torch.full_like(radius, -torch.inf).scatter_reduce(
            0, row, log_prob.detach(), "amax"
        )
        total = torch.zeros_like(radius).index_add(0, row, (log_prob - largest[row]).exp())
        return total.log() + largest
