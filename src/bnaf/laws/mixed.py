"""Laws of rows of every kind: levels, points, intervals and numbers that are not there."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.distributions import constraints

from bnaf._checks import whole
from bnaf.errors import FewDrawsWarning, TableError
from bnaf.laws.cells import Cells, Snap
from bnaf.laws.law import RowLaw
from bnaf.laws.packed import PackedRows, RowLayout

nan = torch.nan
PARTICLES = 1_000  # draws that are weighed for each given row
MORE_PARTICLES = 4  # draws of levels for each row, where they are weighed
FEW_DRAWS = 30  # effective ones below which a warning tells


@runtime_checkable
class NumberLaw(Protocol):
    """Law of the numbers of rows whose levels are known: a stack in one order on normal noise."""

    def log_shares(self, cells: Cells) -> Tensor:
        """Return log p(cell | the cells before it)."""

    def draw(self, z: Tensor, snap: Snap) -> Cells:
        """Return the cells that noise stands for, feature by feature."""


@runtime_checkable
class MixedPredictions(Protocol):
    """What a law of mixed rows is made of; a context, where there is one, is in it already."""

    def level_shares(self, levels: Tensor) -> Tensor:
        """Return the log-probability of every level given those before it."""

    def level_log_probs(self, levels: Tensor, part: int) -> Tensor:
        """Return the log-probabilities of the levels of a part, given those before it."""

    def number_law(self, levels: Tensor) -> NumberLaw:
        """Return the law of the numbers given the levels."""


class GivenDraws(NamedTuple):
    """Rows drawn given some of their parts.

    Args:
        rows: Packed rows.
        effective: Number of independent draws that stand behind those of each given row.
    """

    rows: Float[Tensor, "..."]
    effective: Float[Tensor, "..."]


class MixedLaw(RowLaw):
    r"""Law of rows of levels and numbers, packed as :class:`bnaf.laws.packed.RowLayout` says.

    .. math:: \log p(x) = \sum_j \log p(l_j \mid l_1 \dots l_{j-1})
              + \sum_i \log p(x_i \mid x_1 \dots x_{i-1}, l)

    where a share of the second sum is a density if the number is a point, a mass if it is an
    interval, and one if there is no number. Levels that do not exist, and numbers where a status
    says there is none, have probability zero; a level that is not known, which is NaN, has
    probability one, and later parts do not see it.

    Args:
        layout: What a row is made of.
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
        layout: RowLayout,
        predictions: MixedPredictions,
        like: Tensor,
        batch_shape: Sequence[int] = (),
        *,
        watched: Sequence[Tensor] = (),
    ) -> None:
        self.layout, self.predictions = layout, predictions
        super().__init__(layout.width, like, batch_shape, watched=watched)

    def log_prob(self, value: Tensor) -> Float[Tensor, "..."]:
        """Return the logarithm of density and mass of each row, in nats."""
        return self.log_shares(value).sum(-1)

    def log_shares(self, value: Tensor) -> Float[Tensor, "... parts"]:
        """Return log p(part | the parts before it) of each part: first the levels, then numbers.

        They add up to the log-probability of the row.
        """
        value = self._checked(value)
        levels, middle, below, above = self.layout.split(value)
        odd = self.layout.odd_parts(value)
        odd_levels, odd_numbers = odd.tensor_split([levels.shape[-1]], -1)
        levels, middle = levels.masked_fill(odd_levels, nan), middle.masked_fill(odd_numbers, nan)
        shares = []
        if self.layout.levels:
            shares.append(self.predictions.level_shares(levels))
        if self.layout.numbers:
            cells = Cells.of(middle, below, above)
            shares.append(self.predictions.number_law(levels).log_shares(cells))
        found = torch.cat(shares, -1).masked_fill(odd, -torch.inf)
        gone = found.isneginf().cumsum(-1) > 0  # what follows an impossible part is undefined
        return found.masked_fill(gone & found.isnan(), -torch.inf)

    def sample(
        self,
        sample_shape: Any = torch.Size(),  # noqa: B008
        *,
        given: Tensor | None = None,
        barred: Sequence[int] | None = None,
        snap: Snap | None = None,
        generator: Generator | None = None,
    ) -> Float[Tensor, "..."]:
        """Draw packed rows, without gradients: part by part, in order.

        Args:
            sample_shape: How many, in what shape; the batch shape of the law follows, with that
                of the given rows.
            given: Packed rows of which some parts are given, and NaN the others, which are drawn.
                With a warning where few draws stand behind them; :meth:`sample_given` says more.
            barred: Of each discrete part a level that is not to be drawn, or -1: rows are drawn
                given that they have none of these. Levels are weighed, as there.
            snap: From draws of a number to their cells; all are points by default. Later parts
                see the middle of a cell.
            generator: Where draws come from; torch's own by default.
        """
        if given is not None:
            draws = self.sample_given(given, sample_shape, snap=snap, generator=generator)
            least = min(draws.effective.min().item(), torch.Size(sample_shape).numel())
            if least < min(FEW_DRAWS, torch.Size(sample_shape).numel()):
                warnings.warn(
                    f"What is given was met by few draws: {least:.1f} effective ones of "
                    f"{torch.Size(sample_shape).numel()}, some rows many times; give columns that "
                    f"come first, or draw more rows: as many are weighed, {PARTICLES:,} at least.",
                    FewDrawsWarning,
                    stacklevel=2,
                )
            return draws.rows
        self._check_unchanged()
        batch = (*torch.Size(sample_shape), *self.batch_shape)
        with torch.no_grad():
            rows = self.like.new_full((*batch, self.features), nan)
            if barred is not None:
                rows = self._bar(rows, torch.Size(sample_shape), barred, generator)
            return self._draw(rows, snap, generator)

    def _bar(
        self,
        rows: Tensor,
        shape: torch.Size,
        barred: Sequence[int],
        generator: Generator | None,
    ) -> Tensor:
        """Fill the levels in of rows that are drawn given that some levels do not occur."""
        count, parts = shape.numel(), len(self.layout.levels)
        if not count or not parts:
            return rows
        drawn = max(PARTICLES, MORE_PARTICLES * count)
        levels = self.like.new_full((drawn, *self.batch_shape, parts), nan)
        log_weights = self.like.new_zeros(levels.shape[:-1])
        levels = self._draw_levels(levels, generator, barred, log_weights)
        weights = log_weights.reshape(drawn, -1).softmax(0)
        if weights.isnan().any():
            raise TableError(
                "Rows without empty cells have probability zero; draw rows with empty cells, or "
                "model fewer columns."
            )
        index = torch.multinomial(weights.t(), count, replacement=True, generator=generator)
        kept = levels.reshape(drawn, -1, parts)[
            index.t(), torch.arange(len(index), device=index.device)
        ]
        rows[..., :parts] = kept.reshape(*shape, *self.batch_shape, parts)
        return rows

    @torch.no_grad()
    def sample_given(
        self,
        given: Tensor,
        sample_shape: Any = torch.Size(),  # noqa: B008
        *,
        particles: int = PARTICLES,
        snap: Snap | None = None,
        generator: Generator | None = None,
    ) -> "GivenDraws":
        r"""Draw the free parts of packed rows given the others.

        Parts are drawn in order, but for those that are given. Where a free part comes before a
        given one, each draw is weighed by the shares of the given parts, and draws are drawn again
        by their weights w, which are worth :math:`(\sum w)^2 / \sum w^2` independent ones.

        Args:
            given: Packed rows, NaN where free. A number that is given is there, whatever its
                status; one that its status says is not there is not drawn.
            sample_shape: How many for each, in what shape.
            particles: Draws that are weighed for each, at least, where they have to be.
            snap: From draws of a number to their cells; all are points by default.
            generator: Where draws come from; torch's own by default.

        Raises:
            TableError: If what is given is impossible, or has probability zero.
        """
        shape = torch.Size(sample_shape)
        given = self.layout.complete(self._checked(given, "given"))
        if self.layout.odd_parts(given).any():
            raise TableError(
                "given must hold levels that exist, finite numbers and intervals that contain "
                "their middle, got others; NaN is what is free."
            )
        known = self.layout.known(given)
        levels = self.layout.split(given).levels
        count, late = shape.numel(), known & self.layout.after_free(known, levels)
        if not count:
            return GivenDraws(
                given.new_empty(*shape, *given.shape), given.new_zeros(given.shape[:-1])
            )
        if not late.any():
            rows = self._draw(given.expand(*shape, *given.shape), snap, generator)
            return GivenDraws(rows, self.like.new_full(given.shape[:-1], count))
        drawn = max(count, whole("particles", particles))
        rows = self._draw(given.expand(drawn, *given.shape), snap, generator)
        log_weights = torch.where(late, self.log_shares(rows), 0.0).sum(-1)
        weights = log_weights.reshape(drawn, -1).softmax(0)  # (drawn, given rows)
        if weights.isnan().any():
            raise TableError(
                "Some given rows have probability zero after all that was drawn before them; give "
                "other values, or draw more rows: as many are weighed."
            )
        index = torch.multinomial(weights.t(), count, replacement=True, generator=generator)
        rows = rows.reshape(drawn, -1, self.features)
        rows = rows[index.t(), torch.arange(len(index), device=index.device)]
        effective = 1 / weights.square().sum(0)
        return GivenDraws(rows.reshape(*shape, *given.shape), effective.reshape(given.shape[:-1]))

    def _draw(self, given: Tensor, snap: Snap | None, generator: Generator | None) -> Tensor:
        """Return packed rows whose free parts, which are NaN, were drawn in order."""
        levels, middle, below, above = self.layout.split(given)
        levels = self._draw_levels(levels.clone(), generator)
        if not self.layout.numbers:
            return levels
        z = torch.randn(
            middle.shape, generator=generator, dtype=middle.dtype, device=middle.device
        )
        return self._draw_numbers(levels, Cells.of(middle, below, above), z, snap).pack()

    def _draw_levels(
        self,
        levels: Tensor,
        generator: Generator | None,
        barred: Sequence[int] | None = None,
        log_weights: Tensor | None = None,
    ) -> Tensor:
        """Fill in levels that are NaN.

        Args:
            levels: The levels, in place.
            generator: Where draws come from.
            barred: Of each part a level that is not to be drawn, or -1.
            log_weights: What gains the log-probability of the other levels, in place.
        """
        for part in range(len(self.layout.levels)):
            free = levels[..., part].isnan()
            if not free.any():
                continue
            probabilities = self.predictions.level_log_probs(levels, part).exp()
            if barred is not None and log_weights is not None and barred[part] >= 0:
                probabilities[..., barred[part]] = 0.0
                log_weights += probabilities.sum(-1).log()
            rows = probabilities.reshape(-1, self.layout.levels[part])
            drawn = torch.multinomial(rows, 1, generator=generator).reshape(free.shape)
            levels[..., part] = torch.where(free, drawn.to(levels), levels[..., part])
        return levels

    def _draw_numbers(
        self, levels: Tensor, given: Cells, z: Tensor, snap: Snap | None
    ) -> PackedRows:
        """Return rows of levels with numbers: those that are given, and draws of the others."""
        absent = self.layout.absent(levels)

        def place(number: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            zeros = torch.zeros_like(x)
            found = (x, zeros, zeros) if snap is None else snap(number, x)
            middle, below, above = found or (torch.full_like(x, nan), zeros, zeros)
            middle = middle.masked_fill(absent[..., number], nan)
            kept = given.known[..., number]
            drawn = zip(given[:3], (middle, below, above), strict=True)
            middle, below, above = (torch.where(kept, a[..., number], b) for a, b in drawn)
            return middle, below, above

        cells = self.predictions.number_law(levels).draw(z, place)
        middle = cells.middle.masked_fill(~cells.known, nan)
        return PackedRows(levels, middle, cells.below, cells.above)

    def __repr__(self) -> str:
        return (
            f"MixedLaw(levels={list(self.layout.levels)}, numbers={self.layout.numbers}, "
            f"batch_shape={tuple(self.batch_shape)})"
        )
