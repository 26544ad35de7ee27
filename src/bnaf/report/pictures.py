"""The figures of a report: SVG in data URIs, whose colours follow light or dark mode."""

import base64
from collections.abc import Iterator
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure

from bnaf.plots.figures import (
    density_figure,
    pairs_figure,
    scores_figure,
    shares_figure,
    training_figure,
    whole_row_figure,
    worst_columns,
)
from bnaf.plots.style import DATA, INK, MODEL, encode_figure, styled
from bnaf.report.assessment import Assessment

MOST_PAIRED = 4
TEXTS = {
    "training": "Log-likelihood over the steps of the fit.",
    "pairs": "Pairs of columns: data below the diagonal, samples of the model above.",
    "density": "Heat map of the density, with contours of mass.",
    "shares": "Histograms of the shares of samples below the rows, column by column.",
    "whole_row": "Deviation of the base noise from what the model says.",
    "scores": "Histograms of the log-densities of rows and of samples of the model.",
}
DARK = {INK: "#d7dee6", DATA: "#4aa8e6", MODEL: "#ff8b4d"}
FONTS = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif"


class Picture(NamedTuple):
    """A figure ready for a page.

    Args:
        source: Data URI of the SVG.
        width: Width in CSS pixels.
        height: Height.
        text: What it shows, for those who do not see it.
    """

    source: str
    width: int
    height: int
    text: str


def draw_figures(assessment: Assessment, *, seed: int = 0) -> dict[str, Picture]:
    """Return the figures of a report by name.

    Args:
        assessment: What was found.
        seed: Seed of samples.
    """
    with styled(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bnaf"}):
        return {
            name: _as_picture(figure, TEXTS[name], points=name == "pairs")
            for name, figure in _figures(assessment, seed)
        }


def paired_columns(assessment: Assessment) -> list[str]:
    """Return the columns a pair plot shows: all, or those that are calibrated worst."""
    names = {test.name for test in worst_columns(assessment.check, MOST_PAIRED)}
    return [name for name in assessment.model.columns if name in names]


def _figures(assessment: Assessment, seed: int) -> Iterator[tuple[str, Figure]]:
    model, check, part = assessment.model, assessment.check, assessment.parts.judged
    if model.record.get("history"):
        yield "training", training_figure(model)
    if not assessment.private:
        yield "pairs", pairs_figure(model, part.rows, paired_columns(assessment), seed=seed)
    if model.features == 2 and not model.given_columns and model.encoding.noisy:
        yield "density", density_figure(model, seed=seed)
    yield "shares", shares_figure(check)
    yield "whole_row", whole_row_figure(check)
    scores = {f"{part.name} rows": assessment.scores[part.name].log_densities}
    yield "scores", scores_figure(model, scores, part.rows, seed=seed)


def _as_picture(figure: Figure, text: str, *, points: bool) -> Picture:
    """Return a figure as SVG, its colours made variables; pixels of points shine in the dark."""
    content = encode_figure(figure, "svg", transparent=True).decode()
    head, tag, rest = content.partition("<svg")
    attributes, close, body = rest.partition(">")
    for place, colour in enumerate(DARK):
        body = body.replace(colour.lower(), f"var(--c{place})")
    light, dark = (
        ";".join(f"--c{place}:{colour}" for place, colour in enumerate(colours))
        for colours in (DARK.keys(), DARK.values())
    )
    sheet = (
        f"<style>:root{{{light}}}text{{font-family:{FONTS}!important}}"
        f"@media(prefers-color-scheme:dark){{:root{{{dark}}}"
        f"{'image{filter:brightness(1.6)}' if points else ''}}}</style>"
    )
    drawing = f"{head}{tag}{attributes}{close}{sheet}{body}"
    source = base64.b64encode(drawing.encode()).decode()
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return Picture(f"data:image/svg+xml;base64,{source}", width, height, text)
