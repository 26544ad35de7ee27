"""The kernels as functions of torch, with gradients.

Each hand-written gradient can be taken once. Where it is itself to be differentiated
(``create_graph=True``), the gradient is that of the plain torch function given beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnaf.block.kernels.build import available
from bnaf.block.tensors import batched, differentiable_gradient, traced

RESIDUALS = {None: 0, "normal": 1, "gated": 2}
ACTIVATIONS = {"Tanh": 0, "LeakyTanh": 1, "LeakyReLU": 2}


class Stack(NamedTuple):
    """What a stack of networks is made of, beside its weights."""

    blocks: Sequence[int]
    """Units per feature of every layer, inputs and outputs included."""
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
    features: int,
    weight: Tensor,
    log_gain: Tensor,
) -> tuple[Tensor, ...]:
    """Return matrices, averages and log-slopes of all networks.

    Args:
        plain: The same as a differentiable function of weight and log-gain.
        blocks: Units per feature of every layer, inputs and outputs included.
        features: Number of features.
        weight: Packed raw weights.
        log_gain: Log-gains.
    """
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
    plain: Callable[..., Sequence[Tensor]],
    stack: Stack,
    x: Tensor,
    gates: Tensor | None,
    weights: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    """Return the outputs of a stack of networks and its log-determinants.

    Args:
        plain: The same as a differentiable function of x, gates and weights.
        stack: Sizes, activation, residuals and orders.
        x: Rows.
        gates: Gates of gated residuals.
        weights: Matrices, biases, averages and log-slopes.
    """
    gates = x.new_empty(0) if gates is None else gates
    # here, not within the function: its own gradient must reach the rows that were given
    inputs = (x.contiguous(), gates, *weights)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Propagation.apply(plain, stack, *inputs)  # type: ignore[no-any-return, no-untyped-call]
    arguments = _arguments(stack, gates, weights)
    y, log_det, _ = torch.ops.bnaf.forward.default(inputs[0], *arguments, False)
    return y, log_det


class _Propagation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plain: Any, stack: Stack, *inputs: Tensor) -> Any:
        x, gates, *weights = inputs
        arguments = _arguments(stack, gates, weights)
        y, log_det, kept = torch.ops.bnaf.forward.default(x, *arguments, True)
        ctx.plain, ctx.stack = plain, stack
        ctx.save_for_backward(x, gates, *weights, *kept)
        return y, log_det

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor, grad_log_det: Tensor) -> Any:
        x, gates, *rest = ctx.saved_tensors
        weights, kept = rest[:4], rest[4:]
        needed = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled() or batched(grad_y, grad_log_det):
            inputs, grads = (x, gates, *weights), (grad_y, grad_log_det)
            return None, None, *differentiable_gradient(ctx.plain, inputs, needed, grads)
        arguments = _arguments(ctx.stack, gates, weights)
        found = torch.ops.bnaf.backward.default(
            kept, *arguments, grad_y.contiguous(), grad_log_det.contiguous()
        )
        of_x, *of_weights, of_gates = found
        grads = (of_x, of_gates[: len(gates)], *of_weights)
        return (
            None,
            None,
            *(grad if need else None for grad, need in zip(grads, needed, strict=True)),
        )


def invert(
    stack: Stack, y: Tensor, gates: Tensor | None, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return pre-images of rows, which rows have one, and which iterations ended."""
    gates = y.new_empty(0) if gates is None else gates
    arguments = _arguments(stack, gates, weights)
    return torch.ops.bnaf.inverse.default(y.contiguous(), *arguments)  # type: ignore[no-any-return]


def _arguments(stack: Stack, gates: Tensor, weights: Sequence[Tensor]) -> tuple[Any, ...]:
    """Return the arguments that all kernels of a stack take."""
    parts = [tensor.contiguous() for tensor in (*weights, gates, stack.orders)]
    residuals = [RESIDUALS[kind] for kind in stack.residuals]
    return parts, stack.blocks, residuals, ACTIVATIONS[stack.activation], stack.leak
