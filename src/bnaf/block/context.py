"""From a context to what it does to every layer of every network."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf.block.weights import Contexts, Modulation
from bnaf.laws.affine import bounded


class Conditioner(nn.Module):
    r"""Network from the context to the amortised numbers of a flow.

    Per affine layer it predicts a bias and two positive vectors (De Cao et al., 2019, section
    "Amortizing flow parameters"),

    .. math:: y = r \odot \bar W (c \odot x) + b

    The paper does not say how r and c stay positive. Here :math:`\log r` and :math:`\log c` are
    bounded smoothly by :math:`\pm 3`, so that a context far from those seen in training cannot
    make the flow explode.

    Args:
        context_features: Number of columns of the context.
        features: Number of features of the flow.
        blocks: Units per feature of every layer, inputs and outputs included.
        transforms: Number of networks.
        hidden_layers: Hidden layers between context and prediction; 0 makes it one linear map.
        width: Units of each hidden layer.
    """

    def __init__(
        self,
        context_features: int,
        features: int,
        blocks: Sequence[int],
        *,
        transforms: int,
        hidden_layers: int,
        width: int,
    ) -> None:
        super().__init__()
        self.transforms = transforms
        self.sizes = []  # of bias, row scale and column scale, layer by layer
        for in_block, out_block in pairwise(blocks):
            self.sizes += [features * out_block, features * out_block, features * in_block]
        modules: list[nn.Module] = []
        inputs = context_features
        for _ in range(hidden_layers):
            modules += [nn.Linear(inputs, width), nn.SiLU()]
            inputs = width
        self.prediction_count = transforms * sum(self.sizes)
        self.hidden = nn.Sequential(*modules)
        self.prediction = nn.Linear(inputs, self.prediction_count)
        self.draw()

    @torch.no_grad()
    def draw(self) -> None:
        """Draw fresh parameters: predictions near, but not at, those of a flow without context."""
        for module in self.hidden:
            if isinstance(module, nn.Linear):
                module.reset_parameters()
        nn.init.normal_(self.prediction.weight, std=0.1 / math.sqrt(self.prediction.in_features))
        biases = self.prediction.bias.view(self.transforms, -1).split(self.sizes, 1)
        for index, bias in enumerate(biases):
            bound = 0.0 if index % 3 else 1 / math.sqrt(bias.shape[1])  # scales start at one
            bias.uniform_(-bound, bound)

    @torch.no_grad()
    def spread_biases(self) -> None:
        """Draw the biases predicted for a context of zero from a standard normal law."""
        for bias in self._biases():
            bias.normal_()

    def _biases(self) -> Sequence[Tensor]:
        """Return what is predicted, but for the context, for the bias of each layer."""
        pieces: Sequence[Tensor] = self.prediction.bias.view(self.transforms, -1).split(
            self.sizes, 1
        )
        return pieces[::3]

    def forward(self, context: Float[Tensor, "*batch context_features"]) -> Contexts:
        """Return, for each network, what the context does to its layers."""
        rows = self.prediction(self.hidden(context)).reshape(-1, self.prediction_count).t()
        modulations = []
        for part in rows.chunk(self.transforms):
            pieces = part.split(self.sizes)
            modulations.append(
                tuple(
                    Modulation(bias, bounded(row_scale).exp(), bounded(column_scale).exp())
                    for bias, row_scale, column_scale in zip(
                        pieces[0::3], pieces[1::3], pieces[2::3], strict=True
                    )
                )
            )
        return tuple(modulations)
