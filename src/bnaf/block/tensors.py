r"""Tensor functions without parameters.

Everything inside a network is laid out *units first*: a layer of ``features`` blocks of ``width``
units is a matrix of shape ``(features * width, rows)``. The units of the first ``i`` features are
then its first rows, and a row band of a block-triangular weight multiplies a contiguous slab.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

BAND_UNITS = 150  # output units per band: fewer multiply slowly, more touch zeros


def band_edges(features: int, out_block: int) -> list[tuple[int, int]]:
    """Cut the features into consecutive bands of about ``BAND_UNITS`` output units.

    Example:
        >>> band_edges(6, 40), band_edges(3, 2)
        ([(0, 3), (3, 6)], [(0, 3)])
    """
    count = max(1, min(features, round(features * out_block / BAND_UNITS)))
    edges = [round(index * features / count) for index in range(count + 1)]
    return list(pairwise(edges))


class Packing(NamedTuple):
    """Where packed weights stand: the entries on and below the diagonal blocks, row by row.

    Args:
        positions: Place of every entry in full matrices, one layer after another.
        below: Which entries are below the diagonal blocks.
        on: Which are on them.
        size: How many entries the full matrices have.
    """

    positions: Int[Tensor, " entries"]
    below: Int[Tensor, " below"]
    on: Int[Tensor, " on"]
    size: int

    @classmethod
    def of(cls, features: int, blocks: Sequence[int]) -> "Packing":
        """Return the packing of networks with so many units per feature in their layers.

        Example:
            >>> Packing.of(2, [1, 1]).positions, Packing.of(2, [1, 1]).below
            (tensor([0, 2, 3]), tensor([1]))
        """
        pairs = features * (features + 1) // 2
        places: dict[tuple[int, int], list[tuple[int, int]]] = {}
        size = entries = own = 0
        for in_block, out_block in pairwise(blocks):
            places.setdefault((in_block, out_block), []).append((size, entries))
            size += features**2 * in_block * out_block
            entries += pairs * in_block * out_block
            own += features * in_block * out_block
        if torch.get_default_device().type == "meta":  # planned only: nothing to be filled in
            below, on = (torch.empty(count, dtype=torch.long) for count in (entries - own, own))
            return cls(torch.empty(entries, dtype=torch.long), below, on, size)
        positions = torch.empty(entries, dtype=torch.long)
        on = torch.empty(entries, dtype=torch.bool)
        for layer, firsts in places.items():  # all layers of one shape at once
            within, diagonal = _pack_layer(features, *layer)
            first, first_entry = torch.tensor(firsts).t().unsqueeze(-1)
            where = (first_entry + torch.arange(len(within))).flatten()
            positions[where] = (first + within).flatten()
            on[where] = diagonal.repeat(len(firsts))
        return cls(positions, (~on).nonzero().flatten(), on.nonzero().flatten(), size)

    def spread(self, packed: Float[Tensor, "stack entries"]) -> Float[Tensor, "stack size"]:
        """Return full matrices, with zeros above the diagonal blocks."""
        return packed.new_zeros(len(packed), self.size).index_copy_(1, self.positions, packed)

    def unpack(
        self, packed: Float[Tensor, "stack entries"]
    ) -> tuple[Float[Tensor, "stack size"], Float[Tensor, "stack on"]]:
        """Return full matrices with zeros on and above the diagonal blocks, and those blocks."""
        lower = packed.new_zeros(len(packed), self.size)
        below = self.positions[self.below]
        lower = lower.index_copy(1, below, packed.index_select(1, self.below))
        return lower, packed.index_select(1, self.on)


def _pack_layer(
    features: int, in_block: int, out_block: int
) -> tuple[Int[Tensor, " entries"], Bool[Tensor, " entries"]]:
    """Return where the entries of one layer stand, and which are on the diagonal blocks."""
    rows = torch.arange(features).repeat_interleave(out_block).unsqueeze(1)
    columns = torch.arange(features).repeat_interleave(in_block)
    positions = (columns <= rows).flatten().nonzero().flatten()
    return positions, (columns == rows).flatten()[positions]


def diagonal_blocks(
    weight: Float[Tensor, "*stack rows columns"], features: int
) -> Float[Tensor, "*stack features out_block in_block"]:
    """Return the blocks on the diagonal of a block matrix.

    Example:
        >>> diagonal_blocks(torch.arange(8.0).view(4, 2), 2).squeeze(-1).tolist()
        [[0.0, 2.0], [5.0, 7.0]]
    """
    rows, columns = weight.shape[-2:]
    blocks = weight.unflatten(-1, (features, columns // features))
    blocks = blocks.unflatten(-3, (features, rows // features))
    diagonal: Tensor = blocks.diagonal(dim1=-4, dim2=-2)
    return diagonal.movedim(-1, -3)


def with_diagonal_blocks(
    weight: Float[Tensor, "stack rows columns"],
    blocks: Float[Tensor, "stack features out_block in_block"],
) -> Float[Tensor, "stack rows columns"]:
    """Return block matrices with other blocks on their diagonals."""
    stack, features, out_block, in_block = blocks.shape
    spread = weight.reshape(stack, features, out_block, features, in_block)
    on = torch.eye(features, dtype=torch.bool, device=weight.device).view(features, 1, features, 1)
    # diagonal_scatter is in place where ONNX takes it apart
    return torch.where(on, blocks.unsqueeze(3), spread).view(weight.shape)


def log_row_norm(
    log_blocks: Float[Tensor, "*stack features out_block in_block"],
    square_sum: Float[Tensor, "*stack features out_block"],
) -> Float[Tensor, "*stack features out_block"]:
    r"""Return the logarithm of the norm of each row, without overflow.

    .. math:: \log \|w\| = \tfrac12 \log ( \sum_{k \in d} e^{2 v_k} + \sum_{k \in o} v_k^2 )

    Args:
        log_blocks: Raw weights v on the diagonal blocks, where the weight is their exponential.
        square_sum: Sum of squares of the raw weights of the same row below the diagonal.
    """
    largest = log_blocks.detach().amax(-1)
    positive = square_sum > 0
    log_below = torch.where(positive, square_sum, 1.0).log()
    log_below = torch.where(positive, log_below, -torch.inf)
    shift = torch.maximum(2 * largest, log_below.detach())
    on_blocks = (2 * log_blocks - shift.unsqueeze(-1)).exp().sum(-1)
    below = torch.where(positive, (log_below - shift).exp(), 0.0)
    return 0.5 * (shift + (on_blocks + below).log())


def reorder(
    x: Float[Tensor, "features rows"], order: Int[Tensor, " features"]
) -> Float[Tensor, "features rows"]:
    """Return columns with their features in another order."""
    if torch.compiler.is_compiling():
        # as a product: compiled by torch 2.13, an indexed read together with gates gave wrong
        # gradients or corrupted memory; the cause inside the compiler is not known
        return F.one_hot(order, len(order)).to(x.dtype) @ x
    return x[order]
