"""Two columns of every kind: how often their values go together, in samples and in data."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bnaf._text import plain_name
from bnaf.columns.kind import Kind, shown
from bnaf.plots.rows import value_limits
from bnaf.plots.style import INK, set_labels, set_title
from bnaf.tables.frames import Frame
from bnaf.tables.table import Table

CELLS = 40  # of numbers along either side
STRIP = 0.06  # width of the cell of what is empty, as a share of that of all numbers
MOST_NAMED, LONGEST, TICKS = 12, 14, 5  # levels that are named, their letters, and numbers
MOST = (0.002, 0.998)  # quantiles that numbers are shown between
DEPTH = 6.0  # nats below the largest share


class Scale(NamedTuple):
    """Cells of one column.

    Args:
        edges: Where they begin and end; what is empty has the last, where something is.
        ticks: Places that are named.
        names: What they are called.
        empty: Whether something is empty.
    """

    edges: np.ndarray
    ticks: list[float]
    names: list[str]
    empty: bool

    def places(self, codes: np.ndarray) -> np.ndarray:
        """Return where values are drawn: the empty ones in their cell, others where they are."""
        if not self.empty:
            return codes
        last = (self.edges[-2] + self.edges[-1]) / 2
        within = np.where(codes < self.edges[-2], codes, -np.inf)
        return np.where(np.isnan(codes), last, within)


def plot_cells(
    panels: Sequence[Axes],
    tables: Mapping[str, Table],
    kinds: Mapping[str, Kind],
) -> Sequence[Axes]:
    """Draw how often the values of two columns go together: a histogram of two dimensions.

    Every level has a cell of its own, as has every number where they are few, and empty cells
    have one at the end. Colours are shares of the rows, down to six nats below the largest.

    Args:
        panels: Where to draw, one for each table.
        tables: Rows by what they are called, as codes of :class:`bnaf.columns.schema.Schema`.
        kinds: What the two columns mean, by name, that along the x-axis first.
    """
    names = list(kinds)
    codes = [table.select(names).rows.numpy() for table in tables.values()]
    seen = np.concatenate(codes)
    first, second = (_scale(kinds[name], seen[:, index]) for index, name in enumerate(names))
    shares = [_shares(rows, first, second) for rows in codes]
    most = max(float(share.max()) for share in shares) or 1.0
    norm = LogNorm(most * math.exp(-DEPTH), most)
    for axes, name, share in zip(panels, tables, shares, strict=True):
        drawn = np.maximum(share, most * math.exp(-DEPTH))
        mesh = axes.pcolormesh(first.edges, second.edges, drawn, norm=norm, rasterized=True)
        mesh.set_cmap("viridis")
        _show_scales(axes, first, second)
        set_labels(axes, x=plain_name(names[0]), y=plain_name(names[1]))
        set_title(axes, name)
    bar = (
        panels[-1]
        .get_figure()
        .colorbar(  # type: ignore[union-attr]
            mesh, ax=list(panels), label="share of rows", format=FuncFormatter(_percent)
        )
    )
    bar.ax.spines["outline"].set_edgecolor(INK)
    return panels


def _percent(share: float, place: object) -> str:
    del place
    return f"{100 * share:g}%"


def _shares(rows: np.ndarray, first: Scale, second: Scale) -> np.ndarray:
    """Return the share of rows in every cell, a row of cells per cell of the second column."""
    places = second.places(rows[:, 1]), first.places(rows[:, 0])
    counts, _, _ = np.histogram2d(*places, bins=(second.edges, first.edges))
    share: np.ndarray = counts / max(len(rows), 1)
    return share


def _show_scales(axes: Axes, first: Scale, second: Scale) -> None:
    """Name cells at the axes, and draw a line before those of what is empty."""
    axes.grid(False)
    long = sum(map(len, first.names)) > 40
    axes.set_xticks(first.ticks, first.names, rotation=30 if long else 0)
    axes.set_yticks(second.ticks, second.names)
    if first.empty:
        axes.axvline(first.edges[-2], color="white", linewidth=1.0)
    if second.empty:
        axes.axhline(second.edges[-2], color="white", linewidth=1.0)


def _scale(kind: Kind, codes: np.ndarray) -> Scale:
    """Return the cells of a column, from all codes that are drawn."""
    present = codes[~np.isnan(codes)]
    if kind.labels:
        labels = [plain_name(label, LONGEST) or "''" for label in (*kind.labels, "never seen")]
        count = len(kind.labels) + bool((present >= len(kind.labels)).any())
        edges, strip = np.arange(count + 1) - 0.5, 1.0
        often = np.bincount(present.astype(np.int64), minlength=count)[:count]
        ticks = [float(place) for place in sorted(np.argsort(-often, kind="stable")[:MOST_NAMED])]
        names = [labels[int(place)] for place in ticks]
    else:
        edges = _number_edges(present)
        strip = STRIP * float(edges[-1] - edges[0])
        ticks, names = _number_ticks(kind, edges)
    empty = len(present) < len(codes)
    if empty:
        edges = np.append(edges, edges[-1] + strip)
        ticks, names = [*ticks, float(edges[-1] - strip / 2)], [*names, "empty"]
    return Scale(edges, ticks, names, empty)


def _number_edges(values: np.ndarray) -> np.ndarray:
    """Return cells of one number each where there are few, else of as many steps of their grid."""
    low, high = np.quantile(values, MOST) if len(values) else (0.0, 0.0)
    found = np.unique(values[(values >= low) & (values <= high)])
    if len(found) < 2:
        return np.array(value_limits(values))
    gaps = np.diff(found)
    if len(found) <= CELLS:
        middles = found[:-1] + gaps / 2
        return np.array([found[0] - gaps[0] / 2, *middles, found[-1] + gaps[-1] / 2])
    step = float(gaps.min())
    width = step * math.ceil((found[-1] - found[0] + step) / (step * CELLS))
    count = math.ceil((found[-1] - found[0] + step) / width)
    edges: np.ndarray = found[0] - step / 2 + width * np.arange(count + 1)
    return edges


def _number_ticks(kind: Kind, edges: np.ndarray) -> tuple[list[float], list[str]]:
    """Return places of round numbers, and how these are written; dates as dates."""
    low, high = float(edges[0]), float(edges[-1])
    dated = kind.column("", np.zeros(1)).holds == "dates"
    found = MaxNLocator(3 if dated else TICKS, integer=dated).tick_values(low, high)
    ticks = [float(place) for place in found if low <= place <= high]
    if not dated:
        return ticks, [shown(place) for place in ticks]
    cells = Frame((kind.column("", np.array(ticks)),)).to_arrow().column(0).to_pylist()
    return ticks, [str(cell).removesuffix(" 00:00:00") for cell in cells]
