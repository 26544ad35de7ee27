"""Laws of rows of every kind: levels, points, intervals and numbers that are not there."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.distributions import constraints

from bnaf.laws.cells import Cells
from bnaf.laws.law import RowLaw
from bnaf.laws.packed import PackedRows, Packing

nan = torch.nan
Snap = Callable[[int, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From draws of a number part, by its index, to the middle of their cells and how far they reach
below and above."""


class NumberLaw(Protocol):
    """Law of the numbers of rows whose levels are known: a stack in one order on normal noise."""

    def log_shares(self, cells: Cells) -> Tensor:
        """Return log p(cell | the cells before it)."""

    def draw(self, z: Tensor, snap: Any) -> Cells:
        """Return the cells that noise stands for, feature by feature."""


class MixedPredictions(Protocol):
    """What a law of mixed rows is made of; a context, where there is one, is in it already."""

    def level_shares(self, levels: Tensor) -> Tensor:
        """Return the log-probability of every level given those before it."""

    def level_log_probs(self, levels: Tensor, part: int) -> Tensor:
        """Return the log-probabilities of the levels of a part, given those before it."""

    def number_law(self, levels: Tensor) -> NumberLaw:
        """Return the law of the numbers given the levels."""


class MixedLaw(RowLaw):
    r"""Law of rows of levels and numbers, packed as :class:`bnaf.laws.packed.Packing` says.

    .. math:: \log p(x) = \sum_j \log p(l_j \mid l_1 \dots l_{j-1})
              + \sum_i \log p(x_i \mid x_1 \dots x_{i-1}, l)

    where a share of the second sum is a density if the number is a point, a mass if it is an
    interval, and one if there is no number. Levels that do not exist, and numbers where a status
    says there is none, have probability zero; a level that is not known, which is NaN, has
    probability one, and later parts do not see it.

    Args:
        packing: What a row is made of.
        predictions: The laws of levels and numbers.
        like: A tensor of the type and on the device of its rows.
        batch_shape: Shape of the contexts it was made for.
        watched: Weights that must not have changed when it is used.
    """

    support = constraints.real_vector
    has_rsample = False
    onto = True

    def __init__(
        self,
        packing: Packing,
        predictions: MixedPredictions,
        like: Tensor,
        batch_shape: Sequence[int] = (),
        *,
        watched: Sequence[Tensor] = (),
    ) -> None:
        self.packing, self.predictions = packing, predictions
        super().__init__(packing.width, like, batch_shape, watched=watched)

    def log_prob(self, value: Tensor) -> Float[Tensor, "..."]:
        """Return the logarithm of density and mass of each row, in nats."""
        return self.log_shares(value).sum(-1)

    def log_shares(self, value: Tensor) -> Float[Tensor, "... parts"]:
        """Return log p(part | the parts before it) of each part: first the levels, then numbers.

        They add up to the log-probability of the row.
        """
        value = self._checked(value)
        levels, middle, below, above = self.packing.split(value)
        odd = self.packing.odd_parts(value)
        odd_levels, odd_numbers = odd.tensor_split([levels.shape[-1]], -1)
        levels, middle = levels.masked_fill(odd_levels, nan), middle.masked_fill(odd_numbers, nan)
        shares = []
        if self.packing.levels:
            shares.append(self.predictions.level_shares(levels))
        if self.packing.numbers:
            cells = Cells.of(middle, below, above)
            shares.append(self.predictions.number_law(levels).log_shares(cells))
        return torch.cat(shares, -1).masked_fill(odd, -torch.inf)

    def sample(
        self,
        sample_shape: Any = torch.Size(),  # noqa: B008
        *,
        snap: Snap | None = None,
        generator: Generator | None = None,
    ) -> Float[Tensor, "..."]:
        """Draw packed rows, without gradients: part by part, in order.

        Args:
            sample_shape: How many, in what shape; the batch shape of the law follows.
            snap: From draws of a number to their cells; all are points by default. Later parts
                see the middle of a cell.
            generator: Where draws come from; torch's own by default.
        """
        self._check_unchanged()
        with torch.no_grad():
            batch = (*torch.Size(sample_shape), *self.batch_shape)
            levels = self._draw_levels(batch, generator)
            return self._draw_numbers(levels, snap, generator).pack()

    def _draw_levels(self, batch: Sequence[int], generator: Generator | None) -> Tensor:
        levels = self.like.new_full((*batch, len(self.packing.levels)), nan)
        for part in range(len(self.packing.levels)):
            probabilities = self.predictions.level_log_probs(levels, part).exp()
            rows = probabilities.reshape(-1, self.packing.levels[part])
            drawn = torch.multinomial(rows, 1, generator=generator)
            levels[..., part] = drawn.reshape(levels.shape[:-1]).to(levels)
        return levels

    def _draw_numbers(
        self, levels: Tensor, snap: Snap | None, generator: Generator | None
    ) -> PackedRows:
        shape = (*levels.shape[:-1], self.packing.numbers)
        if not self.packing.numbers:
            return PackedRows(levels, *[levels.new_zeros(shape)] * 3)
        z = torch.randn(shape, generator=generator, dtype=levels.dtype, device=levels.device)
        absent = self.packing.absent(levels)

        def place(number: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            zeros = torch.zeros_like(x)
            middle, below, above = (x, zeros, zeros) if snap is None else snap(number, x)
            missing = absent[..., number].reshape(x.shape)
            return middle.masked_fill(missing, nan), below, above

        cells = self.predictions.number_law(levels).draw(z, place)
        middle = cells.middle.masked_fill(~cells.known, nan)
        return PackedRows(levels, middle, cells.below, cells.above)

    def __repr__(self) -> str:
        return (
            f"MixedLaw(levels={list(self.packing.levels)}, numbers={self.packing.numbers}, "
            f"batch_shape={tuple(self.batch_shape)})"
        )
