"""Rows drawn until all of them are as they are asked for."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from bnaf.errors import SettingsError, TableError
from bnaf.model.encoding import Encoding, GivenCells

MOST_DRAWS, LEAST_DRAWS = (
    100,
    10_000,
)  # times the rows asked for, and at least so many, then it ends


@dataclass(frozen=True, eq=False)
class Demand:
    """What is asked of codes of rows; nothing by default.

    Args:
        filled: Columns that may not be empty.
        least: Least code of each column.
        largest: Largest code of each column.
        words: What rows are that meet it.
    """

    filled: Bool[Tensor, " columns"] | None = None
    least: Float64[Tensor, " columns"] | None = None
    largest: Float64[Tensor, " columns"] | None = None
    words: str = ""

    @classmethod
    def of(
        cls, encoding: Encoding, cells: GivenCells | None, *, complete: bool, within_range: bool
    ) -> "Demand":
        """Return what is asked of rows of an encoding; cells that are given are as they are.

        Args:
            encoding: Its columns; those that are empty throughout stay so.
            cells: Which cells are given, if some are.
            complete: Whether no other cell may be empty.
            within_range: Whether others may not lie beyond all that was seen.

        Raises:
            SettingsError: If the model does not know what was seen.
        """
        known = torch.zeros_like(encoding.hollow) if cells is None else cells.known
        words = ["complete"] * complete + ["within range"] * within_range
        filled = ~(known | encoding.hollow) if complete else None
        if not within_range:
            return cls(filled, words=" and ".join(words))
        if encoding.ranges is None:
            raise SettingsError(
                "This model does not know the ranges of its columns: it is of an earlier version, "
                "or was not fitted to a table. Fit it anew, or draw without within_range."
            )
        limits = torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64)
        least, largest = torch.where(known, limits, encoding.ranges)
        return cls(filled, least, largest, " and ".join(words))

    def met(self, codes: Float64[Tensor, "*batch columns"]) -> Bool[Tensor, "*batch"]:
        """Return which rows are as they are asked for."""
        good = torch.ones(codes.shape[:-1], dtype=torch.bool, device=codes.device)
        if self.filled is not None:
            good &= ~codes[..., self.filled.to(codes.device)].isnan().any(-1)
        if self.least is not None and self.largest is not None:
            beyond = (codes < self.least.to(codes)) | (codes > self.largest.to(codes))
            good &= ~beyond.any(-1)
        return good


def draw_until(
    draw: Callable[[int], Float64[Tensor, "count *batch columns"]], demand: Demand, count: int
) -> Float64[Tensor, "count *batch columns"]:
    """Return so many rows, drawing those anew that are not as they are asked for.

    Args:
        draw: From a number of rows to as many.
        demand: What is asked of them.
        count: How many rows.

    Raises:
        TableError: If hardly any row is as it is asked for.
    """
    rows, drawn = draw(count), count
    while (wrong := ~demand.met(rows)).any():
        again = wrong.reshape(count, -1).any(1)
        if drawn > MOST_DRAWS * count + LEAST_DRAWS:
            raise TableError(
                f"After {drawn:,} draws {int(again.sum()):,} of {count:,} rows are not "
                f"{demand.words} yet; ask for less of them, or model fewer columns."
            )
        fresh = draw(int(again.sum()))
        drawn += len(fresh)
        rows[again] = torch.where(wrong[again].unsqueeze(-1), fresh, rows[again])
    return rows
