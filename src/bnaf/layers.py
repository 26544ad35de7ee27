r"""Block-triangular layers, and the increasing autoregressive networks made of them.

The weights of all networks of a flow are stored and normalised together, the first dimension of
most parameters counting the networks: one pass over a stack of five costs little more than over
one.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf.normalisation import normalise_band
from bnaf.ops import (
    band_edges,
    block_diagonal,
    diagonal_blocks,
    lower_mask,
)


class LayerWeights(NamedTuple):
    """Normalised weights of one layer of one network, ready to multiply."""

    squares: tuple[Float[Tensor, "_ _"], ...]
    """Per band, its weights on its own features, block lower triangular."""
    far: tuple[Float[Tensor, "_ _"], ...]
    """Per band after the first, the raw weights on all features before it."""
    scale: Float[Tensor, "rows 1"]
    """What the rows of ``far`` are multiplied by: gain over norm."""
    bias: Float[Tensor, "rows 1"]
    averages: Float[Tensor, "features out_block in_block"]
    """Diagonal blocks rescaled so that each row sums to one."""

    def bands(self) -> list["Band"]:
        """List the row bands, the first first."""
        bands = []
        top = start = 0
        for far, square in zip((None, *self.far), self.squares, strict=True):
            rows, columns = square.shape
            bands.append(Band(far, square, slice(top, top + rows), start, start + columns))
            top, start = top + rows, start + columns
        return bands


class Band(NamedTuple):
    """A row band of a layer, and where it stands."""

    far: Float[Tensor, "_ _"] | None
    square: Float[Tensor, "_ _"]
    rows: slice
    start: int
    """First column of the square; ``far`` has those before."""
    end: int


class NetworkWeights(NamedTuple):
    """Normalised weights of one network."""

    layers: tuple[LayerWeights, ...]
    log_slope: Float[Tensor, "features 1"]
    """Log-slope of every output were all activations the identity."""


class BlockLinear(nn.Module):
    r"""Linear maps whose weights are block lower triangular with positive diagonal blocks.

    .. math:: W = e^{V} \odot M_d + V \odot M_o    \qquad \text{(De Cao et al., 2019, eq. 8)}

    Each row of :math:`W` is then divided by its norm and multiplied by a learned gain
    :math:`e^{s}`. Of :math:`V`, ``log_diagonal`` holds the diagonal blocks. What lies below them
    is kept in row bands: ``near[g]`` is band g on its own features, ``far`` holds, band by band
    and network by network, the weights on the features before the band. What lies above is
    multiplied nowhere, and stored nowhere but beside the diagonal of ``near``.

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
        self.bands = band_edges(features, out_block)
        self.log_diagonal = nn.Parameter(torch.zeros(transforms, features, out_block, in_block))
        self.near, self.far = nn.ParameterList(), nn.ParameterList()
        for index, (start, end) in enumerate(self.bands):
            rows = (end - start) * out_block
            self.near.append(torch.zeros(transforms, rows, (end - start) * in_block))
            below = lower_mask(end - start, in_block, out_block).to(torch.get_default_dtype())
            self.register_buffer(f"below_{index}", below, persistent=False)
            for _ in range(transforms if start else 0):
                self.far.append(torch.zeros(rows, start * in_block))
        self.log_gain = nn.Parameter(torch.zeros(transforms, features * out_block))
        self.bias = nn.Parameter(torch.zeros(transforms, features * out_block)) if bias else None

    @property
    def parameter_count(self) -> int:
        """Number of entries that act, over all maps."""
        pairs = self.features * (self.features + 1) // 2
        weights = self.transforms * pairs * self.in_block * self.out_block
        return weights + self.log_gain.numel() + (0 if self.bias is None else self.bias.numel())

    def raw_weight(self, transform: int) -> Float[Tensor, "rows columns"]:
        """Return V of one map as a full matrix, zero above the diagonal blocks."""
        columns = self.features * self.in_block
        rows = []
        for band, near in enumerate(self.near):
            before = [self.far_weights(band)[transform]] if band else []
            row = torch.cat([*before, near[transform] * self._below(band)], 1)
            rows.append(nn.functional.pad(row, (0, columns - row.shape[1])))
        return torch.cat(rows) + block_diagonal(self.log_diagonal[transform])

    @torch.no_grad()
    def load_raw_weight(self, transform: int, weight: Float[Tensor, "rows columns"]) -> None:
        """Set V of one map from a full matrix; what stands above the diagonal is ignored."""
        self.log_diagonal[transform] = diagonal_blocks(weight, self.features)
        for band, (start, end) in enumerate(self.bands):
            rows = weight[start * self.out_block : end * self.out_block]
            own = rows[:, start * self.in_block : end * self.in_block]
            self.near[band][transform] = own * self._below(band)
            if band:
                self.far_weights(band)[transform].copy_(rows[:, : start * self.in_block])

    def far_weights(self, band: int) -> list[Tensor]:
        """Return, per network, the raw weights of a band on the features before it."""
        first = (band - 1) * self.transforms
        return [self.far[first + transform] for transform in range(self.transforms)]

    def normalise(
        self, log_incoming: Float[Tensor, "transforms features in_block"]
    ) -> tuple[list[LayerWeights], Float[Tensor, "transforms features out_block"]]:
        r"""Return the weights of every network, and the log-slopes they lead to.

        Args:
            log_incoming: Log-slope of each unit of the layer below, activations taken as
                identities: with them the diagonal blocks become averages, which neither grow nor
                vanish.
        """
        sizes = [end - start for start, end in self.bands]
        log_gain = self.log_gain.unflatten(1, (self.features, self.out_block))
        bands = [
            normalise_band(
                near, raw, self._far_squares(band, gain), gain, incoming, self._below(band)
            )
            for band, (near, raw, gain, incoming) in enumerate(
                zip(
                    self.near,
                    self.log_diagonal.split(sizes, 1),
                    log_gain.split(sizes, 1),
                    log_incoming.split(sizes, 1),
                    strict=True,
                )
            )
        ]
        bias = torch.zeros_like(self.log_gain) if self.bias is None else self.bias
        squares = [band.square.unbind() for band in bands]
        stacks = zip(
            _join([band.scale for band in bands]).unbind(),
            bias.unsqueeze(-1).unbind(),
            _join([band.averages for band in bands]).unbind(),
            strict=True,
        )
        layers = [
            LayerWeights(
                squares=tuple(square[index] for square in squares),
                far=tuple(self.far_weights(band)[index] for band in range(1, len(bands))),
                scale=scale,
                bias=one_bias,
                averages=averages,
            )
            for index, (scale, one_bias, averages) in enumerate(stacks)
        ]
        return layers, _join([band.log_slope for band in bands])

    def _far_squares(self, band: int, like: Tensor) -> Tensor:
        """Return the sum of squares of each row of a band on the features before it."""
        if not band:
            return torch.zeros_like(like)
        sums = [weight.square().sum(-1) for weight in self.far_weights(band)]
        return torch.stack(sums).view_as(like)

    def _below(self, band: int) -> Tensor:
        return getattr(self, f"below_{band}")  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return (
            f"features={self.features}, in_block={self.in_block}, out_block={self.out_block}, "
            f"transforms={self.transforms}"
        )


def _join(bands: list[Tensor]) -> Tensor:
    """Put the rows of all bands below one another."""
    return torch.cat(bands, 1) if len(bands) > 1 else bands[0]


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
        blocks = [1, *widths, 1]
        self.features, self.transforms = features, transforms
        self.layers = nn.ModuleList(
            BlockLinear(features, in_block, out_block, transforms=transforms, bias=bias)
            for in_block, out_block in pairwise(blocks)
        )

    def normalise(self) -> list[NetworkWeights]:
        """Return the weights of every network, ready to multiply."""
        stacks = []
        log_slope: Tensor | None = None
        for layer in self:
            if log_slope is None:
                log_slope = layer.log_gain.new_zeros(self.transforms, self.features, 1)
            weights, log_slope = layer.normalise(log_slope)
            stacks.append(weights)
        assert log_slope is not None
        return [
            NetworkWeights(layers, slope)
            for layers, slope in zip(zip(*stacks, strict=True), log_slope.unbind(), strict=True)
        ]

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
