"""The kernels as functions of torch, with gradients.

Each hand-written gradient can be taken once. Where it is itself to be differentiated
(``create_graph=True``), the gradient is that of the plain torch function given beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnaf.native.build import available
from bnaf.ops import differentiable_gradient, traced

RESIDUALS = {None: 0, "normal": 1, "gated": 2}
ACTIVATIONS = {"Tanh": 0, "LeakyTanh": 1, "LeakyReLU": 2}


class Stack(NamedTuple):
    """What a stack of networks is made of, beside its weights."""

    activation: str
    leak: float
    residuals: tuple[str | None, ...]
    orders: Tensor
    """Order of the features before each network but the first; may be empty."""


_DTYPES = (torch.float32, torch.float64)
_enabled = True


@contextmanager
def disabled() -> Iterator[None]:
    """Leave the kernels unused for a while: everything runs as plain torch."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def serves(*tensors: Tensor) -> bool:
    """Tell whether the kernels can compute with these tensors, here and now."""
    return (
        _enabled
        and all(tensor.dtype in _DTYPES and tensor.device.type == "cpu" for tensor in tensors)
        and not traced()
        and available()
    )


def normalise(
    plain: Callable[..., Sequence[Tensor]],
    blocks: Sequence[int],
    weights: Sequence[Tensor],
    log_gains: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Return matrix and averages of every layer, then the log-slopes of the outputs.

    Args:
        plain: The same as a differentiable function of weights and log-gains.
        blocks: Units per feature of every layer, inputs and outputs included.
        weights: Packed raw weights of every layer.
        log_gains: Log-gains of every layer.
    """
    return _Normalisation.apply(plain, list(blocks), *weights, *log_gains)  # type: ignore[no-any-return, no-untyped-call]


class _Normalisation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plain: Any, blocks: list[int], *inputs: Tensor) -> Any:
        depth = len(inputs) // 2
        inputs = tuple(tensor.contiguous() for tensor in inputs)
        results = torch.ops.bnaf.normalise.default(inputs[:depth], inputs[depth:], blocks)
        ctx.plain, ctx.depth = plain, depth
        ctx.save_for_backward(*inputs, *results)
        ctx.set_materialize_grads(False)
        matrices, averages = results[0:-1:3], results[1:-1:3]
        pairs = zip(matrices, averages, strict=True)
        return *(tensor for pair in pairs for tensor in pair), results[-1].squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        saved, depth = ctx.saved_tensors, ctx.depth
        inputs, results = saved[: 2 * depth], saved[2 * depth :]
        if torch.is_grad_enabled():
            shaped = [*(part for i in range(depth) for part in results[3 * i : 3 * i + 2])]
            shaped.append(results[-1].squeeze(-1))
            filled = [
                torch.zeros_like(like) if grad is None else grad
                for grad, like in zip(grads, shaped, strict=True)
            ]
            needed = ctx.needs_input_grad[2:]
            return None, None, *differentiable_gradient(ctx.plain, inputs, needed, filled)
        arrived = []
        for layer in range(depth):
            matrix, averages = grads[2 * layer : 2 * layer + 2]
            arrived.append(_dense(matrix, results[3 * layer]))
            arrived.append(results[-1].new_empty(0) if averages is None else averages.contiguous())
        arrived.append(_dense(grads[-1], results[-1].squeeze(-1)))
        found = torch.ops.bnaf.normalise_backward.default(
            inputs[:depth], inputs[depth:], list(results), arrived
        )
        return None, None, *found[0::2], *found[1::2]


def propagate(
    plain: Callable[..., Sequence[Tensor]],
    stack: Stack,
    x: Tensor,
    log_slope: Tensor,
    gates: Tensor | None,
    weights: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    """Return the outputs of a stack of networks and its log-determinants.

    Args:
        plain: The same as a differentiable function of x, log-slopes, gates and weights.
        stack: Activation, residuals and orders.
        x: Rows.
        log_slope: Log-slopes of the outputs were all activations the identity.
        gates: Gates of gated residuals.
        weights: Matrix, bias and averages of every layer.
    """
    gates = x.new_empty(0) if gates is None else gates
    if torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (x, log_slope, gates, *weights)
    ):
        return _Propagation.apply(plain, stack, x, log_slope, gates, *weights)  # type: ignore[no-any-return, no-untyped-call]
    y, log_det, _ = torch.ops.bnaf.forward.default(
        x.contiguous(), *_arguments(stack, log_slope, gates, weights), False
    )
    return y, log_det


class _Propagation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plain: Any, stack: Stack, *inputs: Tensor) -> Any:
        x, log_slope, gates, *weights = (tensor.contiguous() for tensor in inputs)
        arguments = _arguments(stack, log_slope, gates, weights)
        y, log_det, kept = torch.ops.bnaf.forward.default(x, *arguments, True)
        ctx.plain, ctx.stack, ctx.count = plain, stack, len(inputs)
        ctx.save_for_backward(x, log_slope, gates, *weights, *kept)
        return y, log_det

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor, grad_log_det: Tensor) -> Any:
        inputs, kept = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        needed = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            grads = (grad_y, grad_log_det)
            return None, None, *differentiable_gradient(ctx.plain, inputs, needed, grads)
        _, log_slope, gates, *weights = inputs
        arguments = _arguments(ctx.stack, log_slope, gates, weights)
        found = torch.ops.bnaf.backward.default(
            list(kept), *arguments, grad_y.contiguous(), grad_log_det.contiguous()
        )
        found[2] = found[2][: len(gates)]
        found[5] = None  # the averages of the first layer are ones
        return (
            None,
            None,
            *(grad if need else None for grad, need in zip(found, needed, strict=True)),
        )


def invert(
    stack: Stack,
    y: Tensor,
    log_slope: Tensor,
    gates: Tensor | None,
    weights: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return pre-images of rows, which rows have one, and which iterations ended."""
    gates = y.new_empty(0) if gates is None else gates
    arguments = _arguments(stack, log_slope, gates, weights)
    return torch.ops.bnaf.inverse.default(y.contiguous(), *arguments)  # type: ignore[no-any-return]


def _arguments(
    stack: Stack, log_slope: Tensor, gates: Tensor, weights: Sequence[Tensor]
) -> tuple[Any, ...]:
    """Return the arguments that all kernels of a stack take."""
    matrices, biases, averages = weights[0::3], weights[1::3], weights[2::3]
    residuals = [RESIDUALS[kind] for kind in stack.residuals]
    activation = ACTIVATIONS[stack.activation]
    return (
        matrices, biases, averages, log_slope, gates, stack.orders, residuals, activation,
        stack.leak,
    )  # fmt: skip


def _dense(grad: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if grad is None else grad.contiguous()
