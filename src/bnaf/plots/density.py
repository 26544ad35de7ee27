"""The density of two columns, as a heat map with contours."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from matplotlib.axes import Axes

from bnaf._text import plain_name
from bnaf.columns.kind import Kind
from bnaf.errors import Argument, SettingsError
from bnaf.model.model import Model
from bnaf.plots.cells import plot_cells
from bnaf.plots.style import INK, set_labels
from bnaf.tables.table import Table

DRAWS, PIXELS = 100_000, 160
MOST_ROWS = 20_000  # that are drawn of a model of columns of every kind
SMOOTHING = 0.7  # times the bandwidth of Scott's rule, which suits one Gaussian
DEPTH, MARGINAL_DEPTH = 6.0, 5.0  # nats below the highest density; samples say less of tails
MASSES = (0.95, 0.8, 0.5)
Limits = tuple[float, float]


class DensityGrid(NamedTuple):
    """Density of two columns at the middles of the cells of a grid.

    Args:
        columns: The columns, that along the x-axis first.
        first: Edges of the cells along it.
        second: Edges of the cells along the other.
        density: Density in the units of the table, one row of cells per cell of ``second``.
    """

    columns: tuple[str, str]
    first: np.ndarray
    second: np.ndarray
    density: Float64[np.ndarray, "second first"]

    @property
    def cell(self) -> float:
        """Area of a cell."""
        return float((self.first[1] - self.first[0]) * (self.second[1] - self.second[0]))

    def level(self, mass: float) -> float | None:
        """Return the density above which a share of all mass lies, if the grid holds so much."""
        ordered = np.sort(self.density, axis=None)[::-1]
        held = np.cumsum(ordered) * self.cell
        place = int(np.searchsorted(held, mass))
        return float(ordered[place]) if place < len(ordered) else None


def evaluate_density(
    model: Model,
    columns: Sequence[str] | None = None,
    *,
    given: Any = None,
    limits: tuple[Limits, Limits] | None = None,
    pixels: int = PIXELS,
    draws: int = DRAWS,
    seed: int = 0,
) -> DensityGrid:
    """Return the density of two columns of a model on a grid.

    A model of two columns is evaluated itself. Of one with more, the two columns have a marginal
    density, all others integrated out, which has no closed form: it is the histogram of samples,
    smoothed by a Gaussian kernel of 0.7 times the bandwidth of Scott's rule. Features narrower
    than about a tenth of a column's deviation are blurred there.

    Args:
        model: The density.
        columns: Two of its columns; the first two by default.
        given: One row of given columns, where the model has some.
        limits: Least and greatest value of either column; where the mass is, by default.
        pixels: Cells along either side.
        draws: Samples that limits and marginal densities are taken from.
        seed: Seed of these.

    Raises:
        SettingsError: If these are not two different columns of the model.
        ShapeError: If given columns are missing, or not wanted.
    """
    names = _two_columns(model, columns)
    if not model.encoding.noisy:
        raise SettingsError(
            "A density on a grid expects plain numbers, got columns of several kinds; "
            "plot_density draws how often their values go together."
        )
    places = [model.columns.index(name) for name in names]
    exact = model.features == 2
    count = draws if not exact else min(draws, 4_000)
    samples = model.sample(count, given, seed=seed, outside="redraw").reshape(count, -1)
    pairs = samples[:, places].cpu().numpy()
    limits = limits or _limits(pairs)
    first, second = (np.linspace(*limit, pixels + 1) for limit in limits)
    if exact:
        density = _exact(model, given, places, first, second)
    else:
        density = _smoothed(pairs, first, second)
    return DensityGrid(names, first, second, density)


def plot_density(
    axes: Axes,
    model: Model,
    columns: Sequence[str] | None = None,
    *,
    given: Any = None,
    limits: tuple[Limits, Limits] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Axes:
    """Draw the density of two columns: a heat map in nats, and contours of mass.

    Columns of every kind have the shares of samples instead, as
    ``bnaf.plots.cells.plot_cells`` draws them, and limits of their own.

    The map ends six nats below the highest density, or five of a marginal one. Inside each contour
    lies the share of the mass that is written on it. What "density of two columns" is for a model
    of more than two, :func:`evaluate_density` tells.

    Args:
        axes: Where to draw.
        model: The density.
        columns: Two of its columns; the first two by default.
        given: One row of given columns, where the model has some; of columns of every kind, any.
        limits: Least and greatest value of either column; where the mass is, by default.
        draws: Samples that limits and marginal densities are taken from.
        seed: Seed of these.

    Raises:
        SettingsError: If these are not two different columns of the model.
        ShapeError: If given columns are missing, or not wanted.
    """
    if model.encoding.schema is not None:
        kinds = two_kinds(model, columns)
        rows = model.sample(min(draws, MOST_ROWS), given, seed=seed)
        samples = Table(rows.reshape(-1, model.features), model.columns)
        plot_cells([axes], {"samples": samples}, kinds)
        return axes
    grid = evaluate_density(model, columns, given=given, limits=limits, draws=draws, seed=seed)
    with np.errstate(divide="ignore"):
        log_density = np.log(grid.density)
    top, depth = float(log_density.max()), DEPTH if model.features == 2 else MARGINAL_DEPTH
    image = axes.imshow(
        np.maximum(log_density, top - depth),
        extent=(grid.first[0], grid.first[-1], grid.second[0], grid.second[-1]),
        origin="lower",
        aspect="auto",
        vmin=top - depth,
        vmax=top,
        cmap="viridis",
    )
    levels = {level: f"{mass:.0%}" for mass in MASSES if (level := grid.level(mass))}
    if levels:
        middles = [(edges[:-1] + edges[1:]) / 2 for edges in (grid.first, grid.second)]
        lines = axes.contour(
            *middles, grid.density, sorted(levels), colors="white", linewidths=0.8, alpha=0.9
        )
        axes.clabel(lines, fmt=levels, fontsize=7)
    axes.grid(False)
    set_labels(axes, x=plain_name(grid.columns[0]), y=plain_name(grid.columns[1]))
    what = "log-density" if model.features == 2 else "marginal log-density"
    bar = axes.get_figure().colorbar(image, ax=axes, label=f"{what} (nats)")  # type: ignore[union-attr]
    bar.ax.spines["outline"].set_edgecolor(INK)
    return axes


def two_kinds(model: Model, columns: Sequence[str] | None) -> dict[str, Kind]:
    """Return what two columns of every kind mean, by name.

    Raises:
        SettingsError: If these are not two different columns of the model.
    """
    assert model.encoding.schema is not None
    return {name: model.encoding.schema[name] for name in _two_columns(model, columns)}


def _two_columns(model: Model, columns: Sequence[str] | None) -> tuple[str, str]:
    if model.features == 1:
        raise SettingsError(
            "A density of two columns expects a model of two at least, got one of "
            f"{model.columns[0]}; a pair plot draws its histogram."
        )
    names = tuple(columns) if columns is not None else model.columns[:2]
    if len(names) == 2 and names[0] != names[1] and set(names) <= set(model.columns):
        return names[0], names[1]
    raise SettingsError(
        f"A density of two columns expects two of {', '.join(model.columns)}, got "
        f"{', '.join(names)}; choose them with ",
        Argument("columns"),
        ".",
    )


def _limits(pairs: np.ndarray) -> tuple[Limits, Limits]:
    """Return where nearly all samples lie, with a margin."""
    low, high = np.quantile(pairs, [0.002, 0.998], axis=0)
    margin = 0.12 * np.maximum(high - low, 1e-9 * np.abs(high))
    low, high = low - margin, high + margin
    return (float(low[0]), float(high[0])), (float(low[1]), float(high[1]))


def _exact(
    model: Model,
    given: Any,
    places: Sequence[int],
    first: np.ndarray,
    second: np.ndarray,
) -> np.ndarray:
    middles = [torch.from_numpy((edges[:-1] + edges[1:]) / 2) for edges in (second, first)]
    along_second, along_first = torch.meshgrid(*middles, indexing="ij")
    rows = torch.empty(*along_first.shape, 2, dtype=torch.float64)
    rows[..., places[0]], rows[..., places[1]] = along_first, along_second
    if given is not None:
        given = model.encoding.codes(given, "given").reshape(-1)
    density: np.ndarray = model.log_prob(rows, given, warn=False).exp().numpy()
    return density


def _smoothed(pairs: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the histogram of samples on a grid, smoothed, as a density."""
    from scipy.ndimage import gaussian_filter

    quarters = np.quantile(pairs, [0.25, 0.75], axis=0)
    spread = np.minimum(pairs.std(0), (quarters[1] - quarters[0]) / 1.349)  # heavy tails apart
    bandwidth = SMOOTHING * len(pairs) ** (-1 / 6) * spread
    steps = np.array([edges[1] - edges[0] for edges in (first, second)])
    cells = np.maximum(bandwidth / steps, 0.5)  # half a cell at least, so that cells do not show
    margins = np.ceil(4 * cells).astype(int)  # samples just outside count too
    wide = [
        edges[0] + step * np.arange(-margin, len(edges) + margin)
        for edges, step, margin in zip((first, second), steps, margins, strict=True)
    ]
    counts, _, _ = np.histogram2d(pairs[:, 1], pairs[:, 0], bins=(wide[1], wide[0]))
    smooth = gaussian_filter(counts, sigma=cells[::-1], mode="constant", truncate=4.0)
    inner = smooth[margins[1] : -margins[1], margins[0] : -margins[0]]
    density: np.ndarray = inner / (len(pairs) * steps.prod())
    return density
