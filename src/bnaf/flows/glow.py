"""Glow for vectors."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.flows.couplings import CouplingTransform
from bnaf.flows.networks import Network, NetworkFlow, draw_layers
from bnaf.flows.parts import mixing_transforms
from bnaf.laws.affine import ScaleTransform, bounded
from bnaf.laws.transforms import ComposeTransform, RowTransform


class Glow(NetworkFlow):
    r"""Glow (Kingma, Dhariwal, 2018) for rows without spatial structure.

    A stack of steps: scale and shift of every feature (actnorm), mixing of all features by a
    matrix :math:`W = P L U` whose permutation P stays as it was drawn, and an affine coupling,
    whose network reads the first half of the features and says how the others are scaled and
    shifted.

    It departs from the paper in this. Actnorm starts at the identity, because a law is a snapshot
    of parameters and calling a flow changes nothing; :meth:`bnaf.Flow.start_from` sets it from a
    batch, as the paper does. Log-scales of couplings are :math:`3 \tanh(\cdot / 3)`, where the
    authors' code has a sigmoid, so that a step can stretch as well as shrink and starts at the
    identity. The networks have tanh between layers in place of ReLU: a hundred steps then train
    without blowing up, and Hessians exist. A context, which the paper does not have, is read by
    the networks and adds a scale and shift of its own to every step, so that every feature feels
    it.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of steps.
        hidden_layers: Hidden layers of each coupling network.
        width: Units of each of them.
        direction: Which side is computed forwards: "density" (log_prob) or "sampling" (rsample).
            Both are closed-form.

    Example:
        >>> flow = Glow(features=3, transforms=4)
        >>> flow().log_prob(torch.zeros(7, 3)).shape
        torch.Size([7])
    """

    learning_rate = 0.005
    order_buffers = ("orders",)
    snapshots = True

    sizes = (("transforms", 4, 10),)

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 10,
        hidden_layers: int = 2,
        width: int = 64,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        transforms, width = whole("transforms", transforms), whole("width", width)
        hidden_layers = whole("hidden_layers", hidden_layers, least=0)
        self.log_scale = nn.Parameter(torch.zeros(transforms, features))
        self.shift = nn.Parameter(torch.zeros(transforms, features))
        self._draw_mixing(transforms)
        kept, changed = features // 2, features - features // 2
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        if kept + context_features:  # else there is nothing to read: one feature, no context
            sizes = [kept + context_features, *[width] * hidden_layers, 2 * changed]
            weights, biases = draw_layers(transforms, sizes)
            self.weights.extend(weights)
            self.biases.extend(biases)
        self.from_context: nn.Parameter | None = None
        if context_features:
            weight = torch.randn(transforms, 2 * features, context_features)
            self.from_context = nn.Parameter(weight * (0.1 / math.sqrt(context_features)))

    def _draw_mixing(self, transforms: int) -> None:
        """Draw random rotations and factor them."""
        rotations = torch.linalg.qr(torch.randn(transforms, self.features, self.features)).Q
        permutation, lower, upper = torch.linalg.lu(rotations)
        diagonal = upper.diagonal(dim1=-2, dim2=-1)
        rows, columns = torch.tril_indices(self.features, self.features, -1)
        self.below = nn.Parameter(lower[:, rows, columns].clone())
        self.above = nn.Parameter(upper[:, columns, rows].clone())
        self.log_diagonal = nn.Parameter(diagonal.abs().log())
        self.signs: Tensor
        self.orders: Tensor
        self.register_buffer("signs", diagonal.sign())
        self.register_buffer("orders", permutation.argmax(-1))

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        parts: list[RowTransform] = []
        for modulation, scale, others in self._steps(context):
            parts += [*modulation, scale, *others]
        return ComposeTransform(parts)

    def _steps(
        self, context: Tensor | None
    ) -> list[tuple[list[RowTransform], ScaleTransform, list[RowTransform]]]:
        """Return, for each step, what the context does, the actnorm and what follows it."""
        modulations: list[list[RowTransform]] = [[] for _ in self.orders]
        if context is not None and self.from_context is not None:
            predicted = torch.einsum("tfc,...c->t...f", self.from_context, context)
            predicted = predicted.to(context.dtype)  # under autocast it is of another
            modulations = [
                [ScaleTransform(bounded(raw), shift)]
                for raw, shift in (part.chunk(2, -1) for part in predicted)
            ]
        # copies: a law is a snapshot of the weights
        networks = [parameter.clone().unbind() for parameter in (*self.weights, *self.biases)]
        depth = len(self.weights)
        scales, shifts = self.log_scale.clone().unbind(), self.shift.clone().unbind()
        mixings = mixing_transforms(
            self.below, self.above, self.log_diagonal, self.signs, self.orders
        )
        steps = []
        for index, mixing in enumerate(mixings):
            others: list[RowTransform] = [mixing]
            if depth:
                layers = [parts[index] for parts in networks]
                kept = self.features // 2
                network = Network(layers[:depth], layers[depth:], context=context)
                others.append(CouplingTransform(network, kept=kept))
            steps.append(
                (modulations[index], ScaleTransform(scales[index], shifts[index]), others)
            )
        return steps

    @torch.no_grad()
    def _start_from(self, rows: Tensor, context: Tensor | None) -> None:
        """Set every actnorm so that these rows leave it with mean 0 and deviation 1."""
        for index, (modulation, _, others) in enumerate(self._steps(context)):
            for part in modulation:
                rows = part(rows)
            deviation, mean = torch.std_mean(rows, 0)
            self.log_scale[index] = -deviation.clamp(min=1e-6).log()
            self.shift[index] = -mean * self.log_scale[index].exp()
            for part in (ScaleTransform(self.log_scale[index], self.shift[index]), *others):
                rows = part(rows)
