"""The course of a fit."""

import math

from matplotlib.axes import Axes

from bnaf.errors import SettingsError
from bnaf.model.model import Model
from bnaf.plots.style import ABOVE, COLOURS, DATA, MODEL, set_labels, show_legend

TAIL = 0.05  # the y-axis ends where the course is after this share of it


def plot_training(axes: Axes, model: Model) -> Axes:
    """Draw log-likelihoods of training and validation rows over the steps of a fit.

    The worst of the beginning lies below the figure, so that the rest can be told apart.

    Args:
        axes: Where to draw.
        model: What was fitted, with the record of it.

    Raises:
        SettingsError: If the model has no such record.
    """
    history = model.record.get("history")
    if not history:
        raise SettingsError(
            "Expected a model with a record of its training, got none; fit one with Model.fit."
        )
    steps = [entry["step"] for entry in history]
    train = [model.log_likelihood(entry["loss"]) for entry in history]
    axes.plot(steps, train, color=DATA, marker="." if len(steps) < 3 else "", label="training")
    courses = [train]
    if all(entry["valid"] is not None for entry in history):
        valid = [model.log_likelihood(entry["valid"], "valid") for entry in history]
        courses.append(valid)
        axes.plot(steps, valid, color=MODEL, linestyle="--", label="validation")
        _mark_best(axes, model, dict(zip(steps, valid, strict=True)))
    _set_limits(axes, courses)
    set_labels(axes, x="step", y="log-likelihood (nats per row)")
    show_legend(axes, fontsize=8, ncols=3, **ABOVE)
    return axes


def _mark_best(axes: Axes, model: Model, course: dict[int, float]) -> None:
    """Mark the step whose weights were kept, where it stands in the course of validation."""
    step = model.record.get("best_step")
    if step:
        near = min(course, key=lambda other: abs(other - step))  # of long runs not all are told
        axes.plot(near, course[near], "o", color=COLOURS[2], markersize=6, label="kept", zorder=3)


def _set_limits(axes: Axes, courses: list[list[float]]) -> None:
    finite = [[value for value in course if math.isfinite(value)] for course in courses]
    finite = [course for course in finite if course]
    if not finite:
        return
    top = max(max(course) for course in finite)
    bottom = min(min(course[int(TAIL * len(course)) :]) for course in finite)
    margin = 0.08 * (top - bottom) or 0.5
    axes.set_ylim(bottom - margin, top + margin)
