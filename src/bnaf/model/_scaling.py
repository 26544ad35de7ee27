"""The base of a conditional density, scaled by rows that the flow was not trained on."""

import copy

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
STEPS = 100  # of the search, at most

Ends = tuple[Float64[Tensor, " rows"], Float64[Tensor, " rows"]]


def scale_base(flow: Flow, data: FitData) -> None:
    r"""Give the noise of one column given others the mean and deviation of validation rows.

    What a context network has seen it remembers a little, so that it is too sure of other rows:
    their noise spreads wider than that of those it was trained on. The base then follows
    :math:`\mathcal N(m, s^2)`, and

    .. math:: m, s = \arg\max \sum_i w_i \log \mathcal N(z_i; m, s^2)

    over validation rows, or the same of the masses of their cells, with some rows of standard
    normal noise beside them, which is what is taken for true where they are few. Flows on
    another base stay as they are, and so do those whose rows judge each other in folds.

    Args:
        flow: The flow, as it was trained.
        data: The rows of its fit.
    """
    fitted = isinstance(flow, TransformFlow) and flow.settings.get("base") == "normal"
    if not fitted or flow.features > 1 or not flow.context_features or data.valid is None:
        return
    assert isinstance(flow, TransformFlow)
    parts = list(_batches(data.valid))
    if any("fold" in part.more for part in parts):
        return
    with torch.no_grad():
        low, high = _noise(flow, parts)
    if low.isfinite().all() and high.isfinite().all():
        location, scale = _likeliest((low, high), _weights(parts), cells="cells" in parts[0].more)
        flow.scale_base(location, scale)


def _batches(rows: Batch | StreamRows) -> list[Batch]:
    return [rows] if isinstance(rows, Batch) else list(rows.all_batches())


def _noise(flow: TransformFlow, parts: list[Batch]) -> Ends:
    """Return the noise of rows, or that of the ends of their cells."""
    like = next(flow.parameters()).detach().double()
    exact = copy.deepcopy(flow).to(torch.float64).eval()
    found: tuple[list[Tensor], list[Tensor]] = ([], [])
    for part in parts:
        rows, context = part.rows.to(like), None if part.context is None else part.context.to(like)
        reach = part.more.get("cells")
        reach = rows.new_zeros(len(rows), 2) if reach is None else reach.to(like)
        for side, ends in enumerate((rows - reach[:, :1], rows + reach[:, 1:])):
            noise = measure_rows(exact, ends, context, lambda law, x: law.base_noise(x))
            found[side].append(noise.squeeze(-1).cpu())
    return torch.cat(found[0]), torch.cat(found[1])


def _weights(parts: list[Batch]) -> Float64[Tensor, " rows"]:
    """Return how much each row counts: together what the rows are worth."""
    weights = torch.cat(
        [
            torch.ones(len(part.rows)).double() if part.weights is None else part.weights.double()
            for part in parts
        ]
    ).cpu()
    return weights * (worth_of(weights) / weights.sum())


def _likeliest(
    ends: Ends, weights: Float64[Tensor, " rows"], *, cells: bool
) -> tuple[Tensor, Tensor]:
    """Return the mean and the deviation that make noise, or intervals of it, likeliest."""
    place = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([place], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> float:
        search.zero_grad()
        location, log_scale = place
        low, high = ((end - location) * (-log_scale).exp() for end in ends)
        shares = log_normal_density(low) - log_scale
        if cells:
            shares = log_mass(high, (high - low).abs(), torch.zeros_like(high))
        normal = 0.5 * (1 + location.square()) * (-2 * log_scale).exp() + log_scale
        value = NORMAL_ROWS * normal - (weights * shares).sum()
        value = value / (NORMAL_ROWS + weights.sum())
        value.backward()
        return float(value.detach())

    with torch.enable_grad():
        search.step(loss)
    location, log_scale = place.detach()
    return location, log_scale.exp()
