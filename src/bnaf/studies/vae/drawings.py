"""Figures of the study: bounds over epochs, and what a VAE makes of images."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from bnaf._random import private_draws
from bnaf.plots import COLOURS, new_figure
from bnaf.plots.images import plot_images
from bnaf.plots.style import set_labels, set_title, show_legend
from bnaf.studies.vae.plans import ImageSet, read_variants
from bnaf.studies.vae.tables import Standing, stages_of
from bnaf.vae import VAE

ACROSS, LINES = 10, 4
WIDTH, HEIGHT = 4.6, 3.6  # inches of one panel
SHOWN = 0.25  # share of the first course that may lie above the figure
STYLES = ("-", "--", "-.", ":")


def draw_curves(standings: Sequence[Standing]) -> Figure:
    """Return a figure of the bound on validation images over epochs, a column for each image set.

    Above are all posteriors at an equal number of epochs, below those that were carried on, each
    as far as it came; of each the first seed.

    Args:
        standings: What was measured, at least one, of an image set the fewest epochs first.
    """
    names = list(dict.fromkeys(one.images.name for one in standings))
    columns = [stages_of(standings, name) for name in names]
    lines = 1 + any(carried_on for _, carried_on in columns)
    figure = new_figure(WIDTH * len(names), HEIGHT * lines)
    grid = figure.subplots(lines, len(names), squeeze=False)
    for place, (equal, carried_on) in enumerate(columns):
        title = equal[0].images.title
        _draw_panel(grid[0, place], f"{title}, {equal[0].epochs} epochs", equal)
        if carried_on:
            _draw_panel(grid[1, place], f"{title}, carried on", carried_on)
        elif lines > 1:
            grid[1, place].set_axis_off()
    return figure


def _draw_panel(axes: Axes, title: str, standings: Sequence[Standing]) -> None:
    variants, ends = list(read_variants()), []
    for one in standings:
        place = variants.index(one.flow)
        epochs = [epoch for epoch, _ in one.records[0]["curve"]]
        bounds = [bound / one.unit for _, bound in one.records[0]["curve"]]
        colour, style = COLOURS[place % len(COLOURS)], STYLES[place % len(STYLES)]
        axes.plot(epochs, bounds, color=colour, linestyle=style, label=one.flow)
        ends += bounds[int(SHOWN * len(bounds)) :]
    margin = 0.05 * (max(ends) - min(ends)) or 0.5
    axes.set_ylim(min(ends) - margin, max(ends) + margin)
    unit = "nats" if standings[0].unit == 1.0 else "bits per dimension"
    set_title(axes, title)
    set_labels(axes, x="epoch", y=f"-ELBO, validation ({unit})")
    show_legend(axes, fontsize=8)


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
