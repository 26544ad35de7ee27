"""How well a model holds: calibration and anomaly scores."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from bnaf._text import plain_name
from bnaf.errors import SettingsError
from bnaf.evaluation.calibration import LEVEL, Calibration
from bnaf.plots.style import ABOVE, COLOURS, DATA, INK, MODEL, set_labels, show_legend

MOST_NAMED = 4
LONGEST = 22  # letters that fit below a panel
RARE = 0.01


def plot_shares(axes: Axes, calibration: Calibration) -> Axes:
    """Draw the shares of a model's mass below some rows: flat, where the model is right.

    Bars that lean to one side say that the model lies too high or too low, a hollow that it is
    too narrow, a hump that it is too wide. The grey band holds 95 % of the bars of a right model.

    Args:
        axes: Where to draw.
        calibration: The shares, of one column or of one entry of the base noise.
    """
    from scipy.stats import binom

    values = calibration.values.numpy()
    bins = int(np.clip(np.sqrt(len(values)) / 2, 5, 20))
    low, high = binom.ppf([LEVEL / 2, 1 - LEVEL / 2], len(values), 1 / bins) * bins / len(values)
    axes.axhspan(low, high, color=INK, alpha=0.14, linewidth=0)
    weights = np.full(len(values), bins / len(values))
    axes.hist(
        values, bins, range=(0, 1), weights=weights, color=DATA, alpha=0.75, rwidth=0.92, zorder=2
    )
    axes.axhline(1, color=INK, linewidth=1, zorder=3)
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0, top=max(2.0, axes.get_ylim()[1]))
    axes.set_xticks([0, 0.5, 1])
    set_labels(axes, x=plain_name(calibration.name, LONGEST), y="rows / expected")
    return axes


def plot_calibration(axes: Axes, calibrations: Sequence[Calibration]) -> Axes:
    """Draw how far the rows up to each share of a model's mass are from that share.

    The lines of a right model stay within the band, all of them in 95 of 100 figures. The lines
    that leave zero the most have names.

    Args:
        axes: Where to draw.
        calibrations: Those of columns, or of entries of the base noise.

    Raises:
        SettingsError: If there are none.
    """
    from scipy.stats import kstwo

    if not calibrations:
        raise SettingsError("Expected one calibration at least, got none.")
    ordered = sorted(calibrations, key=lambda calibration: -calibration.gap)
    rows = len(ordered[0].values)
    band = float(kstwo.isf(LEVEL / len(ordered), rows))
    axes.axhspan(-band, band, color=INK, alpha=0.14, linewidth=0, label="chance")
    styles = ("-", "--", "-.", ":")
    for place in reversed(range(len(ordered))):
        shares, steps = _staircase(ordered[place].values.numpy())
        named = place < MOST_NAMED
        axes.plot(
            shares,
            steps - shares,
            color=COLOURS[place] if named else INK,
            linestyle=styles[place] if named else "-",
            linewidth=1.5 if named else 0.6,
            alpha=1.0 if named else 0.35,
            label=plain_name(ordered[place].name, 14) if named else None,
        )
    edge = 1.25 * max(band, ordered[0].gap)
    axes.set(xlim=(0, 1), ylim=(-edge, edge))
    set_labels(axes, x="share of the model's mass", y="share of rows − share of mass")
    show_legend(axes, fontsize=8, ncols=1 + MOST_NAMED, **ABOVE)
    return axes


def plot_scores(
    axes: Axes, scores: Mapping[str, Tensor], *, samples: Tensor | None = None
) -> Axes:
    """Draw log-densities of rows, the anomaly scores, beside those of the model's own samples.

    The vertical line is passed downwards by one in a hundred of the samples: rows beyond it are
    rare by the model's own account.

    Args:
        axes: Where to draw.
        scores: Log-densities by the name of their rows.
        samples: Log-densities of rows drawn from the model.
    """
    finite = {name: _finite(values) for name, values in scores.items()}
    own = None if samples is None else _finite(samples)
    everything = np.concatenate([*finite.values(), *([] if own is None else [own])])
    edges = np.histogram_bin_edges(everything, 40).tolist()
    for (name, values), colour in zip(finite.items(), (DATA, *COLOURS[2:]), strict=False):
        axes.hist(
            values,
            edges,
            weights=np.full(len(values), 1 / max(len(values), 1)),
            color=colour,
            alpha=0.45,
            label=plain_name(name),
        )
    if own is not None:
        weights = np.full(len(own), 1 / len(own))
        axes.hist(own, edges, weights=weights, histtype="step", color=MODEL, linewidth=1.4)
        axes.plot([], [], color=MODEL, linewidth=1.4, label="samples of the model")
        axes.axvline(
            float(np.quantile(own, RARE)), color=INK, linewidth=1, linestyle="--", label="1 in 100"
        )
    set_labels(axes, x="log-density (nats)", y="share of rows")
    show_legend(axes, fontsize=8, ncols=3, **ABOVE)
    return axes


def _staircase(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the empirical distribution function between 0 and 1, both ends of each step."""
    ordered = np.sort(values)
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return np.repeat(np.r_[0.0, ordered, 1.0], 2)[1:-1], np.repeat(steps, 2)


def _finite(values: Tensor) -> np.ndarray:
    found = values.numpy()
    kept: np.ndarray = found[np.isfinite(found)]
    return kept
