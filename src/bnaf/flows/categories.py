"""Networks of levels: the codes of levels, and a masked network with one softmax a part."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bnaf.flows.networks import rank_mask, unit_ranks

SMOOTHING = 0.5  # rows that every level is taken to have had before any were seen


class LevelCodes(nn.Module):
    """Learned numbers that stand for the levels of every part.

    Args:
        levels: Number of levels of each part.
        size: Numbers of a code.
    """

    offsets: Tensor

    def __init__(self, levels: Sequence[int], size: int) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.empty(sum(levels), size).normal_())
        starts = torch.tensor([0, *levels]).cumsum(0)[:-1]
        self.register_buffer("offsets", starts, persistent=False)

    def forward(self, levels: Float[Tensor, "*batch parts"]) -> Float[Tensor, "*batch parts size"]:
        """Return the code of each level of the first parts; zero where it is NaN: not known."""
        known = ~levels.isnan()
        places = torch.where(known, levels, 0.0).long() + self.offsets[: levels.shape[-1]]
        return F.embedding(places, self.codes) * known.unsqueeze(-1)


class MaskedLinear(nn.Linear):
    """Linear map of which a mask leaves some weights out.

    Args:
        below: Ranks of the inputs.
        above: Ranks of the outputs, which read inputs of ranks up to their own.
        bias: Whether it has a bias.
    """

    mask: Tensor
    weight: nn.Parameter

    def __init__(
        self, below: Int[Tensor, " inputs"], above: Int[Tensor, " outputs"], *, bias: bool = True
    ) -> None:
        super().__init__(len(below), len(above), bias=bias)
        self.register_buffer("mask", rank_mask(below, above), persistent=False)

    @property
    def masked_weights(self) -> int:
        """Number of weights that do not act."""
        return int((1 - self.mask).sum())

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        return F.linear(x, self.weight * self.mask, self.bias)


class CategoryNetwork(nn.Module):
    r"""Masked network from the codes of levels to the logits of every part (Germain et al., 2015).

    The logits of a part read the codes of the parts before it, and the context, both by a linear
    map and through hidden layers,

    .. math:: \log p(l_j \mid l_1 \dots l_{j-1}, c) = \operatorname{log\,softmax}
              \bigl( b_j + A_j (l_{<j}, c) + B_j h(l_{<j}, c) \bigr)_{l_j}

    where A and B start at zero: the untrained network is the independent model of its biases.

    Args:
        levels: Number of levels of each part, of which there is one at least.
        code: Numbers of the code of a level.
        context: Numbers of the code of a context; 0 for none.
        hidden_layers: Hidden layers.
        width: Units of each of them.
        dropout: Share of units that is left out of each step of training.
    """

    def __init__(
        self,
        levels: Sequence[int],
        code: int,
        context: int = 0,
        *,
        hidden_layers: int,
        width: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.levels = tuple(levels)
        # parts of as many levels stand side by side, so that their softmax is one
        self.order = sorted(range(len(levels)), key=self.levels.__getitem__)
        self.counts = sorted(set(levels))
        self.bias = nn.Parameter(torch.zeros(sum(levels)))
        self.hidden = nn.ModuleList()
        self.last: MaskedLinear | None = None
        self.dropout = nn.Dropout(dropout)
        parts, lowest = len(levels), 0 if context else 1
        if parts <= lowest:
            return  # there is nothing to read
        codes = torch.arange(1, parts).repeat_interleave(code)
        below = inputs = torch.cat([codes, torch.zeros(context, dtype=torch.long)])
        units = unit_ranks(width, lowest, parts)
        for _ in range(hidden_layers):
            self.hidden.append(MaskedLinear(below, units))
            below = units
        read = torch.cat([inputs, units]) if hidden_layers else inputs
        ranks = [part for part in self.order for _ in range(levels[part])]
        self.last = MaskedLinear(read, torch.tensor(ranks), bias=False)
        nn.init.zeros_(self.last.weight)

    @torch.no_grad()
    def start_at(self, levels: Float[Tensor, "rows parts"]) -> None:
        """Set the biases to the logarithms of smoothed frequencies, which are then the law."""
        frequencies = []
        for part in self.order:
            seen = levels[:, part]
            seen = seen[~seen.isnan()].long()
            counts = torch.bincount(seen, minlength=self.levels[part]) + SMOOTHING
            frequencies.append((counts / counts.sum()).log())
        self.bias.copy_(torch.cat(frequencies))
        if self.last is not None:
            nn.init.zeros_(self.last.weight)

    def log_shares(
        self, codes: Float[Tensor, "... inputs"] | None, levels: Float[Tensor, "*batch parts"]
    ) -> Float[Tensor, "*batch parts"]:
        """Return the log-probability of every level given those before; 0 where it is not known.

        Args:
            codes: Codes of the levels of all parts but the last, and of the context.
            levels: The levels; NaN where one is not known.
        """
        ordered, found = levels[..., self.order], []
        known, first = ~ordered.isnan(), 0
        index = torch.where(known, ordered, 0.0).long().unsqueeze(-1)
        for piece in self(codes, levels.shape[:-1]):
            last = first + piece.shape[-2]
            found.append(piece.gather(-1, index[..., first:last, :]).squeeze(-1))
            first = last
        shares = torch.where(known, torch.cat(found, -1), 0.0)
        return shares[..., [self.order.index(part) for part in range(len(self.order))]]

    def log_probs(
        self, codes: Float[Tensor, "... inputs"] | None, batch: Sequence[int], part: int
    ) -> Float[Tensor, "*batch levels"]:
        """Return the log-probabilities of the levels of one part, given those before it."""
        before = self.order[: self.order.index(part)]
        first = sum(self.levels[other] for other in before)
        places = slice(first, first + self.levels[part])
        logits = self.bias[places].expand(*batch, -1)
        if codes is not None and self.last is not None:
            weight = self.last.weight[places] * self.last.mask[places]
            logits = logits + F.linear(self._read(codes), weight)
        return logits.log_softmax(-1)

    def forward(
        self, codes: Float[Tensor, "... inputs"] | None, batch: Sequence[int]
    ) -> list[Float[Tensor, "*batch parts levels"]]:
        """Return log-probabilities, of all parts of as many levels at once, by :attr:`counts`.

        Args:
            codes: Codes of the levels of all parts but the last, and of the context.
            batch: Batch shape of the rows.
        """
        logits = self.bias.expand(*batch, -1)
        if codes is not None and self.last is not None:
            logits = logits + self.last(self._read(codes))
        sizes = [self.levels.count(count) * count for count in self.counts]
        pieces = logits.split(sizes, -1)
        return [
            piece.unflatten(-1, (-1, count)).log_softmax(-1)
            for piece, count in zip(pieces, self.counts, strict=True)
        ]

    def _read(self, codes: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch read"]:
        """Return what the last layer reads: the codes, and the units of the last hidden layer."""
        x = codes
        for index, layer in enumerate(self.hidden):
            y = self.dropout(F.silu(layer(x)))
            x = x + y if index else y
        return torch.cat([codes, x], -1) if self.hidden else codes
