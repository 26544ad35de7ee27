"""The paper's two figures: what is to be learned, the other flow, ours; numbers below."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from bnaf.flows.flow import Flow
from bnaf.model.files import load
from bnaf.studies.ledger import Record
from bnaf.studies.plans import Trial
from bnaf.studies.study import Study

LIMIT = 4.5  # half of the side of the square that is shown
PIXELS = 180
ROWS = 10_000  # rows of a grid that are evaluated at once
PANEL, HEADROOM = 2.0, 0.5  # inches

Panel = tuple[Trial, Record, Path]


def draw_study(study: Study, panels: Sequence[Panel]) -> Figure:
    """Return a figure with a row for every experiment and a column for every flow.

    Args:
        study: Whose runs they are.
        panels: Runs, at most one for each flow of an experiment, with their records and the files
            of their flows.
    """
    names = list(dict.fromkeys(run.experiment.name for run, _, _ in panels))
    titles = list(dict.fromkeys(run.variant.title for run, _, _ in panels))
    columns = len(titles) + 1
    size = (PANEL * columns, PANEL * len(names) + HEADROOM)
    figure = Figure(figsize=size, dpi=PIXELS / PANEL, layout="constrained")
    grid = figure.subplots(len(names), columns, squeeze=False)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
    brightest = {}
    for row, name in zip(grid, names, strict=True):
        brightest[name] = draw_density(row[0], study.log_density(name))
        row[0].set_ylabel(name)
        row[0].set_xlabel(f"least {study.least_loss(name):.4f} nats")
    for run, record, path in panels:
        name = run.experiment.name
        axes = grid[names.index(name)][titles.index(run.variant.title) + 1]
        flow = load(path)
        assert isinstance(flow, Flow)
        draw_density(axes, deepcopy(flow).double()().log_prob, brightest[name])
        axes.set_xlabel(f"+ {record['measures']['excess']:.4f} nats")
    for axes, title in zip(grid[0], [study.truth_title, *titles], strict=True):
        axes.set_title(title, fontsize="medium")
    return figure


@torch.no_grad()
def draw_density(
    axes: Axes, log_density: Callable[[Tensor], Tensor], brightest: float | None = None
) -> float:
    """Draw a density as an image, and return its largest value.

    Args:
        axes: Where to draw.
        log_density: Its logarithm, as a function of rows.
        brightest: Value, and all above it, that is drawn brightest; the largest by default.
    """
    edges = torch.linspace(-LIMIT, LIMIT, PIXELS + 1, dtype=torch.float64)
    middles = (edges[:-1] + edges[1:]) / 2
    second, first = torch.meshgrid(middles, middles, indexing="ij")
    points = torch.stack([first, second], -1).reshape(-1, 2)
    density = torch.cat([log_density(part).exp() for part in points.split(ROWS)])
    largest = density.max().item()
    axes.imshow(
        density.reshape(PIXELS, PIXELS).numpy(),
        origin="lower",
        cmap="magma",
        vmin=0,
        vmax=brightest or largest,
    )
    return largest
