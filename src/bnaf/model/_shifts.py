"""What log-densities of a flow gain to be in the units of a table, where rows differ in it."""

import math
import warnings

import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf.errors import TableWarning


class MeanShift:
    """Mean of what log-densities of rows gain to be in the units of the table, by chunks."""

    def __init__(self) -> None:
        self.total = self.weight = 0.0

    def update(self, shift: Float64[Tensor, " rows"], weights: Tensor | None) -> None:
        """Take in some rows; a value that no model could have foreseen judges none."""
        counts = torch.ones_like(shift) if weights is None else weights
        possible = shift.isfinite()
        self.total += float((counts * shift)[possible].sum())
        self.weight += float(counts[possible].sum())

    @property
    def mean(self) -> float:
        """The mean; nan of nothing."""
        return self.total / self.weight if self.weight else math.nan


def mean_shift(shift: Float64[Tensor, " rows"], weights: Float64[Tensor, " rows"] | None) -> float:
    """Return what log-densities of some rows gain in the mean."""
    gained = MeanShift()
    gained.update(shift, weights)
    return gained.mean


def warn_of_impossible(shift: Float64[Tensor, " rows"]) -> None:
    """Warn of validation rows that no density of the model is above zero at."""
    count = int(shift.isneginf().sum())
    if count:
        warnings.warn(
            TableWarning(
                f"{count:,} of {len(shift):,} validation rows lie outside of the bounds of a "
                "column, where the density is zero; they are left out of the figures of the fit. "
                "Widen the bounds."
            ),
            stacklevel=4,
        )
