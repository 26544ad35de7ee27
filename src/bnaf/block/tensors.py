r"""Tensor functions without parameters.

Everything inside a network is laid out *units first*: a layer of ``features`` blocks of ``width``
units is a matrix of shape ``(features * width, rows)``. The units of the first ``i`` features are
then its first rows, and a row band of a block-triangular weight multiplies a contiguous slab.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

BAND_UNITS = 150  # output units per band: fewer multiply slowly, more touch zeros
LARGEST_EXPONENT = 80.0  # exp of it is finite in float32


def band_edges(features: int, out_block: int) -> list[tuple[int, int]]:
    """Cut the features into consecutive bands of about ``BAND_UNITS`` output units.

    Example:
        >>> band_edges(6, 40), band_edges(3, 2)
        ([(0, 3), (3, 6)], [(0, 3)])
    """
    count = max(1, min(features, round(features * out_block / BAND_UNITS)))
    edges = [round(index * features / count) for index in range(count + 1)]
    return list(pairwise(edges))


def packed_positions(features: int, in_block: int, out_block: int) -> Int[Tensor, " entries"]:
    """Return where the entries on and below the diagonal blocks stand in a full matrix.

    Example:
        >>> packed_positions(2, 1, 1)
        tensor([0, 2, 3])
    """
    columns = features * in_block
    slabs = [
        (torch.arange(out_block) + feature * out_block).unsqueeze(1) * columns
        + torch.arange((feature + 1) * in_block)
        for feature in range(features)
    ]
    return torch.cat([slab.flatten() for slab in slabs])


def unpack(
    packed: Float[Tensor, "stack entries"], positions: Int[Tensor, " entries"], size: int
) -> Float[Tensor, "stack size"]:
    """Return rows of the given size with these entries at the positions and zeros elsewhere."""
    return packed.new_zeros(len(packed), size).index_copy(1, positions, packed)


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
    return spread.diagonal_scatter(blocks.permute(0, 2, 3, 1), 0, 1, 3).view(weight.shape)


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


def traced() -> bool:
    """Tell whether the values of tensors are out of reach: under torch.compile or torch.func."""
    return torch.compiler.is_compiling() or transformed()


def batched(*grads: Tensor) -> bool:
    """Tell whether gradients come many at a time, as ``is_grads_batched`` and vmap send them."""
    kinds = torch._C._functorch
    return any(kinds.is_legacy_batchedtensor(g) or kinds.is_batchedtensor(g) for g in grads)


def transformed() -> bool:
    """Tell whether a transform of torch.func, or forward-mode autograd, is at work."""
    level = torch.autograd.forward_ad._current_level
    return torch._C._are_functorch_transforms_active() or level >= 0


def differentiable_gradient(
    function: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor],
    needed: Sequence[bool],
    grads: Sequence[Tensor],
) -> list[Tensor | None]:
    """Return the vector-Jacobian product of a function as torch computes it, graph included.

    This is what a gradient of our own falls back on where it is itself to be differentiated.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # aliases: inputs may depend on one another, and only the direct paths count here
        aliases = [
            tensor.view_as(tensor) if again else tensor.detach().requires_grad_(need)
            for tensor, need in zip(inputs, needed, strict=True)
        ]
        pairs = [
            (output, grad)
            for output, grad in zip(function(*aliases), grads, strict=True)
            if output.requires_grad
        ]
    wanted = [alias for alias, need in zip(aliases, needed, strict=True) if need]
    if not pairs or not wanted:
        return [None] * len(inputs)
    outputs, cotangents = zip(*pairs, strict=True)
    found = iter(
        torch.autograd.grad(outputs, wanted, cotangents, create_graph=again, allow_unused=True)
    )
    return [next(found) if need else None for need in needed]
