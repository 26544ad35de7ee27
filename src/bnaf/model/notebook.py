"""A model as notebooks show it: a few lines of HTML with a small picture of every column."""

import warnings
from html import escape
from typing import Any

import torch
from torch import Tensor

from bnaf._text import number, plain_name
from bnaf.errors import BnafError, RedrawWarning
from bnaf.model.description import describe
from bnaf.model.model import Model

DRAWS, BARS, MOST_COLUMNS = 1000, 24, 20
WIDTH, HEIGHT = 120, 24  # of a picture, in pixels
SHOWN = {
    "name": "column",
    "type": "type",
    "kind": "kind",
    "mean": "mean",
    "deviation": "deviation",
}


def show_model(model: Model) -> str:
    """Return a model as HTML: its flow, how well it fits, and its columns.

    Pictures are histograms of rows that the model draws, always the same ones. Given columns, and
    the columns of a model that has some, have none: what they are like depends on what is given.

    Args:
        model: The model.

    Example:
        >>> from bnaf import BNAF
        >>> show_model(Model(BNAF(2), columns=["height", "weight"])).count("<svg")
        2
    """
    facts = describe(model)
    lines = [f"<b>{escape(facts['flow'])}</b> with {facts['weights']:,} weights"]
    for name, what in (("log_likelihood", "training"), ("valid_log_likelihood", "validation")):
        if name in facts["training"]:
            found = number(facts["training"][name])
            lines.append(f"log-likelihood ({what}): {found} nats per row")
    pictures = _pictures(model)
    keys = [key for key in SHOWN if key in facts["columns"][0]]
    head = "".join(f"<th>{SHOWN[key]}</th>" for key in keys) + "<th>drawn</th>"
    rows = [
        _row(column, keys, pictures.get(index, ""))
        for index, column in enumerate(facts["columns"][:MOST_COLUMNS])
    ]
    rows += [_row(column, keys, "given") for column in facts["given_columns"][:MOST_COLUMNS]]
    left_out = len(facts["columns"]) + len(facts["given_columns"]) - len(rows)
    if left_out:
        rows.append(f"<tr><td>… and {left_out} more</td></tr>")
    return f"<div>{'<br>'.join(lines)}<table><tr>{head}</tr>{''.join(rows)}</table></div>"


def _row(column: dict[str, Any], keys: list[str], last: str) -> str:
    """Return a column as a row of a table."""
    cells = []
    for key in keys:
        value = column.get(key, "")
        text = number(value) if isinstance(value, float) else plain_name(str(value))
        cells.append(f"<td>{escape(text)}</td>")
    return f"<tr>{''.join(cells)}<td>{last}</td></tr>"


def _pictures(model: Model) -> dict[int, str]:
    """Return a histogram of each column as far as columns are shown."""
    if model.given_columns:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RedrawWarning)
            drawn = model.sample(DRAWS, seed=0, outside="redraw")
    except BnafError:  # a flow that reaches nothing is still shown
        return {}
    columns = drawn.t().cpu()[:MOST_COLUMNS]
    return {index: _histogram(column) for index, column in enumerate(columns)}


def _histogram(values: Tensor) -> str:
    """Return a histogram as SVG; the outermost hundredths are left out."""
    values = values[values.isfinite()]
    if not len(values):
        return ""
    low, high = torch.quantile(values, torch.tensor([0.01, 0.99], dtype=values.dtype)).tolist()
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts = torch.histc(values, BARS, low, high)
    heights = (HEIGHT * counts / counts.max().clamp(min=1)).tolist()
    bar = WIDTH / BARS
    bars = "".join(
        f'<rect x="{index * bar:.1f}" y="{HEIGHT - height:.1f}" width="{bar - 0.5:.1f}" '
        f'height="{height:.1f}"/>'
        for index, height in enumerate(heights)
    )
    label = f"from {low:.4g} to {high:.4g}"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" fill="#4878a8" role="img" '
        f'aria-label="{label}"><title>{label}</title>{bars}</svg>'
    )
