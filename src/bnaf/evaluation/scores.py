"""Log-densities of the rows of a table, and what is said of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf.errors import SettingsError, TableError
from bnaf.model.model import Model
from bnaf.tables.table import Table

ROW, COLUMN = "row", "log_density"
BLOCKS, BLOCK_DIGITS = 128, 5  # of which the means are kept, and how they are rounded


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

    def as_table(
        self,
        numbers: Tensor | None = None,
        shares: Float64[Tensor, "rows columns"] | None = None,
        columns: Sequence[str] = (),
    ) -> Table:
        """Return the scores as a table whose column is ``log_density``.

        Args:
            numbers: Numbers of the rows, from zero, for a column ``row`` in front that counts
                from one.
            shares: Shares of single cells, for columns behind.
            columns: Names of these.
        """
        parts, names, types = [self.log_densities.unsqueeze(1)], [COLUMN], ["float64"]
        if numbers is not None:
            parts.insert(0, numbers.to(torch.float64).unsqueeze(1) + 1)
            names, types = [ROW, *names], ["int64", *types]
        if shares is not None:
            parts.append(shares)
            taken = {*names}
            names += [f"{name} share" if name in taken else name for name in columns]
            types += ["float64"] * len(columns)
        return Table(torch.cat(parts, 1), tuple(names), tuple(types))


def score_table(model: Model, table: Table) -> Scores:
    """Score the rows of a table under a model.

    Args:
        model: The density.
        table: Rows with the columns of the model, given ones included, in any order.

    Raises:
        TableError: If a column is missing, or the log-density of a row is undefined.

    Example:
        >>> from bnaf import BNAF, read_table
        >>> model = Model(BNAF(2), columns=["a", "b"])
        >>> table = read_table([[0.0, 0.0]] * 4, names=["b", "a"], warn=False)
        >>> scores = score_table(model, table)
        >>> len(scores), scores.standard_error
        (4, 0.0)
    """
    scores = model.log_prob(table)
    undefined = scores.isnan().nonzero()
    if len(undefined):
        raise TableError(
            f"{len(undefined):,} of {len(scores):,} rows have an undefined log-density, the first "
            f"of them row {int(undefined[0])}, counted from 0: numbers on the way are too large "
            "for float64. Look at the row; if it is an ordinary one, fit the model anew."
        )
    return Scores(scores)


def standard_error(values: Float64[Tensor, " rows"]) -> float:
    """Return the standard error of a mean; undefined (nan) for a single value."""
    if len(values) < 2:
        return math.nan
    return values.std().item() / math.sqrt(len(values))


def block_means(values: Float64[Tensor, " rows"]) -> list[float]:
    """Return means over blocks of rows, from which errors of differences follow.

    Args:
        values: One number per row, in an order that all who are compared have in common.
    """
    blocks = values.tensor_split(min(BLOCKS, len(values)))
    return [round(block.mean().item(), BLOCK_DIGITS) for block in blocks]


def paired_error(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the standard error of the difference of two means, from those of the same blocks."""
    gaps = torch.tensor(first, dtype=torch.float64) - torch.tensor(second, dtype=torch.float64)
    return standard_error(gaps)
