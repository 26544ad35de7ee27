"""Rows drawn until all of them are as they are asked for."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from bnaf.errors import Argument, SettingsError, TableError
from bnaf.model.encoding import Encoding, GivenCells

FEWEST = 256  # rows that are drawn at a time, in search of the last ones
ENOUGH = 10_000  # draws without a single good row that tell that there is none
MOST_TIMES = 100  # draws for each row that is asked for


@dataclass(frozen=True, eq=False)
class Demand:
    """What is asked of codes of rows; nothing by default.

    Args:
        arguments: What was asked, by the names of the arguments.
        filled: Columns that may not be empty.
        ranges: Least and largest code of each column.
        whole: Columns whose numbers are rounded when they are written, and so within range.
    """

    arguments: tuple[str, ...] = ()
    filled: Bool[Tensor, " columns"] | None = None
    ranges: Float64[Tensor, "2 columns"] | None = None
    whole: Bool[Tensor, " columns"] | None = None

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
        asked = ("complete",) * complete + ("within_range",) * within_range
        filled = ~(known | encoding.hollow) if complete else None
        if not within_range:
            return cls(asked, filled)
        if encoding.ranges is None:
            raise SettingsError(
                "This model does not know the ranges of its columns: it is of an earlier version, "
                "or was not fitted to a table. Fit it anew, or draw without ",
                Argument("within_range", True),
                ".",
            )
        limits = torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64)
        whole = torch.tensor([not kind.startswith("float") for kind in encoding.types])
        return cls(asked, filled, torch.where(known, limits, encoding.ranges), whole)

    def settle(
        self, codes: Float64[Tensor, "*batch columns"]
    ) -> Float64[Tensor, "*batch columns"]:
        """Return rows whose columns of a single value have that value."""
        if self.ranges is None:
            return codes
        low, high = self.ranges.to(codes)
        return torch.where((low == high) & ~codes.isnan(), low, codes)

    def met(self, codes: Float64[Tensor, "*batch columns"]) -> Bool[Tensor, "*batch"]:
        """Return which rows are as they are asked for."""
        good = torch.ones(codes.shape[:-1], dtype=torch.bool, device=codes.device)
        if self.filled is not None:
            good &= ~codes[..., self.filled.to(codes.device)].isnan().any(-1)
        if self.ranges is not None and self.whole is not None:
            low, high = self.ranges.to(codes)
            written = torch.where(self.whole.to(codes.device), codes.round(), codes)
            good &= ~((written < low) | (written > high)).any(-1)
        return good


def draw_until(
    draw: Callable[[int], Float64[Tensor, "count *batch columns"]], demand: Demand, count: int
) -> Float64[Tensor, "count *batch columns"]:
    """Return so many rows, drawing those anew that are not as they are asked for.

    Args:
        draw: From a number of rows to as many, for each context.
        demand: What is asked of them.
        count: How many rows.

    Raises:
        TableError: If hardly any row is as it is asked for.
    """
    rows, drawn = demand.settle(draw(count)), count
    while (wrong := ~demand.met(rows)).any():
        if drawn >= MOST_TIMES * count + ENOUGH or (drawn >= ENOUGH and wrong.all(0).any()):
            raise _seldom(demand, drawn, wrong)
        again = wrong.reshape(count, -1).any(1).nonzero().squeeze(1)
        turns = -(-FEWEST // len(again))
        fresh = demand.settle(draw(turns * len(again)))
        drawn += len(fresh)
        for turn in fresh.split(len(again)):
            rows[again] = torch.where(wrong[again].unsqueeze(-1), turn, rows[again])
            wrong[again] &= ~demand.met(turn)
    return rows


def _seldom(demand: Demand, drawn: int, wrong: Bool[Tensor, "*rows"]) -> TableError:
    """Return the error of rows that are hardly ever as they are asked for."""
    found = (
        f"After {drawn:,} draws {int(wrong.sum()):,} of {wrong.numel():,} rows are not as asked"
    )
    asked = [Argument(name, True) for name in demand.arguments]
    return TableError(
        f"{found} yet; draw without ",
        asked[0],
        *(part for argument in asked[1:] for part in (" and ", argument)),
        ", or model fewer columns.",
    )
