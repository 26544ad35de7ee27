"""Rows of levels and cells, packed into one tensor."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

ORDINARY = 0  # the level of a status that says: there is a number


class PackedRows(NamedTuple):
    """The pieces of packed rows, each with one column per part.

    Args:
        levels: Level of each discrete part, as a number; NaN where it is not known.
        middle: The point, or the middle of the interval, of each number; NaN where there is none.
        below: How far the interval reaches below its middle; 0 for a point.
        above: How far it reaches above.
    """

    levels: Float[Tensor, "*batch parts"]
    middle: Float[Tensor, "*batch numbers"]
    below: Float[Tensor, "*batch numbers"]
    above: Float[Tensor, "*batch numbers"]

    def pack(self) -> Float[Tensor, "*batch width"]:
        """Return them as one tensor."""
        return torch.cat(self, -1)


class RowLayout(NamedTuple):
    """What packed rows are made of: ``[levels | middle | below | above]``.

    Args:
        levels: Number of levels of each discrete part.
        numbers: Number of number parts.
        statuses: For each number, which discrete part tells whether there is one, by its level 0;
            -1 where there always is.
    """

    levels: tuple[int, ...]
    numbers: int
    statuses: tuple[int, ...]

    @property
    def width(self) -> int:
        """Columns of a packed row."""
        return len(self.levels) + 3 * self.numbers

    @property
    def parts(self) -> int:
        """Number of discrete parts and numbers."""
        return len(self.levels) + self.numbers

    def split(self, rows: Float[Tensor, "*batch width"]) -> PackedRows:
        """Return the pieces of packed rows."""
        return PackedRows(*rows.split([len(self.levels), *[self.numbers] * 3], -1))

    def absent(self, levels: Float[Tensor, "*batch levels"]) -> Bool[Tensor, "*batch numbers"]:
        """Tell which numbers are not there, as their statuses say."""
        status = levels.new_full((*levels.shape[:-1], self.numbers), ORDINARY)
        told = [number for number, part in enumerate(self.statuses) if part >= 0]
        if told:
            status[..., told] = levels[..., [self.statuses[number] for number in told]]
        return (status != ORDINARY) & ~status.isnan()

    def impossible(self, rows: Float[Tensor, "*batch width"]) -> Bool[Tensor, "*batch width"]:
        """Tell which values no row has: levels that do not exist, and numbers that cannot be.

        A level that is not known, and a number that is not there, is NaN. A number that its status
        says is not there is impossible, and so is an interval of negative length.
        """
        levels, middle, below, above = self.split(rows)
        counts = levels.new_tensor(self.levels)
        is_level = (levels >= 0) & (levels < counts) & (levels == levels.floor())
        known = ~middle.isnan()
        wrong = middle.isinf() | (known & self.absent(levels))
        ends = [known & ~(end >= 0) for end in (below, above)]
        return torch.cat([~(is_level | levels.isnan()), wrong, *ends], -1)

    def known(self, rows: Float[Tensor, "*batch width"]) -> Bool[Tensor, "*batch parts"]:
        """Tell which parts are known: levels and numbers that are not NaN."""
        return ~rows[..., : self.parts].isnan()

    def complete(self, rows: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Return rows in which a number that is known has a status that says so."""
        rows = rows.clone()
        known = self.known(rows)
        for number, part in enumerate(self.statuses):
            if part >= 0:
                told = known[..., len(self.levels) + number] & rows[..., part].isnan()
                rows[..., part] = rows[..., part].masked_fill(told, ORDINARY)
        return rows

    def after_free(
        self, known: Bool[Tensor, "*batch parts"], levels: Float[Tensor, "*batch levels"]
    ) -> Bool[Tensor, "*batch parts"]:
        """Tell which parts come after one that is neither known nor known not to be there."""
        settled = torch.cat([torch.zeros_like(levels, dtype=torch.bool), self.absent(levels)], -1)
        return (~(known | settled)).cumsum(-1) > 0

    def odd_parts(self, rows: Float[Tensor, "*batch width"]) -> Bool[Tensor, "*batch parts"]:
        """Tell which parts have a value that is impossible."""
        levels, *ends = self.impossible(rows).split([len(self.levels), *[self.numbers] * 3], -1)
        return torch.cat([levels, ends[0] | ends[1] | ends[2]], -1)


def row_layout(
    levels: Sequence[int], numbers: int, statuses: Sequence[int] | None = None
) -> RowLayout:
    """Return the layout of parts; without statuses, all numbers are always there.

    Example:
        >>> row_layout([3, 2], 2).width
        8
    """
    return RowLayout(tuple(levels), numbers, tuple(statuses or [-1] * numbers))
