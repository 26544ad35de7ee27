"""Rows as points, and pairs of columns against each other."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from bnaf._text import plain_name
from bnaf.errors import SettingsError
from bnaf.plots.style import ABOVE, DATA, MODEL, set_labels, show_legend
from bnaf.tables.table import Table, typed_columns

LARGEST = 1e300  # value that a figure has room for
MOST_POINTS = 4_000
BINS = 30
MOST_NAMED, LONGEST = 4, 8  # levels that an axis names, and their letters


def plot_points(
    axes: Axes, rows: Tensor | np.ndarray, *, colour: str = DATA, label: str | None = None
) -> Axes:
    """Draw rows of two columns as points, the fainter the more there are.

    Args:
        axes: Where to draw.
        rows: Values, rows by two columns.
        colour: Colour of the points.
        label: What they are called in a legend.
    """
    values = np.asarray(rows)
    axes.plot(
        values[:, 0],
        values[:, 1],
        linestyle="",
        marker=".",
        markersize=3.0,
        markeredgewidth=0,
        alpha=float(np.clip(40 / np.sqrt(max(len(values), 1)), 0.15, 0.8)),
        color=colour,
        label=label,
        rasterized=True,
    )
    return axes


def plot_pairs(
    axes: np.ndarray,
    data: Table,
    samples: Table,
    *,
    columns: Sequence[str] | None = None,
    levels: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Draw a table against samples of its model, for every pair of columns.

    Data stand below the diagonal and as many samples above it, on the same scales; on the diagonal
    are histograms of both. Where the model is right, the figure is its own mirror image.

    Args:
        axes: A square grid of them, one row and one column per column of the table.
        data: Rows of the table.
        samples: Rows drawn from the model, with the same columns.
        columns: Which columns; all of the samples by default.
        levels: What the numbers 0, 1, ... of some columns stand for, by name.
        seed: Seed of the rows shown, where there are many.

    Raises:
        SettingsError: If the grid has another size.
        TableError: If a column is missing.
    """
    names = list(columns or samples.columns)
    if axes.shape != (len(names), len(names)):
        raise SettingsError(
            f"A pair plot of {len(names)} columns expects {len(names)} by {len(names)} axes, got "
            f"{axes.shape}; make them with figure.subplots({len(names)}, {len(names)}, "
            "squeeze=False)."
        )
    both = [_values(table.select(names)) for table in (data, samples)]
    count = min(MOST_POINTS, len(data), len(samples))
    shown = [_some(values, count, seed) for values in both]
    limits = [value_limits(both[0][:, index]) for index in range(len(names))]
    for row in range(len(names)):
        for column in range(len(names)):
            panel = axes[row, column]
            if row == column:
                _plot_histograms(panel, both[0][:, row], both[1][:, row], limits[row])
            else:
                below = row > column
                points = shown[0 if below else 1][:, [column, row]]
                plot_points(panel, points, colour=DATA if below else MODEL)
                panel.set_ylim(limits[row])
            panel.set_xlim(limits[column])
            panel.grid(False)
    _label(axes, names)
    for index, name in enumerate(names):
        _name_levels(axes, index, (levels or {}).get(name, ()))
    return axes


def _plot_histograms(
    axes: Axes, data: np.ndarray, samples: np.ndarray, limits: tuple[float, float]
) -> None:
    edges = np.linspace(*limits, BINS + 1).tolist()
    weights = [np.full(len(values), 1 / len(values)) for values in (data, samples)]
    axes.hist(data, edges, weights=weights[0], color=DATA, alpha=0.45, label="data")
    axes.hist(
        samples,
        edges,
        weights=weights[1],
        histtype="step",
        linewidth=1.4,
        color=MODEL,
        label="samples",
    )
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _label(axes: np.ndarray, names: Sequence[str]) -> None:
    """Name the columns at the left and below; ticks stand there alone."""
    longest = max(8, 48 // len(names))
    for index, name in enumerate(names):
        set_labels(axes[index, 0], y=plain_name(name, longest))
        set_labels(axes[-1, index], x=plain_name(name, longest))
    for row, panels in enumerate(axes):
        for column, panel in enumerate(panels):
            panel.locator_params(nbins=3, axis="x")
            panel.tick_params(labelsize=7, labelbottom=row == len(names) - 1)
            if row != column:
                panel.locator_params(nbins=3, axis="y")
                panel.tick_params(labelleft=column == 0)
    show_legend(axes[0, 0], fontsize=8, **ABOVE)
    axes[0, 0].figure.align_ylabels(axes[:, 0])


def _name_levels(axes: np.ndarray, index: int, levels: Sequence[str]) -> None:
    """Write levels where their numbers would stand, if they are few."""
    if not levels:
        return
    few = [plain_name(level, LONGEST) for level in levels] if len(levels) <= MOST_NAMED else []
    places = range(len(few))
    for panel in axes[:, index]:
        panel.set_xticks(places, few, rotation=30)
    for column, panel in enumerate(axes[index]):
        if column != index:
            panel.set_yticks(places, few)


def _values(table: Table) -> np.ndarray:
    """Return values as a table of this kind is written: of integer columns, whole numbers."""
    return np.stack([column.astype(np.float64) for column in typed_columns(table)], 1)


def _some(values: np.ndarray, count: int, seed: int) -> np.ndarray:
    if len(values) == count:
        return values
    return values[np.random.default_rng(seed).choice(len(values), count, replace=False)]


def value_limits(values: np.ndarray) -> tuple[float, float]:
    """Return where the data lie, the outermost thousandths of many rows apart."""
    values = np.clip(values[~np.isnan(values)], -LARGEST, LARGEST)
    if not len(values):
        return 0.0, 1.0
    low, high = (float(value) for value in np.quantile(values, [0.001, 0.999]))
    margin = 0.06 * (high - low) or 0.5 * abs(high) or 0.5
    return low - margin, high + margin
