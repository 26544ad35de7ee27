"""The picture of the study: log-likelihood over wall-clock time, of all flows on each table."""

from collections.abc import Mapping
from itertools import product
from math import ceil
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bnaf.errors import SettingsError
from bnaf.plots.style import COLOURS, new_figure, set_labels, set_title, styled
from bnaf.studies.density.contestants import OURS, is_long
from bnaf.studies.density.published import set_titles
from bnaf.studies.density.tables import Standing, Standings

STYLES = [*product(("-", "--", ":"), COLOURS[1:])]  # of the rivals; ours is thick, in the first
PANEL_WIDTH, PANEL_HEIGHT = 3.4, 3.0  # inches
ENTRY_WIDTH, ENTRY_HEIGHT = 2.5, 0.2  # of the legend
MARGIN = 0.1  # of the range that is shown, left free on both sides
OUTLYING = 4  # times as far below the best end of a curve as the median of all is not shown


def draw_curves(standings: Standings) -> Figure:
    """Return a panel for every table, with a curve for every flow that was limited in time.

    A curve is that of the first seed: the mean log-likelihood of validation rows under the weights
    as they were by then. The worst of the beginning lies below the panel, and so do flows that end
    far behind all others.

    Raises:
        SettingsError: If there are no curves.
    """
    shown = with_curves(standings)
    if not shown:
        raise SettingsError(
            "A picture expects runs with a curve, got none; run bnaf reproduce density first."
        )
    flows = list(dict.fromkeys(flow for found in shown.values() for flow in found))
    rivals = [flow for flow in flows if flow != OURS]
    looks = dict(zip(rivals, STYLES * (1 + len(rivals) // len(STYLES)), strict=False))
    width = PANEL_WIDTH * len(shown)
    across = max(1, int(width / ENTRY_WIDTH))
    with styled():
        figure = new_figure(width, PANEL_HEIGHT + ENTRY_HEIGHT * ceil(len(flows) / across))
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, (name, found) in zip(panels, shown.items(), strict=True):
            _draw_panel(axes, found, looks)
            set_title(axes, set_titles()[name])
        set_labels(panels[0], y="validation log-likelihood, nats")
        lines = {str(line.get_label()): line for axes in panels for line in axes.get_lines()}
        figure.legend(
            lines.values(), lines.keys(), loc="outside lower center", ncols=across, fontsize=8
        )
    return figure


def with_curves(standings: Standings) -> Standings:
    """Return those that had the one limited time and have a curve."""
    shown = {
        name: {flow: one for flow, one in found.items() if _has_curve(one)}
        for name, found in standings.items()
    }
    return {name: found for name, found in shown.items() if found}


def _has_curve(one: Standing) -> bool:
    if not one.records or is_long(one.flow, one.name):
        return False
    return bool(one.records[0]["budget"] and one.records[0]["curve"]["seconds"])


def _draw_panel(
    axes: Axes, found: Mapping[str, Standing], looks: Mapping[str, tuple[str, str]]
) -> None:
    curves = {flow: one.records[0]["curve"] for flow, one in found.items()}
    for flow, curve in curves.items():
        style, colour = looks.get(flow, ("-", COLOURS[0]))
        ours = flow == OURS
        axes.plot(
            curve["seconds"],
            curve["valid"],
            linestyle=style,
            color=colour,
            linewidth=2.6 if ours else 1.2,
            zorder=3 if ours else 2,
            marker="." if len(curve["seconds"]) < 3 else "",
            label=found[flow].title,
        )
    ends = [max(curve["valid"]) for curve in curves.values()]
    top = max(ends)
    bottom = max(min(ends), top - OUTLYING * (top - median(ends)))
    margin = MARGIN * (top - bottom) or 0.5
    axes.set_ylim(bottom - margin, top + margin)
    axes.set_xlim(left=0)
    set_labels(axes, x="seconds of training")
