"""Where the arithmetic is done: by the compiled kernels where they serve, else by plain torch.

Both give the same numbers; nothing else in the library knows which of them did.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bnaf._torch import traced
from bnaf.block import intervals, inverse, kernels, normalisation, propagation
from bnaf.block.tensors import Packing
from bnaf.block.weights import Networks
from bnaf.laws.cells import Cells
from bnaf.laws.roots import check_ended

PLAIN_ELEMENTS = 2**21  # units times rows that plain torch inverts at once, to bound its memory


def normalise(
    blocks: Sequence[int],
    weight: Float[Tensor, "transforms entries"],
    log_gain: Float[Tensor, "transforms units"],
    packing: Packing,
) -> tuple[Tensor, ...]:
    """Return matrices, averages and log-slopes of all networks, layer after layer.

    Args:
        blocks: Units per feature of every layer, inputs and outputs included.
        weight: Raw weights of all layers, packed.
        log_gain: Log-gains of all layers.
        packing: Where the packed weights stand in full matrices.
    """

    def plain(weight: Tensor, log_gain: Tensor) -> tuple[Tensor, ...]:
        return normalisation.normalise(blocks, weight, log_gain, packing)

    if kernels.serve(weight, log_gain):
        return kernels.normalise(plain, blocks, weight, log_gain)
    return plain(weight, log_gain)


def propagate(
    networks: Networks, x: Float[Tensor, "rows features"]
) -> tuple[Float[Tensor, "rows features"], Float[Tensor, " rows"]]:
    """Return the outputs of networks and their log-determinants, with gradients."""
    if not _by_kernel(networks, x):
        return _propagate_plainly(networks, x)
    if is_watched(networks, x):
        return kernels.propagate(_propagate_plainly, networks.spread(), x)
    return kernels.score(networks, x)


def log_shares(networks: Networks, cells: Cells) -> Float[Tensor, "rows features"]:
    """Return the log-density or log-mass of every cell given those before it, with gradients.

    Args:
        networks: Networks in one order.
        cells: Rows of cells.
    """
    contexts = networks.numbers.contexts
    scaled = contexts is not None and contexts.row_scales is not None
    if scaled or not _by_kernel(networks, cells.middle):
        return intervals.log_shares(networks, cells)
    networks = networks.spread()
    if is_watched(networks, *cells[:3]):
        return kernels.log_shares(intervals.log_shares, networks, cells)
    return kernels.score_shares(networks, cells)


def is_watched(networks: Networks, *rows: Tensor) -> bool:
    """Tell whether a gradient may be asked of rows that pass through networks."""
    return torch.is_grad_enabled() and any(
        leaf is not None and leaf.requires_grad for leaf in (*rows, *networks.numbers.leaves)
    )


@torch.no_grad()
def invert(
    networks: Networks,
    y: Float[Tensor, "rows features"],
    *,
    ladj: bool = False,
    plain_elements: int = PLAIN_ELEMENTS,
) -> tuple[Float[Tensor, "rows features"], Float[Tensor, " rows"], Bool[Tensor, " rows"]]:
    """Return pre-images, their log |det dy/dx| where asked for, and which rows have one.

    Args:
        networks: The networks.
        y: Rows.
        ladj: Whether the log-determinants are wanted; zeros otherwise.
        plain_elements: Units times rows that plain torch takes at a time.

    Raises:
        InversionError: If the search for a pre-image did not end.
    """
    if _by_kernel(networks, y):
        x, inside, ended = kernels.invert(networks, y)
        check_ended(ended)
        return x, propagate(networks, x)[1] if ladj else x.new_zeros(len(x)), inside
    if traced():  # the number of rows is out of reach
        columns, inside = inverse.solve(networks, y.t())
        x = columns.t()
        return x, _propagate_plainly(networks, x)[1] if ladj else y.new_zeros(len(y)), inside
    size = max(1, plain_elements // networks.numbers.weights.biases.shape[1])
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for start in range(0, max(1, len(y)), size):
        part = networks.pick(slice(start, start + size))
        columns, inside = inverse.solve(part, y[start : start + size].t())
        x = columns.t()
        log_det = _propagate_plainly(part, x)[1] if ladj else x.new_zeros(len(x))
        found.append((x, log_det, inside))
    x, log_det, inside = (torch.cat(parts) for parts in zip(*found, strict=True))
    return x, log_det, inside


def _by_kernel(networks: Networks, rows: Tensor) -> bool:
    """Tell whether the kernels can do it: they do not rescale slopes."""
    deep = len(networks.blocks) > propagation.RESCALE_EVERY
    if deep or not rows.numel():
        return False
    contexts = networks.numbers.contexts
    return kernels.serve(rows, networks.like, *(() if contexts is None else contexts[:1]))


def _propagate_plainly(networks: Networks, x: Tensor) -> tuple[Tensor, Tensor]:
    y, log_det = propagation.propagate(networks, x.t())
    return y.t(), log_det.expand(x.shape[0])  # not len: exports leave it open
