"""The flow of rows of every kind: levels first, then numbers given the levels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bnaf._checks import between, whole
from bnaf.block.context import beside_pieces, normal_edges, quantile_edges
from bnaf.block.stack import BlockStack
from bnaf.errors import SettingsError
from bnaf.flows.bnaf import BNAF
from bnaf.flows.categories import CategoryNetwork, LevelCodes
from bnaf.flows.flow import Flow, Pull
from bnaf.laws.mixed import MixedLaw
from bnaf.laws.packed import RowLayout, row_layout

CODE = 8  # numbers that stand for a level
UNITS_PER_PART = 4  # of the network of the levels, at least
MOST_CATEGORY_WEIGHTS = 20_000_000  # of each map of the network of the levels, where that can be
MOST_WIDTH = 10  # of the block networks: those of many intervals cost more
CONTEXT_BINS = 32
START_GATE = -2.5  # a tenth of each network, and nine of its input
CATEGORY_RATE = 0.1  # of the rate of the block networks, beside them
CATEGORY_RATE_ALONE = 0.04  # and without: nothing then ends a run before it has learned slowly
WEIGHT_PRECISION = 2.0  # of the prior of a weight, per input


class Mixed(Flow):
    r"""Flow of rows of categories, points, intervals and numbers that are not there.

    The discrete parts come first, by a masked network with one softmax a part, then the numbers
    by a :class:`bnaf.BNAF` with its features in one order, whose context are the codes of all
    levels,

    .. math:: \log p(x) = \log p(l_1 \dots l_D) + \log p(x_1 \dots x_N \mid l_1 \dots l_D)

    Its rows are packed, ``[levels | middle | below | above]``, as
    :class:`bnaf.laws.packed.RowLayout` says, and its contexts likewise, ``[levels | numbers]``.

    Args:
        levels: Number of levels of each discrete part.
        numbers: Number of numbers.
        context_levels: Number of levels of each discrete part of a context.
        context_numbers: Number of numbers of a context.
        statuses: For each number the discrete part that tells whether there is one, by its level
            0, or -1; by default all numbers are there.
        code: Numbers that stand for a level where others look at it.
        category_layers: Hidden layers of the network of the levels.
        category_width: Units of each of them.
        category_dropout: Share of them that each step of training leaves out.
        transforms: Stacked block networks of the numbers.
        hidden_layers: Hidden layers of each.
        width: Units per number of each of those.
        context_layers: Hidden layers between the codes and what they do to the numbers.
        context_width: Units of each of them.
        context_rank: Numbers that they are boiled down to.
        context_bins: Pieces that each number of a context is cut into; 0 for none.
        context_dropout: Share of their units that each step of training leaves out.

    Example:
        >>> flow = Mixed([3, 2], 1)
        >>> flow().log_prob(torch.tensor([[2.0, 1.0, 0.3, 0.0, 0.0]])).shape
        torch.Size([1])
    """

    learning_rate = BNAF.learning_rate
    takes_numbers, takes_kinds = False, True
    edges: Tensor | None

    def __init__(
        self,
        levels: Sequence[int],
        numbers: int,
        *,
        context_levels: Sequence[int] = (),
        context_numbers: int = 0,
        statuses: Sequence[int] | None = None,
        code: int = CODE,
        category_layers: int = 2,
        category_width: int = 128,
        category_dropout: float = 0.3,
        transforms: int = 2,
        hidden_layers: int = 1,
        width: int = 10,
        context_layers: int = 1,
        context_width: int = 64,
        context_rank: int = 16,
        context_bins: int = 0,
        context_dropout: float = 0.1,
    ) -> None:
        layout = _layout(levels, numbers, statuses)
        context_levels = [whole("context_levels", count) for count in context_levels]
        context_numbers = whole("context_numbers", context_numbers, least=0)
        super().__init__(layout.width, len(context_levels) + context_numbers)
        self.layout = layout
        code = whole("code", code)
        bins = whole("context_bins", context_bins, least=0) if context_numbers else 0
        given = code * len(context_levels) + context_numbers * (1 + bins)
        self.context_levels = len(context_levels)
        self.register_buffer("edges", normal_edges(context_numbers, bins) if bins else None)
        # the levels of the last part are read by the numbers alone
        read = layout.levels if numbers else layout.levels[:-1]
        self.codes = LevelCodes(read, code) if read else None
        self.context_codes = LevelCodes(context_levels, code) if context_levels else None
        self.categories: CategoryNetwork | None = None
        if levels:
            self.categories = CategoryNetwork(
                layout.levels,
                code,
                given,
                hidden_layers=whole("category_layers", category_layers, least=0),
                width=whole("category_width", category_width),
                dropout=between("category_dropout", category_dropout, 0, 1, closed=True),
            )
        self.numbers: BNAF | None = None
        if numbers:
            self.numbers = BNAF(
                numbers,
                code * len(read) + given,
                transforms=transforms,
                hidden_layers=hidden_layers,
                width=width,
                permutation=None,
                context_layers=context_layers,
                context_width=context_width,
                context_rank=context_rank,
                context_dropout=context_dropout,
            )
        else:  # all its weights are ordinary ones
            self.learning_rate = CATEGORY_RATE_ALONE * BNAF.learning_rate  # type: ignore[misc]

    @classmethod
    def sizes_for_parts(
        cls, levels: Sequence[int], numbers: int, *, small: bool, few: bool, given: int = 0
    ) -> dict[str, Any]:
        """Return the settings that suit a table of such parts.

        Small tables get small networks of which more is left out, those of levels where there are
        numbers, too; and tables of many parts wide ones, so that every part has units of its own.
        Of very many parts and levels, codes are shorter and networks narrower, so that their
        weights grow slower than the square.

        Args:
            levels: Number of levels of each discrete part.
            numbers: Number of numbers.
            small: Whether the table is small.
            few: Whether its rows are few for the networks of levels and contexts to memorise.
            given: Number of columns that are given.

        Example:
            >>> sizes = Mixed.sizes_for_parts([3, 2], 8, small=True, few=True)
            >>> sizes["transforms"], sizes["hidden_layers"], sizes["width"]
            (2, 1, 10)
        """
        sizes = BNAF.sizes_for(max(numbers, 1), small=small)
        narrow = small and numbers > 0
        parts, all_levels, least = max(len(levels), 1), sum(levels), 32 if narrow else 128
        code = min(CODE, max(1, MOST_CATEGORY_WEIGHTS // (parts * max(all_levels, 1))))
        widest = max(least, MOST_CATEGORY_WEIGHTS // (code * parts + all_levels))
        return {
            "code": code,
            "category_layers": 1 if narrow else 2,
            "category_width": min(widest, max(least, UNITS_PER_PART * len(levels))),
            "transforms": sizes["transforms"],
            "hidden_layers": sizes["hidden_layers"],
            "width": min(MOST_WIDTH, sizes["width"]),
            "context_layers": 1 if few and not given else 2,
            "context_width": 64 if few and not given else 128,
            "context_rank": 16 if few else 32,
            "context_bins": CONTEXT_BINS if given else 0,
            "category_dropout": 0.5 if few else 0.1,
            "context_dropout": 0.3 if small else 0.2 if few else 0.1,
        }

    def rates(self) -> dict[str, tuple[float, list[nn.Parameter]]]:
        """Return the share of the rate of codes and categories: their weights are ordinary."""
        if self.numbers is None:
            return {}
        return {"categories": (CATEGORY_RATE, list(self._ordinary()))}

    def _ordinary(self) -> list[nn.Parameter]:
        """Return the parameters of codes and categories."""
        modules = (self.codes, self.context_codes, self.categories)
        return [weight for part in modules if part is not None for weight in part.parameters()]

    def pulls(self) -> dict[nn.Parameter, Pull]:
        """Return the prior of the weights to the logits: at zero, parts are independent."""
        if self.categories is None or self.categories.last is None:
            return {}
        weight = self.categories.last.weight
        return {weight: Pull(torch.zeros_like(weight), WEIGHT_PRECISION * weight.shape[1])}

    def impossible(self, rows: Float[Tensor, "rows features"]) -> Bool[Tensor, "rows features"]:
        """Tell which values no row can have: levels that do not exist, among others."""
        return self.layout.impossible(rows)

    @torch.no_grad()
    def start_smoothly(self) -> None:
        """Start with numbers that are nearly independent and standard normal.

        Numbers come as normal scores of their own distributions where they can, so that this is
        the model of independent columns, and training can only gain.
        """
        if self.numbers is not None:
            self.numbers.start_smoothly()
            assert self.numbers.gates is not None
            self.numbers.gates.fill_(START_GATE)

    def _start_from(self, rows: Tensor, context: Tensor | None) -> None:
        """Start from the frequencies of levels, as if parts were independent."""
        if self.categories is not None:
            self.categories.start_at(self.layout.split(rows).levels)
        if context is not None:
            self.see_contexts(context)

    @torch.no_grad()
    def see_contexts(self, context: Tensor) -> None:
        """Cut the numbers of the context into pieces of as many rows each."""
        if self.edges is not None:
            numbers = context[:, self.context_levels :]
            self.edges.copy_(quantile_edges(numbers, self.edges.shape[1] - 1))

    def make_law(self, context: Float[Tensor, "*batch context_features"] | None) -> MixedLaw:
        batch = torch.Size() if context is None else context.shape[:-1]
        like = next(self.parameters()).detach()
        predictions = _Predictions(self, self._encode_context(context))
        return MixedLaw(self.layout, predictions, like, batch, watched=tuple(self.parameters()))

    def _encode_context(self, context: Tensor | None) -> Tensor | None:
        """Return the codes of the levels of a context, and its numbers with their pieces."""
        if context is None:
            return None
        levels, numbers = context.tensor_split([self.context_levels], -1)
        if self.edges is not None:
            numbers = beside_pieces(numbers, self.edges)
        if self.context_codes is None:
            return numbers
        return torch.cat([self.context_codes(levels).flatten(-2), numbers], -1)


@dataclass(frozen=True)
class _Predictions:
    """The networks of a flow as functions of levels, with the code of a context."""

    flow: Mixed
    context: Tensor | None

    def level_shares(self, levels: Tensor) -> Tensor:
        assert self.flow.categories is not None
        return self.flow.categories.log_shares(self._code(levels[..., :-1]), levels)

    def level_log_probs(self, levels: Tensor, part: int) -> Tensor:
        assert self.flow.categories is not None
        code = self._code(levels[..., :-1])
        return self.flow.categories.log_probs(code, levels.shape[:-1], part)

    def number_law(self, levels: Tensor) -> BlockStack:
        assert self.flow.numbers is not None
        return self.flow.numbers.make_transform(self._code(levels))

    def _code(self, levels: Tensor) -> Tensor | None:
        """Return codes of levels, beside that of the context."""
        if not levels.shape[-1]:
            return self.context
        assert self.flow.codes is not None
        code: Tensor = self.flow.codes(levels).flatten(-2)
        if self.context is None:
            return code
        return torch.cat([code, self.context.expand(*code.shape[:-1], -1)], -1)


def _layout(levels: Sequence[int], numbers: int, statuses: Sequence[int] | None) -> RowLayout:
    """Return the layout of parts, checked.

    Raises:
        SettingsError: If there is no part, or a status is no part.
    """
    counts = [whole("levels", count) for count in levels]
    numbers = whole("numbers", numbers, least=0)
    if not counts and not numbers:
        raise SettingsError("A row must have a part at least, got levels=[] and numbers=0.")
    if statuses is not None:
        statuses = [whole("statuses", part, least=-1) for part in statuses]
        if len(statuses) != numbers or any(part >= len(counts) for part in statuses):
            raise SettingsError(
                f"statuses must name one of {len(counts)} discrete parts, or -1, for each of "
                f"{numbers} numbers, got {statuses}."
            )
    return row_layout(counts, numbers, statuses)
