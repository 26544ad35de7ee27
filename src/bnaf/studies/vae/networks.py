"""The paper's encoder and decoder of images: gated convolutions (van den Berg et al., 2018).

A gated layer has one convolution for values and gates together. Images are kept channels-last,
which is what oneDNN and our kernels compute with fastest, and a layer that sees or makes a single
pixel is one matrix product. What is computed is what the published layers compute, and weights
start from the same laws.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Distribution

from bnaf.studies.vae.convolutions import KERNEL, PADDING, Conv5, Images, TransposedConv5, convolve
from bnaf.studies.vae.gates import gate
from bnaf.vae.pixels import LevelLaw, bit_law

LATENTS, ENCODED = 64, 256
SHRINK = 4  # two strides of two
DEEP = 64  # channels of the smallest images


class ImageKind(NamedTuple):
    """Shape of images, and what their pixels are.

    Args:
        height: Pixels of a column.
        width: Pixels of a line.
        levels: Number of values of a pixel: 2 for bits.
    """

    height: int
    width: int
    levels: int = 2

    @property
    def pixels(self) -> int:
        """Number of pixels."""
        return self.height * self.width

    @property
    def core(self) -> tuple[int, int]:
        """Shape of what two strides leave of an image."""
        return self.height // SHRINK, self.width // SHRINK


class GatedConv(nn.Module):
    r"""Convolution with a gate for every value: :math:`a(x) \odot \sigma(b(x))`.

    Args:
        inputs: Channels it sees.
        outputs: Channels it makes.
        stride: What it shrinks images by.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv = Conv5(inputs, 2 * outputs, stride)

    def forward(self, x: Images) -> Images:
        return gate(self.conv(x))


class GatedTransposedConv(nn.Module):
    """Transposed convolution with gates; with a stride of 1 it is a convolution, and faster.

    Args:
        inputs: Channels it sees.
        outputs: Channels it makes.
        stride: What it grows images by.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv = (
            Conv5(inputs, 2 * outputs)
            if stride == 1
            else TransposedConv5(inputs, 2 * outputs, stride)
        )
        start_uniformly(self.conv, outputs * KERNEL**2)

    def forward(self, x: Images) -> Images:
        return gate(self.conv(x))


class GatedLinear(nn.Module):
    """Linear map with gates; it stands for a convolution over all of an image.

    Args:
        inputs: Numbers it sees.
        outputs: Numbers it makes.
        fan: Number of inputs that its weights start for; all of them by default.
    """

    def __init__(self, inputs: int, outputs: int, *, fan: int | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 2 * outputs)
        start_uniformly(self.linear, fan or inputs)

    def forward(self, x: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        return F.glu(self.linear(x), 1)


class Encoder(nn.Module):
    """Network from images, a row of pixels each, to 256 features.

    Args:
        kind: What the images are.
    """

    def __init__(self, kind: ImageKind) -> None:
        super().__init__()
        self.kind = kind
        self.convolutions = nn.Sequential(
            GatedConv(1, 32),
            GatedConv(32, 32, stride=2),
            GatedConv(32, DEEP),
            GatedConv(DEEP, DEEP, stride=2),
            GatedConv(DEEP, DEEP),
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.last = GatedLinear(DEEP * math.prod(kind.core), ENCODED)

    def forward(self, rows: Float[Tensor, "rows pixels"]) -> Float[Tensor, "rows encoded"]:
        x = (rows / (self.kind.levels - 1)).view(-1, 1, self.kind.height, self.kind.width)
        x = self.convolutions(x.contiguous(memory_format=torch.channels_last))
        encoded: Tensor = self.last(x.permute(0, 2, 3, 1).flatten(1))
        return encoded


class Decoder(nn.Module):
    """Network from latents to a law of images.

    Args:
        kind: What the images are.
        latents: Number of latents.
    """

    def __init__(self, kind: ImageKind, latents: int = LATENTS) -> None:
        super().__init__()
        self.kind = kind
        area = math.prod(kind.core)
        self.first = GatedLinear(latents, DEEP * area, fan=DEEP * area)
        self.convolutions = nn.Sequential(
            GatedTransposedConv(DEEP, DEEP),
            GatedTransposedConv(DEEP, 32, stride=2),
            GatedTransposedConv(32, 32),
            GatedTransposedConv(32, 32, stride=2),
            GatedTransposedConv(32, 32),
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.last = nn.Conv2d(32, 1, 1) if kind.levels == 2 else LevelConv(32, kind.levels)

    def forward(self, z: Float[Tensor, "rows latents"]) -> Distribution:
        x = self.first(z).view(-1, *self.kind.core, DEEP).permute(0, 3, 1, 2)
        logits = self.last(self.convolutions(x)).permute(0, 2, 3, 1)  # levels last
        if self.kind.levels == 2:
            return bit_law(logits.flatten(1))
        return LevelLaw(logits.flatten(1, 2))


class LevelConv(nn.Module):
    """Convolution to 256 channels and another, of single pixels, to the logits of all levels.

    As nothing stands between them, both are computed as one convolution whose weight is their
    product; they are trained as the two they are.

    Args:
        inputs: Channels it sees.
        levels: Logits of each pixel.
    """

    def __init__(self, inputs: int, levels: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(inputs, 256, KERNEL, 1, PADDING)
        self.mix = nn.Conv2d(256, levels, 1)

    def forward(self, x: Images) -> Images:
        mix = self.mix.weight.flatten(1)
        weight = (mix @ self.spread.weight.flatten(1)).view(-1, *self.spread.weight.shape[1:])
        bias = self.mix(self.spread.bias.view(1, -1, 1, 1)).flatten()  # type: ignore[union-attr]
        return convolve(x, weight.contiguous(memory_format=torch.channels_last), bias)


@torch.no_grad()
def start_uniformly(layer: nn.Module, fan: int) -> None:
    """Draw weights and biases as torch does for a layer of so many inputs."""
    for parameter in layer.parameters():
        parameter.uniform_(-1 / math.sqrt(fan), 1 / math.sqrt(fan))
