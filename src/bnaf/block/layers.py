r"""Block-triangular layers, and the increasing autoregressive networks made of them.

The weights of all networks of a flow are stored and normalised together, the first dimension of
every parameter counting the networks: one pass over a stack of five costs little more than over
one.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._random import draws_wanted
from bnaf.block import engine
from bnaf.block.tensors import Packing
from bnaf.block.weights import StackWeights

BELOW_SHARE = 0.1  # of published weights below the diagonal, where a network starts at identity
STRAIGHT = 0.3  # slope of its first layer: its units are hardly bent where a normal law has mass
UNBENT = 1.1  # by what its last layer makes up for what each of the others bends


class BlockLinear:
    r"""A layer of all networks: linear maps that are block lower triangular.

    .. math:: W = e^{V} \odot M_d + V \odot M_o    \qquad \text{(De Cao et al., 2019, eq. 8)}

    Each row of :math:`W` is then divided by its norm and multiplied by a learned gain
    :math:`e^{s}`. Of :math:`V`, ``weight`` holds the entries that act and no others, row by row:
    those of a full matrix on and below the diagonal blocks. This is a view of the parameters of a
    :class:`BlockNetworks`: what is written into its tensors is written there.

    Args:
        networks: Where the parameters are.
        blocks: Columns and rows of its blocks.
        first_row: Where its rows begin among those of all layers.
        first_entry: Where its weights begin.
    """

    def __init__(
        self,
        networks: "BlockNetworks",
        blocks: tuple[int, int],
        first_row: int = 0,
        first_entry: int = 0,
    ) -> None:
        self.networks = networks
        self.features, self.transforms = networks.features, networks.transforms
        self.in_block, self.out_block = blocks
        self._rows = slice(first_row, first_row + self.features * self.out_block)
        pairs = self.features * (self.features + 1) // 2
        entries = pairs * self.in_block * self.out_block
        self._entries = slice(first_entry, first_entry + entries)

    @property
    def weight(self) -> Float[Tensor, "transforms entries"]:
        """Raw weights that act."""
        return self.networks.weight[:, self._entries]

    @property
    def log_gain(self) -> Float[Tensor, "transforms rows"]:
        """Log-gain of each row."""
        return self.networks.log_gain[:, self._rows]

    @property
    def bias(self) -> Float[Tensor, "transforms rows"] | None:
        """Bias of each row; ``None`` where a context predicts it."""
        return None if self.networks.bias is None else self.networks.bias[:, self._rows]

    def raw_weight(self) -> Float[Tensor, "transforms rows columns"]:
        """Return V of every map as full matrices, zero above the diagonal blocks."""
        rows, columns = self.features * self.out_block, self.features * self.in_block
        full = self.weight.new_zeros(self.transforms, rows * columns)
        return full.index_copy(1, self._positions(), self.weight).view(-1, rows, columns)

    @torch.no_grad()
    def load_raw_weight(self, transform: int, weight: Float[Tensor, "rows columns"]) -> None:
        """Set V of one map from a full matrix; what stands above the diagonal is ignored."""
        self.weight[transform] = weight.flatten()[self._positions()]

    def _positions(self) -> Tensor:
        packing = Packing.of(self.features, [self.in_block, self.out_block])
        return packing.positions.to(self.networks.weight.device)


class BlockNetworks(nn.Module):
    """Stack of increasing autoregressive networks of one shape.

    Each kind of parameter is one tensor for all layers of all networks, so that an optimiser has
    few of them to go through; ``layers`` shows them layer by layer.

    Args:
        features: Number of inputs and of outputs of each network.
        widths: Units per feature of each hidden layer.
        transforms: Number of networks.
        bias: Whether the layers have biases of their own (a context predicts them otherwise).
    """

    _positions: Tensor
    _below: Tensor
    _on: Tensor

    def __init__(
        self, features: int, widths: Sequence[int], *, transforms: int, bias: bool = True
    ) -> None:
        super().__init__()
        self.blocks = [1, *widths, 1]
        self.features, self.transforms = features, transforms
        packing = Packing.of(features, self.blocks)
        for name, part in packing._asdict().items():
            if isinstance(part, Tensor):  # kept beside the weights, wherever they are moved
                self.register_buffer(f"_{name}", part, persistent=False)
        self._size = packing.size
        rows = features * sum(self.blocks[1:])
        self.weight = nn.Parameter(torch.zeros(transforms, len(packing.positions)))
        self.log_gain = nn.Parameter(torch.zeros(transforms, rows))
        self.bias = nn.Parameter(torch.zeros(transforms, rows)) if bias else None

    @property
    def layers(self) -> list[BlockLinear]:
        """The layers, the first first."""
        layers: list[BlockLinear] = []
        first_row = first_entry = 0
        for blocks in pairwise(self.blocks):
            layers.append(BlockLinear(self, blocks, first_row, first_entry))
            first_row, first_entry = layers[-1]._rows.stop, layers[-1]._entries.stop
        return layers

    @property
    def packing(self) -> Packing:
        """Where the packed weights stand in full matrices."""
        return Packing(self._positions, self._below, self._on, self._size)

    def normalise(self) -> StackWeights:
        """Return the weights of every network, ready to multiply."""
        matrices, averages, log_slope = engine.normalise(
            self.blocks, self.weight, self.log_gain, self.packing
        )
        # a copy: a law is a snapshot of the weights
        bias = torch.zeros_like(self.log_gain) if self.bias is None else self.bias.clone()
        return StackWeights(matrices, bias, averages, log_slope)

    @torch.no_grad()
    def draw(self, init: str) -> None:
        """Draw fresh parameters, unless others are about to be loaded.

        Args:
            init: "published" as the authors' code (Xavier-uniform), "normal" as the appendix, or
                "identity": little of the features before, and slopes near one.
        """
        if not draws_wanted():
            return
        for layer in self.layers:
            for transform in range(self.transforms):
                layer.load_raw_weight(transform, draw_weight(layer, init))
            layer.log_gain.uniform_().clamp_(min=1e-6).log_()
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.features * layer.out_block)
                layer.bias.uniform_(-bound, bound)
        if init == "identity":
            self._straighten()

    def _straighten(self) -> None:
        """Give every layer the gain at which the whole network has a slope near one."""
        layers = self.layers
        for layer in layers:  # equal weights of norm one add up to the root of their number
            layer.log_gain.fill_(-0.5 * math.log(layer.in_block))
        layers[0].log_gain.add_(math.log(STRAIGHT))
        layers[-1].log_gain.add_(math.log(UNBENT ** (len(layers) - 1) / STRAIGHT))
        if self.bias is not None:
            self.bias.mul_(STRAIGHT)


def draw_weight(layer: BlockLinear, init: str) -> Float[Tensor, "rows columns"]:
    """Return raw weights of one map: of each block row, over the columns that it keeps.

    Those of an identity are small below the diagonal, and zero, of which the exponential acts, on
    it.
    """
    rows, columns = layer.out_block, layer.features * layer.in_block
    weight = torch.zeros(layer.features * rows, columns)
    for feature in range(layer.features):
        kept = weight[feature * rows : (feature + 1) * rows, : (feature + 1) * layer.in_block]
        nn.init.normal_(kept) if init == "normal" else nn.init.xavier_uniform_(kept)
        if init == "identity":
            kept *= BELOW_SHARE
            kept[:, feature * layer.in_block :] = 0
    return weight
