r"""Block-triangular layers, and the increasing autoregressive networks made of them.

The weights of all networks of a flow are stored and normalised together, the first dimension of
every parameter counting the networks: one pass over a stack of five costs little more than over
one.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf.normalisation import normalise_stack
from bnaf.ops import packed_positions, unpack


class LayerWeights(NamedTuple):
    """Normalised weights of one layer of one network, ready to multiply."""

    matrix: Float[Tensor, "rows columns"]
    """Block lower triangular."""
    bias: Float[Tensor, "rows 1"]
    averages: Float[Tensor, "features out_block in_block"]
    """Diagonal blocks rescaled so that each row sums to one."""


class NetworkWeights(NamedTuple):
    """Normalised weights of one network."""

    layers: tuple[LayerWeights, ...]
    log_slope: Float[Tensor, "features 1"]
    """Log-slope of every output were all activations the identity."""


class StackWeights(NamedTuple):
    """Normalised weights of all networks of a flow, layer by layer."""

    matrices: tuple[Float[Tensor, "transforms _ _"], ...]
    biases: tuple[Float[Tensor, "transforms _"], ...]
    averages: tuple[Float[Tensor, "transforms features _ _"], ...]
    log_slope: Float[Tensor, "transforms features"]

    def flat(self) -> tuple[Tensor, ...]:
        """Return matrix, bias and averages of every layer, one after another."""
        layers = zip(self.matrices, self.biases, self.averages, strict=True)
        return tuple(tensor for layer in layers for tensor in layer)

    def network(self, index: int) -> "StackWeights":
        """Return a stack of one of the networks."""
        one = slice(index, index + 1)
        matrices, biases, averages = (
            tuple(tensor[one] for tensor in tensors)
            for tensors in (self.matrices, self.biases, self.averages)
        )
        return StackWeights(matrices, biases, averages, self.log_slope[one])

    def networks(self) -> list[NetworkWeights]:
        """Return the weights of each network."""
        layers = [
            [
                LayerWeights(matrix, bias.unsqueeze(1), averages)
                for matrix, bias, averages in zip(*(part.unbind() for part in parts), strict=True)
            ]
            for parts in zip(self.matrices, self.biases, self.averages, strict=True)
        ]
        slopes = self.log_slope.unsqueeze(-1).unbind()
        return [
            NetworkWeights(network, slope)
            for network, slope in zip(zip(*layers, strict=True), slopes, strict=True)
        ]


class BlockLinear(nn.Module):
    r"""Linear maps whose weights are block lower triangular with positive diagonal blocks.

    .. math:: W = e^{V} \odot M_d + V \odot M_o    \qquad \text{(De Cao et al., 2019, eq. 8)}

    Each row of :math:`W` is then divided by its norm and multiplied by a learned gain
    :math:`e^{s}`. Of :math:`V`, ``weight`` holds the entries that act and no others, row by row:
    those of a full matrix on and below the diagonal blocks.

    Args:
        features: Number of blocks along the diagonal.
        in_block: Columns of a block.
        out_block: Rows of a block.
        transforms: How many such maps are stored together.
        bias: Whether the layer has a bias of its own (a context predicts it otherwise).
    """

    def __init__(
        self,
        features: int,
        in_block: int,
        out_block: int,
        *,
        transforms: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.features, self.in_block, self.out_block = features, in_block, out_block
        self.transforms = transforms
        self.positions: Tensor
        self.register_buffer(
            "positions", packed_positions(features, in_block, out_block), persistent=False
        )
        self.weight = nn.Parameter(torch.zeros(transforms, len(self.positions)))
        self.log_gain = nn.Parameter(torch.zeros(transforms, features * out_block))
        self.bias = nn.Parameter(torch.zeros(transforms, features * out_block)) if bias else None

    def raw_weight(self) -> Float[Tensor, "transforms rows columns"]:
        """Return V of every map as full matrices, zero above the diagonal blocks."""
        rows, columns = self.features * self.out_block, self.features * self.in_block
        return unpack(self.weight, self.positions, rows, columns)

    @torch.no_grad()
    def load_raw_weight(self, transform: int, weight: Float[Tensor, "rows columns"]) -> None:
        """Set V of one map from a full matrix; what stands above the diagonal is ignored."""
        self.weight[transform] = weight.flatten()[self.positions]

    def extra_repr(self) -> str:
        return (
            f"features={self.features}, in_block={self.in_block}, out_block={self.out_block}, "
            f"transforms={self.transforms}"
        )


class BlockNetworks(nn.Module):
    """Stack of increasing autoregressive networks of one shape.

    Args:
        features: Number of inputs and of outputs of each network.
        widths: Units per feature of each hidden layer.
        transforms: Number of networks.
        bias: Whether the layers have biases of their own.
    """

    def __init__(
        self, features: int, widths: Sequence[int], *, transforms: int, bias: bool = True
    ) -> None:
        super().__init__()
        self.blocks = [1, *widths, 1]
        self.features, self.transforms = features, transforms
        self.layers = nn.ModuleList(
            BlockLinear(features, in_block, out_block, transforms=transforms, bias=bias)
            for in_block, out_block in pairwise(self.blocks)
        )

    def normalise(self) -> StackWeights:
        """Return the weights of every network, ready to multiply."""
        biases = tuple(
            torch.zeros_like(layer.log_gain) if layer.bias is None else layer.bias
            for layer in self
        )
        *parts, log_slope = normalise_stack(
            self.blocks,
            [layer.weight for layer in self],
            [layer.log_gain for layer in self],
            [layer.positions for layer in self],
        )
        return StackWeights(tuple(parts[0::2]), biases, tuple(parts[1::2]), log_slope)

    def __iter__(self) -> Iterator[BlockLinear]:
        """Iterate over the layers, the first first."""
        for layer in self.layers:
            assert isinstance(layer, BlockLinear)
            yield layer

    @torch.no_grad()
    def draw(self, init: str) -> None:
        """Draw fresh parameters.

        Args:
            init: "published" as the authors' code (Xavier-uniform), "normal" as the appendix.
        """
        for layer in self:
            for transform in range(self.transforms):
                layer.load_raw_weight(transform, draw_weight(layer, init))
            layer.log_gain.uniform_().clamp_(min=1e-6).log_()
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.features * layer.out_block)
                layer.bias.uniform_(-bound, bound)


def draw_weight(layer: BlockLinear, init: str) -> Float[Tensor, "rows columns"]:
    """Return raw weights of one map: of each block row, over the columns that it keeps."""
    rows, columns = layer.out_block, layer.features * layer.in_block
    weight = torch.zeros(layer.features * rows, columns)
    for feature in range(layer.features):
        kept = weight[feature * rows : (feature + 1) * rows, : (feature + 1) * layer.in_block]
        nn.init.normal_(kept) if init == "normal" else nn.init.xavier_uniform_(kept)
    return weight
