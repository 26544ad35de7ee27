"""Moments of columns that come in chunks."""

import torch
from jaxtyping import Float64
from torch import Tensor

LEAST_EXPONENT = -1074  # of float64


class RunningMoments:
    r"""Mean, deviation and range of columns that come in chunks, weighted or not.

    Chunks are merged by their means and sums of squared deviations, so that nothing cancels:

    .. math:: M = M_a + M_b + (\mu_b - \mu_a)^2 \frac{w_a w_b}{w_a + w_b}

    Squares are kept in units of a power of two, per column, so that they neither overflow nor
    vanish however large or small the values.

    Args:
        columns: Number of columns.
    """

    def __init__(self, columns: int) -> None:
        self.rows = 0
        self.weight = 0.0
        self.mean = torch.zeros(columns, dtype=torch.float64)
        self.squares = torch.zeros(columns, dtype=torch.float64)
        self.unit = torch.zeros(columns, dtype=torch.float64)
        self.least = torch.full((columns,), torch.inf, dtype=torch.float64)
        self.largest = torch.full((columns,), -torch.inf, dtype=torch.float64)

    def update(
        self,
        rows: Float64[Tensor, "rows columns"],
        weights: Float64[Tensor, " rows"] | None = None,
    ) -> None:
        """Take in a chunk of rows.

        Args:
            rows: Finite values.
            weights: How much each row counts; one that weighs nothing does not matter.
        """
        if weights is not None:
            rows, weights = rows[weights > 0], weights[weights > 0]
        if not len(rows):
            return
        weight = float(len(rows)) if weights is None else weights.sum().item()
        shares = None if weights is None else (weights / weight).unsqueeze(1)
        mean = rows.mean(0) if shares is None else (shares * rows).sum(0)
        total, shift = self.weight + weight, mean - self.mean
        apart = rows - mean
        unit = _power_of_two(torch.maximum(apart.abs().amax(0), shift.abs() * bool(self.weight)))
        unit = torch.maximum(unit, self.unit)
        squares = (apart / unit).square()
        spread = squares.sum(0) if shares is None else weight * (shares * squares).sum(0)
        moved = (shift / unit).square() * (self.weight * weight / total) if self.weight else 0.0
        self.mean = self.mean + shift * (weight / total)
        self.squares = self.squares * (self.unit / unit).square() + spread + moved
        self.unit = unit
        self.least = torch.minimum(self.least, rows.amin(0))
        self.largest = torch.maximum(self.largest, rows.amax(0))
        self.rows, self.weight = self.rows + len(rows), total

    @property
    def constant(self) -> Tensor:
        """Which columns hold one value in all rows."""
        return self.least == self.largest

    @property
    def centre(self) -> Float64[Tensor, " columns"]:
        """The mean; of a constant column its value, to the last bit."""
        return torch.where(self.constant, self.least, self.mean)

    @property
    def deviation(self) -> Float64[Tensor, " columns"]:
        """The deviation; 1 for a constant column."""
        deviation = (self.squares / (self.weight or 1.0)).sqrt() * self.unit
        return torch.where(self.constant, 1.0, deviation)


def _power_of_two(values: Float64[Tensor, " columns"]) -> Float64[Tensor, " columns"]:
    """Return the powers of two at or below values; the smallest there is for 0."""
    exponents = torch.frexp(values).exponent - 1
    exponents = torch.where(values > 0, exponents, LEAST_EXPONENT).clamp(min=LEAST_EXPONENT)
    return torch.ldexp(torch.ones_like(values), exponents)
