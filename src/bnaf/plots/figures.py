"""Whole figures, one for each question: what :mod:`bnaf.report` and ``bnaf plot`` show."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure, SubFigure
from torch import Tensor

from bnaf.errors import SettingsError
from bnaf.evaluation.calibration import Calibration, CalibrationCheck
from bnaf.model.model import Model
from bnaf.plots.cells import plot_cells
from bnaf.plots.density import plot_density, two_kinds
from bnaf.plots.judgement import plot_calibration, plot_scores, plot_shares
from bnaf.plots.rows import plot_pairs, plot_points
from bnaf.plots.style import new_figure
from bnaf.plots.training import plot_training
from bnaf.tables.table import Table

SAMPLES = 5_000
MOST_SHARES, ACROSS = 9, 3
WIDE = (5.2, 3.2)
SMALLEST_PAIRS = 4.2


def training_figure(model: Model) -> Figure:
    """Return a figure of the course of a fit."""
    figure = new_figure(*WIDE)
    plot_training(figure.subplots(), model)
    return figure


def density_figure(
    model: Model,
    columns: Sequence[str] | None = None,
    *,
    given: Any = None,
    rows: Table | None = None,
    seed: int = 0,
) -> Figure:
    """Return a figure of the density of two columns, beside rows where there are some.

    Args:
        model: The density.
        columns: Two of its columns; the first two by default.
        given: One row of given columns, where the model has some; of columns of every kind, any.
        rows: Rows with its columns, to be shown in a panel of their own.
        seed: Seed of samples.

    Raises:
        SettingsError: If there are both rows, whose given columns are their own, and others.
    """
    if rows is None:
        figure = new_figure(5.2, 4.0)
        plot_density(figure.subplots(), model, columns, given=given, seed=seed)
        return figure
    if given is not None:
        raise SettingsError("Expected rows or given columns, got both; give one of them.")
    figure = new_figure(9.0, 4.0)
    left, right = figure.subplots(1, 2)
    if model.encoding.schema is not None:
        samples = Table(_draw(model, rows, seed)[0], model.columns)
        tables = {"samples": samples, "data": rows}
        plot_cells([left, right], tables, two_kinds(model, columns))
        return figure
    plot_density(left, model, columns, seed=seed)
    names = list(columns or model.columns[:2])
    plot_points(right, rows.select(names).rows)
    right.set(xlim=left.get_xlim(), ylim=left.get_ylim(), xlabel=left.get_xlabel())
    return figure


def pairs_figure(
    model: Model, rows: Table, columns: Sequence[str] | None = None, *, seed: int = 0
) -> Figure:
    """Return a figure of rows against samples, for pairs of columns.

    Args:
        model: The density.
        rows: Rows with its columns, given ones included; each sample is given what a row is given.
        columns: Which columns of the model; all by default.
        seed: Seed of samples.
    """
    names = list(columns or model.columns)
    rows = rows.take(spread_indices(len(rows), SAMPLES))
    samples = Table(_draw(model, rows, seed)[0], model.columns, model.types)
    side = max(SMALLEST_PAIRS, 1.1 * len(names) + 0.6)  # letters stay legible on a phone
    figure = new_figure(side, side)
    axes = figure.subplots(len(names), len(names), squeeze=False)
    plot_pairs(axes, rows, samples, columns=names, levels=model.encoding.labels)
    return figure


def shares_figure(check: CalibrationCheck) -> Figure:
    """Return a figure of the shares below rows, of the columns that are calibrated worst."""
    worst = worst_columns(check, MOST_SHARES)
    figure = new_figure(*_shares_size(worst))
    _draw_shares(figure, worst)
    return figure


def whole_row_figure(check: CalibrationCheck) -> Figure:
    """Return a figure of the calibration of rows as a whole."""
    figure = new_figure(*WIDE)
    plot_calibration(figure.subplots(), check.whole_row)
    return figure


def calibration_figure(check: CalibrationCheck) -> Figure:
    """Return both figures of calibration in one."""
    worst = worst_columns(check, MOST_SHARES)
    width, height = _shares_size(worst)
    figure = new_figure(max(width, WIDE[0]), height + WIDE[1])
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(height, WIDE[1]))[:, 0]
    _draw_shares(above, worst)
    plot_calibration(below.subplots(), check.whole_row)
    return figure


def scores_figure(
    model: Model, scores: Mapping[str, Tensor], rows: Table, *, seed: int = 0
) -> Figure:
    """Return a figure of log-densities beside those of the model's own samples.

    Args:
        model: The density.
        scores: Log-densities by the name of their rows.
        rows: Rows whose given columns the samples are given.
        seed: Seed of samples.
    """
    own, given = _draw(model, rows.take(spread_indices(len(rows), SAMPLES)), seed)
    figure = new_figure(*WIDE)
    plot_scores(figure.subplots(), scores, samples=model.log_prob(own, given, warn=False))
    return figure


def worst_columns(check: CalibrationCheck, most: int) -> list[Calibration]:
    """Return the columns that are calibrated worst, the worst first."""
    return sorted(check.columns, key=lambda test: -test.gap)[:most]


def spread_indices(rows: int, count: int) -> Tensor:
    """Return the indices of some rows, spread evenly.

    Example:
        >>> spread_indices(7, 3), spread_indices(2, 3)
        (tensor([0, 3, 6]), tensor([0, 1]))
    """
    return torch.linspace(0, rows - 1, min(rows, count), dtype=torch.float64).round().long()


def _draw(model: Model, rows: Table, seed: int) -> tuple[Tensor, Table | None]:
    """Return samples, and what each is given."""
    if not model.given_columns:
        return model.sample(SAMPLES, seed=seed, outside="redraw"), None
    given = rows.select(model.given_columns)
    return model.sample(1, given, seed=seed, outside="redraw")[0], given


def _shares_size(worst: Sequence[Calibration]) -> tuple[float, float]:
    across = min(ACROSS, len(worst))
    return 1.55 * across + 0.4, 1.45 * math.ceil(len(worst) / across) + 0.1


def _draw_shares(figure: Figure | SubFigure, worst: Sequence[Calibration]) -> None:
    across = min(ACROSS, len(worst))
    grid = figure.subplots(math.ceil(len(worst) / across), across, squeeze=False)
    panels = list(grid.flat)
    for index, test in enumerate(worst):
        plot_shares(panels[index], test)
        panels[index].tick_params(labelleft=index % across == 0)
        if index % across:
            panels[index].set_ylabel("")
    for panel in panels[len(worst) :]:
        panel.set_visible(False)
    top = max(panel.get_ylim()[1] for panel in panels[: len(worst)])
    for panel in panels:
        panel.set_ylim(0, top)
