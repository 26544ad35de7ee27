"""Images side by side."""

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

GAP = 2  # pixels between images


def plot_images(
    axes: Axes,
    images: Float[Tensor, "lines across pixels"],
    shape: tuple[int, int],
    *,
    brightest: float = 1.0,
) -> Axes:
    """Draw images in lines, from black to white.

    Args:
        axes: Where to draw.
        images: Their pixels, row by row.
        shape: Height and width of each.
        brightest: Value that is white.
    """
    lines, across, _ = images.shape
    height, width = shape
    mosaic = torch.full((lines * (height + GAP) - GAP, across * (width + GAP) - GAP), torch.nan)
    for line in range(lines):
        for column in range(across):
            top, left = line * (height + GAP), column * (width + GAP)
            image = images[line, column].detach().cpu().view(height, width)
            mosaic[top : top + height, left : left + width] = image
    axes.imshow(mosaic.numpy(), cmap="gray", vmin=0, vmax=brightest, interpolation="nearest")
    axes.set_axis_off()
    return axes
