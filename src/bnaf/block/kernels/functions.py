"""The kernels as functions of torch, with gradients.

Each hand-written gradient can be taken once. Where it is itself to be differentiated
(``create_graph=True``), the gradient is that of the plain torch function given beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from bnaf._torch import batched, differentiable_gradient, dispatched, traced
from bnaf.block.kernels.build import available
from bnaf.block.weights import Networks, Numbers
from bnaf.laws.cells import Cells

_RESIDUALS = {None: 0, "normal": 1, "gated": 2}
_ACTIVATIONS = {"Tanh": 0, "LeakyTanh": 1, "LeakyReLU": 2}


_DTYPES = (torch.float32, torch.float64)
_KINDS = (Tensor, torch.nn.Parameter)  # not those that only pretend to hold numbers
_enabled: ContextVar[bool] = ContextVar("enabled", default=True)


@contextmanager
def disabled() -> Iterator[None]:
    """Leave the kernels unused for a while, in this thread: everything runs as plain torch."""
    token = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(token)


def serve(*tensors: Tensor) -> bool:
    """Tell whether the kernels can compute with these tensors, here and now."""
    return (
        not traced()
        and not dispatched()
        and _enabled.get()
        and all(
            type(tensor) in _KINDS and tensor.dtype in _DTYPES and tensor.device.type == "cpu"
            for tensor in tensors
        )
        and available()
    )


def normalise(
    plain: Callable[..., Sequence[Tensor]],
    blocks: Sequence[int],
    weight: Tensor,
    log_gain: Tensor,
) -> tuple[Tensor, ...]:
    """Return matrices, averages and log-slopes of all networks.

    Args:
        plain: The same as a differentiable function of weight and log-gain.
        blocks: Units per feature of every layer, inputs and outputs included.
        weight: Packed raw weights.
        log_gain: Log-gains.
    """
    features = log_gain.shape[1] // sum(blocks[1:])
    weight, log_gain = weight.contiguous(), log_gain.contiguous()
    return _Normalisation.apply(plain, blocks, features, weight, log_gain)  # type: ignore[no-any-return, no-untyped-call]


class _Normalisation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, plain: Any, blocks: list[int], features: int, weight: Tensor, log_gain: Tensor
    ) -> Any:
        results = torch.ops.bnaf.normalise.default(weight, log_gain, blocks, features)
        ctx.plain, ctx.blocks, ctx.features = plain, blocks, features
        ctx.save_for_backward(weight, log_gain, *results)
        return results[0], results[1], results[3]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        weight, log_gain, *results = ctx.saved_tensors
        if torch.is_grad_enabled() or batched(*grads):
            needed = ctx.needs_input_grad[3:]
            inputs = (weight, log_gain)
            return None, None, None, *differentiable_gradient(ctx.plain, inputs, needed, grads)
        arrived = [grad.contiguous() for grad in grads]
        found = torch.ops.bnaf.normalise_backward.default(
            weight, log_gain, ctx.blocks, ctx.features, results, arrived
        )
        return None, None, None, *found


def propagate(
    plain: Callable[[Networks, Tensor], Sequence[Tensor]], networks: Networks, x: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the outputs of a stack of networks and its log-determinants, with gradients.

    Args:
        plain: The same as a differentiable function.
        networks: What is computed; each row has a context of its own, if any.
        x: Rows.
    """
    # here, not within the function: its own gradient must reach the rows that were given
    return _Propagation.apply(plain, networks, x.contiguous(), *networks.numbers.leaves)  # type: ignore[no-any-return, no-untyped-call]


def score(networks: Networks, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs of a stack of networks and its log-determinants, without gradients."""
    y, log_det, _ = torch.ops.bnaf.forward.default(x.contiguous(), *_arguments(networks), False)
    return y, log_det


class _Propagation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, plain: Any, networks: Networks, x: Tensor, *leaves: Tensor | None
    ) -> Any:
        y, log_det, kept = torch.ops.bnaf.forward.default(x, *_arguments(networks), True)
        ctx.plain, ctx.networks, ctx.count = plain, networks, len(leaves)
        ctx.save_for_backward(x, *leaves, *kept)
        return y, log_det

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor, grad_log_det: Tensor) -> Any:
        x, *rest = ctx.saved_tensors
        leaves, kept = rest[: ctx.count], rest[ctx.count :]
        needed = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled() or batched(grad_y, grad_log_det):

            def plain(x: Tensor, *leaves: Tensor | None) -> Sequence[Tensor]:
                result: Sequence[Tensor] = ctx.plain(ctx.networks.replace(Numbers.of(leaves)), x)
                return result

            inputs, grads = (x, *leaves), (grad_y, grad_log_det)
            return None, None, *differentiable_gradient(plain, inputs, needed, grads)
        networks = ctx.networks.replace(Numbers.of(leaves))
        found = torch.ops.bnaf.backward.default(
            kept, *_arguments(networks), grad_y.contiguous(), grad_log_det.contiguous()
        )
        of_gates = found[5] if leaves[4] is None else found[5][: len(leaves[4])]
        found = [*found[:5], of_gates, *found[6:]]
        return (
            None,
            None,
            *(grad if need else None for grad, need in zip_longest(found, needed)),
        )


def log_shares(
    plain: Callable[[Networks, Cells], Tensor], networks: Networks, cells: Cells
) -> Tensor:
    """Return the log-share of every cell, with gradients.

    Args:
        plain: The same as a differentiable function.
        networks: What is computed, in one order; each row has a context of its own, if any.
        cells: Rows of cells.
    """
    cells = Cells(*(part.contiguous() for part in cells))
    return _Shares.apply(plain, networks, *cells, *networks.numbers.leaves)  # type: ignore[no-any-return, no-untyped-call]


def score_shares(networks: Networks, cells: Cells) -> Tensor:
    """Return the log-share of every cell, without gradients."""
    parts = (part.contiguous() for part in cells)
    shares, _ = torch.ops.bnaf.shares.default(*parts, *_arguments(networks), False)
    return shares  # type: ignore[no-any-return]


class _Shares(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        plain: Any,
        networks: Networks,
        middle: Tensor,
        below: Tensor,
        above: Tensor,
        known: Tensor,
        *leaves: Tensor | None,
    ) -> Any:
        cells = middle, below, above, known
        shares, kept = torch.ops.bnaf.shares.default(*cells, *_arguments(networks), True)
        ctx.plain, ctx.networks, ctx.count = plain, networks, len(leaves)
        ctx.save_for_backward(*cells, *leaves, *kept)
        return shares

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        *cells, known = ctx.saved_tensors[:4]
        rest = ctx.saved_tensors[4:]
        leaves, kept = rest[: ctx.count], rest[ctx.count :]
        needed = (*ctx.needs_input_grad[2:5], *ctx.needs_input_grad[6:])
        if torch.is_grad_enabled() or batched(grad):

            def plain(
                middle: Tensor, below: Tensor, above: Tensor, *leaves: Tensor | None
            ) -> Sequence[Tensor]:
                networks = ctx.networks.replace(Numbers.of(leaves))
                return [ctx.plain(networks, Cells(middle, below, above, known))]

            found = differentiable_gradient(plain, (*cells, *leaves), needed, [grad])
            return None, None, *found[:3], None, *found[3:]
        networks = ctx.networks.replace(Numbers.of(leaves))
        found = torch.ops.bnaf.shares_backward.default(
            kept, *_arguments(networks), grad.contiguous()
        )
        of_gates = found[7] if leaves[4] is None else found[7][: len(leaves[4])]
        found = [*found[:7], of_gates, *found[8:]]
        wanted = [grad if need else None for grad, need in zip_longest(found, needed)]
        return None, None, *wanted[:3], None, *wanted[3:]


def invert(networks: Networks, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return pre-images of rows, which rows have one, and which iterations ended."""
    return torch.ops.bnaf.inverse.default(y.contiguous(), *_arguments(networks))  # type: ignore[no-any-return]


def _arguments(networks: Networks) -> tuple[Any, ...]:
    """Return the arguments that all kernels of a stack take."""
    (weights, gates, contexts), like = networks.numbers, networks.like
    gates = like.new_empty(0) if gates is None else gates
    orders = _no_places(like) if networks.orders is None else networks.orders
    parts = [tensor.contiguous() for tensor in (*weights, gates, orders)]
    residuals = [_RESIDUALS[kind] for kind in networks.residuals]
    activation = networks.activation
    kind, leak = _ACTIVATIONS[type(activation).__name__], getattr(activation, "leak", 0.0)
    given: list[Tensor] = []
    if contexts is not None:
        given = [like.new_empty(0) if part is None else part.contiguous() for part in contexts]
        given.append(_no_places(like) if networks.lines is None else networks.lines)
    return parts, networks.blocks, residuals, kind, leak, given


def _no_places(like: Tensor) -> Tensor:
    return like.new_empty(0, dtype=torch.long)
