"""The pass through a network with its gradient written out by hand.

Torch's own gradient of :func:`~bnaf.propagation.propagate_by_autograd` keeps every intermediate
value. Here the forward pass keeps the inputs of
the activations and the slopes, works in place, and recomputes the rest.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.activations import Activation
from bnaf.layers import LayerWeights, NetworkWeights
from bnaf.ops import differentiable_gradient, differentiated_once
from bnaf.propagation import RESCALE_EVERY, Modulation, Outputs, propagate_by_autograd


def propagate(
    weights: NetworkWeights,
    activation: Activation,
    x: Float[Tensor, "features rows"],
    context: tuple[Modulation, ...] | None = None,
) -> Outputs:
    """Return the outputs of a network and their log-slopes."""
    # very deep networks rescale their slopes on the way, which is left to autograd
    shallow = len(weights.layers) < RESCALE_EVERY
    if context is None and shallow and differentiated_once(x, weights.log_slope):
        return propagate_by_hand(weights, activation, x)
    return propagate_by_autograd(weights, activation, x, context)


def propagate_by_hand(weights: NetworkWeights, activation: Activation, x: Tensor) -> Outputs:
    """Return outputs and log-slopes, with a gradient of our own."""
    flat = [weights.log_slope]
    for layer in weights.layers:
        flat += [layer.scale, layer.bias, layer.averages, *layer.squares, *layer.far]
    bands = [len(layer.squares) for layer in weights.layers]
    return _Propagation.apply(activation, bands, x, *flat)  # type: ignore[no-any-return, no-untyped-call]


def _regroup(bands: list[int], flat: tuple[Tensor, ...]) -> NetworkWeights:
    """Undo the flattening of :func:`propagate_by_hand`."""
    log_slope, *rest = flat
    layers = []
    for count in bands:
        scale, bias, averages, *matrices = rest[: 2 + 2 * count]
        layers.append(
            LayerWeights(tuple(matrices[:count]), tuple(matrices[count:]), scale, bias, averages)
        )
        rest = rest[2 + 2 * count :]
    return NetworkWeights(tuple(layers), log_slope)


class _Propagation(torch.autograd.Function):
    """The pass and its gradient.

    Under ``create_graph`` the gradient is that of the differentiable pass, so that second
    derivatives are torch's own.
    """

    @staticmethod
    def forward(
        ctx: Any, activation: Activation, bands: list[int], x: Tensor, *flat: Tensor
    ) -> Any:
        weights = _regroup(bands, flat)
        features = x.shape[0]
        log_slope, slope = weights.log_slope, None
        hidden, slopes = [], []
        h = x
        for index, layer in enumerate(weights.layers):
            if index:
                units = h.unflatten(0, (features, -1))
                hidden.append(units)
                y = activation.value(units)
                step, shift = activation.scaled_slope(units, y)
                if shift is not None:
                    log_slope = log_slope + shift.squeeze(1)
                slope = torch.bmm(layer.averages, step if slope is None else step.mul_(slope))
                slopes.append(slope)
                h = y.flatten(0, 1)
            h = _multiply(layer, h)
        ctx.activation, ctx.bands, ctx.depth = activation, bands, len(hidden)
        ctx.save_for_backward(x, *flat, *hidden, *slopes)
        if slope is None:
            return h, log_slope.expand_as(h).clone()
        smallest = torch.finfo(x.dtype).tiny
        return h, slope.squeeze(1).clamp(min=smallest).log_().add_(log_slope)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor, grad_log_slope: Tensor) -> Any:
        saved = ctx.saved_tensors
        count = len(saved) - 2 * ctx.depth
        if torch.is_grad_enabled():

            def forward(x: Tensor, *flat: Tensor) -> Outputs:
                return propagate_by_autograd(_regroup(ctx.bands, flat), ctx.activation, x)

            grads = (grad_y, grad_log_slope)
            needed = ctx.needs_input_grad[2:]
            return None, None, *differentiable_gradient(forward, saved[:count], needed, grads)
        x, *flat = saved[:count]
        hidden, slopes = saved[count : count + ctx.depth], saved[count + ctx.depth :]
        weights = _regroup(ctx.bands, tuple(flat))
        grad_x, weight_grads = _pull_back(
            weights, ctx.activation, x, hidden, slopes, grad_y, grad_log_slope
        )
        return None, None, grad_x, *weight_grads


def _pull_back(
    weights: NetworkWeights,
    activation: Activation,
    x: Tensor,
    hidden: tuple[Tensor, ...],
    slopes: tuple[Tensor, ...],
    grad_y: Tensor,
    grad_log_slope: Tensor,
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the gradients of the input and of every weight, layer by layer from the last."""
    grads: list[Tensor | None] = []
    grad_h = grad_y
    grad_slope = grad_log_slope
    if slopes:
        smallest = torch.finfo(x.dtype).tiny
        alive = slopes[-1] >= smallest
        grad_slope = grad_log_slope.unsqueeze(1) / slopes[-1].clamp(min=smallest) * alive
    for index in range(len(weights.layers) - 1, -1, -1):
        layer = weights.layers[index]
        if not index:
            grad_x, grad_matrices = _multiply_back(layer, x, grad_h)
            grads = [*grad_matrices[:2], None, *grad_matrices[2:], *grads]
            break
        h = hidden[index - 1]
        y = activation.value(h)
        step, _ = activation.scaled_slope(h, y)
        below = slopes[index - 2] if index > 1 else None
        slope = step if below is None else step * below
        grad_averages = torch.bmm(grad_slope, slope.transpose(1, 2))
        grad_scaled = torch.bmm(layer.averages.transpose(1, 2), grad_slope)
        grad_x, grad_matrices = _multiply_back(layer, y.flatten(0, 1), grad_h)
        grads = [*grad_matrices[:2], grad_averages, *grad_matrices[2:], *grads]
        grad_log_step = slope.mul_(grad_scaled) if below is not None else slope * grad_scaled
        grad_h = activation.pull_back(h, y, grad_x.view_as(h), grad_log_step).flatten(0, 1)
        if below is not None:
            grad_slope = step.mul_(grad_scaled)
    return grad_x, [grad_log_slope.sum(1, keepdim=True), *grads]


def _multiply(
    layer: LayerWeights, x: Float[Tensor, "in_units rows"]
) -> Float[Tensor, "units rows"]:
    """Multiply by a block-triangular weight and add the bias, in place."""
    if not layer.far:
        return torch.addmm(layer.bias, layer.squares[0], x)
    h = x.new_empty(layer.scale.shape[0], x.shape[1])
    for far, square, rows, start, end in layer.bands():
        out = h[rows]
        if far is None:
            torch.addmm(layer.bias[rows], square, x[start:end], out=out)
        else:
            torch.mm(far, x[:start], out=out)
            out.mul_(layer.scale[rows]).add_(layer.bias[rows]).addmm_(square, x[start:end])
    return h


def _multiply_back(
    layer: LayerWeights, x: Tensor, grad_h: Tensor
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the gradients of the input, and of scale, bias, squares and far weights."""
    grad_bias = grad_h.sum(1, keepdim=True)
    if not layer.far:
        square = layer.squares[0]
        return square.t() @ grad_h, [None, grad_bias, grad_h @ x.t()]
    grad_x = torch.empty_like(x)
    grad_scale = torch.zeros_like(layer.scale)
    squares, fars = [], []
    first = True
    for far, square, rows, start, end in reversed(layer.bands()):
        grad = grad_h[rows]
        part = grad_x[start:end]
        torch.mm(square.t(), grad, out=part) if first else part.addmm_(square.t(), grad)
        squares.append(grad @ x[start:end].t())
        if far is not None:
            scaled = grad * layer.scale[rows]
            before = grad_x[:start]
            torch.mm(far.t(), scaled, out=before) if first else before.addmm_(far.t(), scaled)
            grad_far = grad @ x[:start].t()
            grad_scale[rows] = torch.linalg.vecdot(grad_far, far).unsqueeze(1)
            fars.append(grad_far.mul_(layer.scale[rows]))
        first = False
    return grad_x, [grad_scale, grad_bias, *reversed(squares), *reversed(fars)]
