"""Figures of the study: bounds over epochs, and what a VAE makes of images."""

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bnaf._random import private_draws
from bnaf.plots import COLOURS, new_figure
from bnaf.plots.images import plot_images
from bnaf.plots.style import set_labels, set_title, show_legend
from bnaf.studies.vae.plans import ImageSet, read_variants
from bnaf.studies.vae.tables import Standing
from bnaf.vae import VAE

ACROSS, LINES = 10, 4
WIDTH, HEIGHT = 4.6, 3.6  # inches of one panel
SHOWN = 0.25  # share of the first course that may lie above the figure
STYLES = ("-", "--", "-.", ":")


def draw_curves(standings: Sequence[Standing]) -> Figure:
    """Return a figure of the bound on validation images over epochs, a panel for each image set.

    Of every posterior the longest run of its first seed is drawn.
    """
    names = list(dict.fromkeys(one.images.name for one in standings))
    figure = new_figure(WIDTH * len(names), HEIGHT)
    variants = list(read_variants())
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        longest = {one.flow: one for one in standings if one.images.name == name}
        ends: list[float] = []
        for flow, one in longest.items():
            place = variants.index(flow)
            epochs, bounds = zip(*one.records[0]["curve"], strict=True)
            bounds = tuple(bound / one.unit for bound in bounds)
            axes.plot(
                epochs,
                bounds,
                color=COLOURS[place % len(COLOURS)],
                linestyle=STYLES[place % len(STYLES)],
                label=flow,
            )
            ends += bounds[int(SHOWN * len(bounds)) :]
        margin = 0.05 * (max(ends) - min(ends)) or 0.5
        axes.set_ylim(min(ends) - margin, max(ends) + margin)
        unit = "nats" if one.unit == 1.0 else "bits per dimension"
        set_title(axes, one.images.title)
        set_labels(axes, x="epoch", y=f"-ELBO of validation images ({unit})")
        show_legend(axes, fontsize=8)
    return figure


@torch.no_grad()
def draw_images(vae: VAE, images: ImageSet, test: Tensor) -> Figure:
    """Return a figure of reconstructions, samples and lines between images.

    Args:
        vae: A trained VAE.
        images: What it was trained on.
        test: Images it has not seen.
    """
    shape = images.kind.height, images.kind.width
    some = test[torch.arange(2 * ACROSS) * len(test) // (2 * ACROSS)]
    with private_draws(0):
        pairs = torch.stack([some, vae.reconstruct(some)], 1).view(2, ACROSS, 2, -1)
        reconstructed = pairs.transpose(1, 2).flatten(0, 1)  # a line of images, a line of theirs
        drawn = vae.sample(LINES * ACROSS, expect=True).view(LINES, ACROSS, -1)
        between = vae.interpolate(some[:LINES], some[LINES : 2 * LINES], steps=ACROSS)
    panels = {
        "Test images, and below each its reconstruction": reconstructed,
        "Samples of the prior": drawn,
        "Lines between test images": between,
    }
    figure = new_figure(WIDTH * len(panels), HEIGHT * 0.75)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, pixels) in zip(grid, panels.items(), strict=True):
        plot_images(axes, pixels, shape, brightest=images.kind.levels - 1)
        set_title(axes, title)
    return figure
