"""Log-densities of the rows of a table, and what is said of them."""

import math
from dataclasses import dataclass

from jaxtyping import Float64
from torch import Tensor

from bnaf.errors import SettingsError
from bnaf.model.model import Model
from bnaf.tables.table import Table

COLUMN = "log_density"


@dataclass(frozen=True, eq=False)
class Scores:
    """Log-density of each row, in nats and in the units of the table.

    Args:
        log_densities: One number per row, in the order of the table.
    """

    log_densities: Float64[Tensor, " rows"]

    def __len__(self) -> int:
        return len(self.log_densities)

    @property
    def mean(self) -> float:
        """Mean over the rows."""
        return self.log_densities.mean().item()

    @property
    def standard_error(self) -> float:
        """Standard error of the mean; undefined (nan) for a single row."""
        return standard_error(self.log_densities)

    def least_likely(self, count: int) -> Tensor:
        """Return the indices of the least likely rows, the least likely first.

        Args:
            count: How many; all rows at most.

        Raises:
            SettingsError: If it is below 1.
        """
        if count < 1:
            raise SettingsError(f"count must be at least 1 row, got {count}.")
        return self.log_densities.argsort(stable=True)[:count]

    def as_table(self) -> Table:
        """Return the scores as a table of one column, ``log_density``."""
        return Table(self.log_densities.unsqueeze(1), (COLUMN,))


def score_table(model: Model, table: Table) -> Scores:
    """Score the rows of a table under a model.

    Args:
        model: The density.
        table: Rows with the columns of the model, given ones included, in any order.

    Raises:
        TableError: If a column is missing.

    Example:
        >>> from bnaf import BNAF, read_table
        >>> model = Model(BNAF(2), columns=["a", "b"])
        >>> table = read_table([[0.0, 0.0]] * 4, names=["b", "a"], warn=False)
        >>> scores = score_table(model, table)
        >>> len(scores), scores.standard_error
        (4, 0.0)
    """
    return Scores(model.log_prob(table))


def standard_error(values: Float64[Tensor, " rows"]) -> float:
    """Return the standard error of a mean; undefined (nan) for a single value."""
    if len(values) < 2:
        return math.nan
    return values.std().item() / math.sqrt(len(values))
