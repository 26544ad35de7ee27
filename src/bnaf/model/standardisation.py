r"""Columns brought to a common scale, and what that does to a density."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from bnaf.errors import ShapeError, TableError
from bnaf.tables.moments import RunningMoments


@dataclass(frozen=True, eq=False)
class Standardisation:
    r"""Map from the units of a table to columns of mean 0 and deviation 1.

    .. math:: z = \frac{x - \mu}{\sigma}, \qquad
        \log p(x) = \log p_Z(z) - \sum_i \log \sigma_i

    With a factor it goes on to columns that do not correlate, with each other or with given
    columns c (standardised too), as :func:`bnaf.model.whitening.whiten` finds them:

    .. math:: z = L^{-1} \left( \frac{x - \mu}{\sigma} - S c \right), \qquad
        \log p(x \mid c) = \log p_Z(z \mid c) - \sum_i \log \sigma_i - \sum_i \log L_{ii}

    Args:
        location: What is subtracted, per column.
        scale: What is divided by, per column; positive.
        factor: The matrix L, lower triangular with a positive diagonal; none for the identity.
        slopes: The matrix S, one row per column and one column per given column; none for zero.

    Raises:
        ShapeError: If they do not agree in shape.
        TableError: If a value is not finite, or a scale or a diagonal entry not positive.

    Example:
        >>> rows = torch.tensor([[0.0, 10.0], [2.0, 30.0]], dtype=torch.float64)
        >>> standardisation = Standardisation.from_rows(rows)
        >>> standardisation.apply(rows)
        tensor([[-1., -1.],
                [ 1.,  1.]], dtype=torch.float64)
        >>> standardisation.log_det  # -log(1 * 10)
        -2.302585092994046
    """

    location: Tensor
    scale: Tensor
    factor: Tensor | None = None
    slopes: Tensor | None = None

    def __post_init__(self) -> None:
        if self.location.dim() != 1 or self.location.shape != self.scale.shape:
            raise ShapeError(
                "Standardisation expects one location and one scale per column, got shapes "
                f"{tuple(self.location.shape)} and {tuple(self.scale.shape)}."
            )
        for name in ("location", "scale"):
            value = getattr(self, name).detach().to("cpu", torch.float64)
            object.__setattr__(self, name, value)
        wrong = ~(self.location.isfinite() & self.scale.isfinite() & (self.scale > 0))
        if wrong.any():
            column = int(wrong.nonzero()[0])
            raise TableError(
                "Standardisation expects finite locations and positive finite scales, got "
                f"{self.location[column]:g} and {self.scale[column]:g} in column {column}; "
                "give it in other units."
            )
        self._check_matrices()

    def _check_matrices(self) -> None:
        for name in ("factor", "slopes"):
            matrix: Tensor | None = getattr(self, name)
            if matrix is None:
                continue
            if matrix.dim() != 2 or len(matrix) != self.features:
                raise ShapeError(
                    f"Standardisation expects one row of {name} per column ({self.features}), got "
                    f"shape {tuple(matrix.shape)}."
                )
            if not matrix.isfinite().all():
                raise TableError(f"Standardisation expects finite {name}, got others.")
            object.__setattr__(self, name, matrix.detach().to("cpu", torch.float64))
        if self.factor is not None:
            triangular = self.factor.shape == (self.features, self.features) and torch.equal(
                self.factor, self.factor.tril()
            )
            if not (triangular and (self.factor.diagonal() > 0).all()):
                raise TableError(
                    "Standardisation expects a square factor that is lower triangular with a "
                    f"positive diagonal, got one of shape {tuple(self.factor.shape)} that is not."
                )

    @classmethod
    def from_rows(
        cls, rows: Float[Tensor, "rows columns"], weights: Float[Tensor, " rows"] | None = None
    ) -> "Standardisation":
        """Return the mean and the deviation of each column; a constant one has scale 1.

        Args:
            rows: Finite values.
            weights: How much each row counts, none below 0 and some above; all alike by default.
        """
        moments = RunningMoments(rows.shape[1])
        if weights is not None:
            weights = weights.detach().to("cpu", torch.float64)
        moments.update(rows.detach().to("cpu", torch.float64), weights)
        return cls.from_moments(moments)

    @classmethod
    def from_moments(cls, moments: RunningMoments) -> "Standardisation":
        """Return mean and deviation of what moments have taken in; a constant column has 1."""
        return cls(moments.centre, moments.deviation)

    @classmethod
    def identity(cls, features: int) -> "Standardisation":
        """Return the map that leaves rows as they are."""
        return cls(
            torch.zeros(features, dtype=torch.float64), torch.ones(features, dtype=torch.float64)
        )

    @property
    def is_identity(self) -> bool:
        """Whether location and scale change nothing."""
        return not self.location.any() and bool((self.scale == 1).all())

    @property
    def features(self) -> int:
        """Number of columns."""
        return len(self.scale)

    @property
    def log_det(self) -> float:
        """Log-Jacobian: what a log-density of z gains to become one of x."""
        log_det = 0.0 - self.scale.log().sum().item()
        if self.factor is not None:
            log_det -= self.factor.diagonal().log().sum().item()
        return log_det

    def apply(
        self,
        rows: Float[Tensor, "*batch columns"],
        given: Float[Tensor, "*given_batch given_columns"] | None = None,
    ) -> Float64[Tensor, "*all_batch columns"]:
        """Return rows in units of the deviation, from the mean.

        Args:
            rows: Rows in the units of the table.
            given: Standardised given columns, where there are slopes; they broadcast.
        """
        x = rows.to(torch.float64)
        z = (x - self.location.to(x.device)) / self.scale.to(x.device)
        if self.slopes is not None:
            z = z - self._slope(given)
        if self.factor is not None:
            flat = z.reshape(-1, self.features).t()
            solved = torch.linalg.solve_triangular(self.factor.to(z.device), flat, upper=False)
            z = solved.t().reshape(z.shape)
        return z

    def invert(
        self,
        z: Float[Tensor, "*batch columns"],
        given: Float[Tensor, "*given_batch given_columns"] | None = None,
    ) -> Float64[Tensor, "*all_batch columns"]:
        """Return rows in the units of the table.

        Args:
            z: What :meth:`apply` returns.
            given: As there.
        """
        z = z.to(torch.float64)
        if self.factor is not None:
            z = z @ self.factor.t().to(z.device)
        if self.slopes is not None:
            z = z + self._slope(given)
        return z * self.scale.to(z.device) + self.location.to(z.device)

    def _slope(self, given: Tensor | None) -> Tensor:
        assert self.slopes is not None
        if given is None or given.dim() == 0 or given.shape[-1] != self.slopes.shape[1]:
            got = "none" if given is None else f"shape {tuple(given.shape)}"
            raise ShapeError(
                f"This standardisation expects {self.slopes.shape[1]} given columns, got {got}."
            )
        return given.to(torch.float64) @ self.slopes.t().to(given.device)
