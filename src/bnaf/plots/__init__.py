"""Figures of models and tables: each function takes matplotlib Axes, draws, and returns them.

Colours are of Okabe and Ito's palette or viridis, which people with any colour vision tell apart;
what matters differs in line or place too, so that it survives a grey printer. Log-densities are
in nats and in the units of the table.
"""

from bnaf.plots.cells import plot_cells
from bnaf.plots.density import DensityGrid, evaluate_density, plot_density
from bnaf.plots.figures import (
    calibration_figure,
    density_figure,
    pairs_figure,
    scores_figure,
    shares_figure,
    training_figure,
    whole_row_figure,
)
from bnaf.plots.judgement import plot_calibration, plot_scores, plot_shares
from bnaf.plots.rows import plot_pairs, plot_points
from bnaf.plots.style import COLOURS, DATA, INK, MODEL, new_figure, styled, write_figure
from bnaf.plots.training import plot_training

__all__ = [
    "COLOURS",
    "DATA",
    "INK",
    "MODEL",
    "DensityGrid",
    "calibration_figure",
    "density_figure",
    "evaluate_density",
    "new_figure",
    "pairs_figure",
    "plot_calibration",
    "plot_cells",
    "plot_density",
    "plot_pairs",
    "plot_points",
    "plot_scores",
    "plot_shares",
    "plot_training",
    "scores_figure",
    "shares_figure",
    "styled",
    "training_figure",
    "whole_row_figure",
    "write_figure",
]
