"""The base of a conditional density, scaled by rows that the flow was not trained on."""

import copy
from collections.abc import Iterable

import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf.flows.flow import Flow
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.cells import log_mass
from bnaf.laws.normal import log_normal_density
from bnaf.model._chunks import measure_rows
from bnaf.model._data import FitData
from bnaf.training.batches import Batch, worth_of
from bnaf.training.streams import StreamRows

NORMAL_ROWS = 200.0  # of standard normal noise, which count beside those that are there
FARTHEST = 5.0  # noise beyond this counts as there: one wild row must not widen the law of all
SLIVER = 0.1  # of noise, within FARTHEST, that cells beyond it count as
STEPS = 100  # of the search, at most

Numbers = Float64[Tensor, " rows"]


def scale_base(flow: Flow, data: FitData) -> float | None:
    r"""Give the noise of one column given others the mean and deviation of validation rows.

    What a context network has seen it remembers a little, so that it is too sure of other rows:
    their noise spreads wider than that of those it was trained on. The base then follows
    :math:`\mathcal N(m, s^2)`, with the likeliest m and s of validation rows beside N rows of
    standard normal noise, which is what is taken for true where they are few. Noise farther than
    :data:`FARTHEST` counts as there, and weights sum to as many rows as they are worth:

    .. math:: m = \frac{\sum_i w_i z_i}{W}, \quad
              s^2 = \frac{\sum_i w_i (z_i - m)^2 + N (1 + m^2)}{W}, \qquad
              W = N + \sum_i w_i

    or, where rows stand for cells, those that make the masses of these likeliest. Flows on
    another base stay as they are, and so do those whose rows judge each other in folds, and those
    whose validation rows, wild ones counted where they are, do not gain.

    Args:
        flow: The flow, as it was trained.
        data: The rows of its fit.

    Returns:
        Nats per validation row that this gained, where it was done.
    """
    fitted = isinstance(flow, TransformFlow) and flow.settings.get("base") == "normal"
    if not fitted or flow.features > 1 or not flow.context_features or data.valid is None:
        return None
    assert isinstance(flow, TransformFlow)
    first = data.valid if isinstance(data.valid, Batch) else None
    if flow.direction != "density" or (first is not None and "fold" in first.more):
        return None
    low, high, weights = _noise(flow, _batches(data.valid))
    place = _find_place(low, high, weights)
    gains = _scores(low, high, place) - _scores(low, high, torch.zeros_like(place))
    gain = float((weights * gains).sum() / weights.sum())
    if not gain > 0:
        return None
    flow.scale_base(place[:1], place[1:].exp())
    return gain


def _batches(rows: Batch | StreamRows) -> Iterable[Batch]:
    return [rows] if isinstance(rows, Batch) else rows.all_batches()


@torch.no_grad()
def _noise(flow: TransformFlow, parts: Iterable[Batch]) -> tuple[Numbers, Numbers | None, Numbers]:
    """Return the noise of rows, or that of the ends of their cells, and how much each counts."""
    like = next(flow.parameters()).detach().double()
    exact = copy.deepcopy(flow).to(torch.float64).eval()

    def measure(rows: Tensor, context: Tensor | None) -> Numbers:
        noise = measure_rows(exact, rows, context, lambda law, x: law.base_noise(x))
        return noise.squeeze(-1).cpu()

    lows, highs, weights = [], [], []
    for part in parts:
        rows, context = part.rows.to(like), None if part.context is None else part.context.to(like)
        if "cells" in part.more:
            below, above = part.more["cells"].to(like).split(1, -1)
            highs.append(measure(rows + above, context))
            rows = rows - below
        lows.append(measure(rows, context))
        counts = part.weights
        weights.append(rows.new_ones(len(rows)) if counts is None else counts.double())
    low, counted = torch.cat(lows), torch.cat(weights).cpu()
    high = torch.cat(highs) if highs else None
    return low, high, counted * (worth_of(counted) / counted.sum())


def _find_place(low: Numbers, high: Numbers | None, weights: Numbers) -> Float64[Tensor, "2"]:
    """Return the likeliest mean, and the logarithm of the likeliest deviation."""
    if high is None:
        return _mean_and_deviation(low.clamp(-FARTHEST, FARTHEST), weights)
    low = low.clamp(-FARTHEST, FARTHEST - SLIVER)
    return _search(low, high.clamp(-FARTHEST + SLIVER, FARTHEST), weights)


def _mean_and_deviation(z: Numbers, weights: Numbers) -> Float64[Tensor, "2"]:
    """Return mean and log-deviation of noise in closed form."""
    total = NORMAL_ROWS + weights.sum()
    mean = (weights * z).sum() / total
    variance = (weights * (z - mean) ** 2).sum() + NORMAL_ROWS * (1 + mean**2)
    return torch.stack([mean, 0.5 * (variance / total).log()])


def _search(low: Numbers, high: Numbers, weights: Numbers) -> Float64[Tensor, "2"]:
    """Return the same of intervals of noise."""
    place = torch.zeros(2, dtype=torch.float64, device="cpu", requires_grad=True)
    search = torch.optim.LBFGS([place], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> float:
        search.zero_grad()
        mean, log_scale = place.unbind()
        normal = 0.5 * (1 + mean.square()) * (-2 * log_scale).exp() + log_scale
        value = NORMAL_ROWS * normal - (weights * _scores(low, high, place)).sum()
        value = value / (NORMAL_ROWS + weights.sum())
        value.backward()
        return float(value.detach())

    with torch.enable_grad():
        search.step(loss)
    found: Tensor = place.detach()
    return found


def _scores(low: Numbers, high: Numbers | None, place: Float64[Tensor, "2"]) -> Numbers:
    """Return the log-density of noise, or the log-mass of intervals of it."""
    mean, log_scale = place.unbind()
    z = (low - mean) * (-log_scale).exp()
    if high is None:
        return log_normal_density(z) - log_scale
    known = high > low
    width = torch.where(known, (high - low) * (-log_scale).exp(), 1.0)
    found: Tensor = torch.where(known, log_mass(z, torch.zeros_like(z), width), 0.0)
    return found
