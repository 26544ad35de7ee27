"""The continuous flow."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.errors import InversionError
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.solved import SolvedTransform
from bnaf.laws.transforms import ComposeTransform, LogDet, Passage, Points, RowTransform

NEWTON_STEPS = 20
START_GATE = 2.0  # of layers, before the sigmoid
REACHES = 8.0, 4.0, 0.25  # what layers stretch by at most; the last for each step that is taken


class FFJORD(TransformFlow):
    r"""Continuous flow (Grathwohl et al., 2019).

    Rows move along a velocity that a network with two hidden layers says from where they are and
    when, and the log-density changes by its divergence:

    .. math::
        \frac{dx}{dt} = v(x, t, c), \qquad
        \frac{d \log |\det J|}{dt} = \operatorname{tr} \frac{\partial v}{\partial x}

    It departs from the paper in this. The trace is exact, where the paper draws an estimate: with
    two hidden layers it costs no more than one of them (:class:`Velocity`). The equations are
    solved in a fixed number of steps of Runge and Kutta's method of fourth order, not by a method
    that chooses its steps, so that a row's density depends on that row alone; and velocities are
    bounded in how fast they vary from place to place (:func:`limited`), so that these steps are
    enough. Else training would find velocities that the steps get wrong, and the density would
    not integrate to one. The inverse is that of these steps, not of the equation.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none. The first layer reads it.
        transforms: Number of velocities, one after another.
        steps: Steps that each of them takes; how fast it may vary grows with their number.
        width: Units of each hidden layer.
        direction: Which side is computed forwards: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> FFJORD(features=3, transforms=1)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.01

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 1,
        steps: int = 8,
        width: int = 64,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        width, self.steps = whole("width", width), whole("steps", steps)
        self.velocities = nn.ModuleList(
            VelocityNetwork(features, context_features, width, self.steps)
            for _ in range(whole("transforms", transforms))
        )

    @classmethod
    def sizes_for(
        cls,
        features: int,
        *,
        small: bool,
        many: bool = False,
        given: int = 0,
    ) -> dict[str, Any]:
        """Return the width that suits a table."""
        return {"width": 32 if small else max(64, min(4 * features, 256))}

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        batch = () if context is None else context.shape[:-1]
        return ComposeTransform(
            [
                ContinuousTransform(velocity(context, 2 * self.steps + 1), batch)
                for velocity in self.velocities
            ]
        )


class Velocity(NamedTuple):
    r"""Velocity at one time, a network with two hidden layers.

    .. math::
        v = W_3 h_2 + b_3, \qquad h_l = \tanh(W_l h_{l-1} + b_l), \qquad
        \operatorname{tr} \frac{\partial v}{\partial x}
        = h_2'^\top \bigl( W_2 \odot (W_1 W_3)^\top \bigr) \, h_1'

    Args:
        weights: :math:`W_1, W_2, W_3`.
        biases: :math:`b_1, b_2, b_3`; the first with the batch shape of a context.
        cycle: :math:`W_2 \odot (W_1 W_3)^\top`.
    """

    weights: tuple[Tensor, Tensor, Tensor]
    biases: tuple[Tensor, Tensor, Tensor]
    cycle: Float[Tensor, "width width"]

    def at(self, x: Points, *, trace: bool) -> tuple[Points, LogDet]:
        """Return the velocity of rows, and its divergence; zero where it is not asked for."""
        first, second, third = self.weights
        h_1 = (x @ first.t() + self.biases[0]).tanh()
        h_2 = torch.tanh(h_1 @ second.t() + self.biases[1])
        v = h_2 @ third.t() + self.biases[2]
        if not trace:
            return v, v.new_zeros(())
        divergence = ((1 - h_1.square()) @ self.cycle.t() * (1 - h_2.square())).sum(-1)
        return v, divergence


def limited(weight: Float[Tensor, "rows columns"], reach: float) -> Float[Tensor, "rows columns"]:
    r"""Return a matrix that stretches nothing by more than a factor.

    .. math:: \bar W = W \Bigl( 1 + \operatorname{tr} \, (W^\top W / r^2)^4 \Bigr)^{-1/8}

    The trace is the sum of the eighth powers of singular values over r, so that none of the
    result exceeds r, and what is well below stays as it is.

    Args:
        weight: Any matrix W.
        reach: The factor r.

    Example:
        >>> limited(torch.diag(torch.tensor([0.1, 9.0])), 2.0).diagonal()
        tensor([0.0222, 2.0000])
    """
    scaled = weight / reach
    square = scaled.mT @ scaled if scaled.shape[0] > scaled.shape[1] else scaled @ scaled.mT
    return weight * (1 + (square @ square).square().sum()) ** -0.125


class VelocityNetwork(nn.Module):
    r"""Network of a velocity, whose layers are scaled and shifted by the time.

    .. math:: W_l(t) = \sigma(g_l + k_l t) \odot \bar W_l, \qquad b_l(t) = b_l + d_l t

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        width: Units of each hidden layer.
        steps: Steps in which rows move along it.
    """

    def __init__(self, features: int, context_features: int, width: int, steps: int) -> None:
        super().__init__()
        first, second, third = REACHES
        self.reaches = first, second, third * steps
        sizes = [(width, features), (width, width), (features, width)]
        scales = [1 / math.sqrt(features), 1 / math.sqrt(width), 0.0]
        self.weights = nn.ParameterList(
            scale * torch.randn(size) for size, scale in zip(sizes, scales, strict=True)
        )
        self.biases = nn.ParameterList(torch.zeros(rows) for rows, _ in sizes)
        self.drifts = nn.ParameterList(torch.zeros(rows) for rows, _ in sizes)
        self.gates = nn.ParameterList(torch.full((rows,), START_GATE) for rows, _ in sizes)
        self.gate_drifts = nn.ParameterList(torch.zeros(rows) for rows, _ in sizes)
        self.from_context: nn.Linear | None = None
        if context_features:
            self.from_context = nn.Linear(context_features, width, bias=False)

    def forward(self, context: Tensor | None, times: int) -> list[Velocity]:
        """Return the velocities at evenly spaced times from 0 to 1."""
        t = torch.linspace(0, 1, times, dtype=self.gates[0].dtype, device=self.gates[0].device)
        t = t.unsqueeze(1)
        scales = [
            torch.sigmoid(gate + t * drift)
            for gate, drift in zip(self.gates, self.gate_drifts, strict=True)
        ]
        first, second, third = (
            scale.unsqueeze(-1) * limited(weight, reach)
            for scale, weight, reach in zip(scales, self.weights, self.reaches, strict=True)
        )
        cycle = second * (first @ third).mT
        biases = [
            (bias + t * drift).unbind()
            for bias, drift in zip(self.biases, self.drifts, strict=True)
        ]
        if self.from_context is not None and context is not None:
            from_context = self.from_context(context)
            biases[0] = [bias + from_context for bias in biases[0]]
        return [
            Velocity(weights, at_time, around)
            for weights, at_time, around in zip(
                zip(first, second, third, strict=True),
                zip(*biases, strict=True),
                cycle,
                strict=True,
            )
        ]


class ContinuousTransform(SolvedTransform):
    """Motion along a velocity from time 0 to 1, by Runge and Kutta's steps of fourth order.

    Args:
        velocities: At the beginning, in the middle and at the end of every step.
        context_batch: Batch shape of the contexts in them.
    """

    def __init__(self, velocities: list[Velocity], context_batch: Sequence[int] = ()) -> None:
        last = velocities[0].biases[2]
        super().__init__(len(last), last, context_batch)
        self.velocities = velocities

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        log_det = x.new_zeros(())
        size = 2 / (len(self.velocities) - 1)
        for index in range(0, len(self.velocities) - 1, 2):
            move, growth = _step(self.velocities[index : index + 3], x, size, trace=ladj)
            x, log_det = x + move, log_det + growth
        return Passage(x, log_det.expand(x.shape[:-1]))

    def _solve(self, y: Points) -> Points:
        """Return where rows came from: back along the velocity, then Newton's method."""
        tolerance = 1e-6 if y.dtype == torch.float32 else 1e-13
        spacing = 4 * torch.finfo(y.dtype).eps
        x = y
        size = -2 / (len(self.velocities) - 1)
        for index in range(len(self.velocities) - 1, 0, -2):
            back = self.velocities[index - 2 : index + 1][::-1]
            x = x + _step(back, x, size, trace=False)[0]
        for _ in range(NEWTON_STEPS):
            error = self._map(x, ladj=False).rows - y
            close = (error.abs() <= tolerance * y.abs().clamp(min=1)).all(-1)
            if close.all():
                return x
            step = torch.linalg.solve(self._jacobian(x), error.unsqueeze(-1)).squeeze(-1)
            x = torch.where(close.unsqueeze(-1), x, x - step)
            # where the map is steep, no x that can be written comes closer
            if (close | (step.abs() <= spacing * x.abs().clamp(min=1)).all(-1)).all():
                return x
        raise InversionError(
            f"Rows were not inverted within {NEWTON_STEPS} steps of Newton's method; take more "
            "steps along the velocity, or use float64."
        )


def _step(
    velocities: list[Velocity], x: Points, size: float, *, trace: bool
) -> tuple[Points, LogDet]:
    """Return how far rows move in one step, and the growth of their log-volume."""
    first, middle, last = velocities
    v_1, d_1 = first.at(x, trace=trace)
    v_2, d_2 = middle.at(x + size / 2 * v_1, trace=trace)
    v_3, d_3 = middle.at(x + size / 2 * v_2, trace=trace)
    v_4, d_4 = last.at(x + size * v_3, trace=trace)
    move = size / 6 * (v_1 + 2 * (v_2 + v_3) + v_4)
    return move, size / 6 * (d_1 + 2 * (d_2 + d_3) + d_4)
