"""Small tables: whitened rows, a smooth start, a prior and noise."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine, make_friedman1
from sklearn.mixture import GaussianMixture

from bnaf import BNAF, Model, ShapeError, TableError, TrainingSettings
from bnaf.estimators import ConditionalFlowDensity, FlowDensity
from bnaf.flows.registry import flow_named, flow_names
from bnaf.model._data import FitData
from bnaf.model._wish import Wish
from bnaf.model.standardisation import Standardisation
from bnaf.model.whitening import SHRINKAGES, whiten
from bnaf.tables.table import Table
from bnaf.training import ArrayRows, MaximumLikelihood, TableFacts, fit, resolve
from bnaf.training.prior import Prior


def correlated(count, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(columns, columns, generator=generator, dtype=torch.float64)
    return torch.randn(count, columns, generator=generator, dtype=torch.float64) @ mix + 3


def whitened(rows, given=None, weights=None):
    return whiten(Standardisation.from_rows(rows, weights), rows, given, weights)


def test_whitened_rows_do_not_correlate():
    rows = correlated(5000, 4)
    z = whitened(rows).apply(rows)
    torch.testing.assert_close(z.T @ z / len(z), torch.eye(4).double(), atol=0.05, rtol=0)


def test_rows_are_whitened_of_what_is_given():
    rows = correlated(5000, 5)
    given = Standardisation.from_rows(rows[:, :2]).apply(rows[:, :2])
    z = whitened(rows[:, 2:], given).apply(rows[:, 2:], given)
    torch.testing.assert_close(given.T @ z / len(z), torch.zeros(2, 3).double(), atol=0.05, rtol=0)


def test_the_log_det_of_a_whitening_is_that_of_its_jacobian():
    rows = correlated(50, 3)
    scales = whitened(rows)
    jacobian = torch.func.jacrev(scales.apply)(rows[0])
    assert scales.log_det == pytest.approx(torch.linalg.slogdet(jacobian).logabsdet.item())


@pytest.mark.parametrize("batch", [(), (1,), (50,), (7, 50)])
def test_a_whitening_is_inverted_for_any_batch(batch):
    rows = correlated(50, 4)
    given = Standardisation.from_rows(rows[:, :1]).apply(rows[:, :1])
    scales = whitened(rows[:, 1:], given)
    x = torch.randn(*batch, 3, dtype=torch.float64)
    context = given[0] if batch == () else given[: batch[-1]]
    torch.testing.assert_close(scales.invert(scales.apply(x, context), context), x)


def test_a_whitening_asks_for_the_given_columns():
    rows = correlated(50, 3)
    scales = whitened(rows[:, 1:], rows[:, :1])
    with pytest.raises(ShapeError, match="expects 1 given columns, got none"):
        scales.apply(rows[:, 1:])


def left_out_density(z, shrinkage):
    """Return the mean log-density of rows, each under the shrunk Gaussian of all others."""
    densities = []
    for index in range(len(z)):
        others = torch.cat([z[:index], z[index + 1 :]])
        centred = others - others.mean(0)
        spread = (1 - shrinkage) * centred.T @ centred / len(others)
        spread += shrinkage * torch.eye(3).double()
        law = torch.distributions.MultivariateNormal(others.mean(0), spread)
        densities.append(law.log_prob(z[index]))
    return torch.stack(densities).mean()


@pytest.mark.parametrize("seed", range(6))
def test_correlations_shrink_by_the_share_that_rows_left_out_are_likeliest_under(seed):
    rows = correlated(12, 3, seed)
    z = Standardisation.from_rows(rows).apply(rows)
    best = max(SHRINKAGES, key=lambda shrinkage: left_out_density(z, shrinkage))
    shrunk = (1 - best) * z.T @ z / 12 + best * torch.eye(3).double()
    torch.testing.assert_close(whitened(rows).factor, torch.linalg.cholesky(shrunk))


def test_a_whitening_knows_no_order_and_no_scale_of_weights():
    rows, weights = correlated(40, 3), torch.rand(40, dtype=torch.float64)
    order = torch.randperm(40)
    one, two = whitened(rows, None, weights), whitened(rows[order], None, 5 * weights[order])
    torch.testing.assert_close(one.factor, two.factor)


@pytest.mark.parametrize("kind", ["one row", "constant column", "twice the same column", "wide"])
def test_degenerate_rows_are_whitened_to_finite_ones(kind):
    rows = correlated(1 if kind == "one row" else 30, 3)
    if kind == "constant column":
        rows[:, 1] = 2
    if kind == "twice the same column":
        rows[:, 1] = rows[:, 0]
    if kind == "wide":
        rows = correlated(5, 9)
    scales = whitened(rows)
    assert scales.apply(rows).isfinite().all()
    assert math.isfinite(scales.log_det)


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (torch.eye(3), "one row of factor per column"),
        (torch.ones(2, 2), "lower triangular"),
        (-torch.eye(2), "positive diagonal"),
        (torch.tensor([[1.0, 0.0], [torch.nan, 1.0]]), "finite factor"),
    ],
)
def test_a_factor_is_checked(factor, message):
    with pytest.raises((ShapeError, TableError), match=message):
        Standardisation(torch.zeros(2), torch.ones(2), factor)


def test_a_small_table_starts_smoothly():
    model = Model.fit(correlated(200, 3), settings=TrainingSettings(steps=1), progress=False)
    networks = model.flow.networks
    assert networks.bias.std().item() == pytest.approx(1, abs=0.3)
    assert networks.log_gain.mean().item() == pytest.approx(-1, abs=0.1)


def test_a_model_with_given_columns_scores_in_the_units_of_the_table():
    rows = correlated(100, 3)
    table = Table(rows, ("a", "b", "c"))
    settings = TrainingSettings(steps=50)
    model = Model.fit(table, given=["b"], settings=settings, progress=False)
    grid = torch.linspace(-40, 40, 400, dtype=torch.float64)
    points = torch.cartesian_prod(grid, grid)
    density = model.log_prob(points, rows[:1, 1:2]).exp()
    assert (density.sum() * (grid[1] - grid[0]) ** 2).item() == pytest.approx(1, abs=1e-3)
    drawn = model.sample(4000, rows[0, 1:2], seed=0)
    others = torch.stack([rows[:, 0], rows[:, 2]], 1)
    line = torch.linalg.lstsq(torch.stack([rows[:, 1], torch.ones(100)], 1).double(), others)
    expected = line.solution.T @ torch.tensor([rows[0, 1], 1.0]).double()
    torch.testing.assert_close(drawn.mean(0), expected, atol=0.6, rtol=0)


@pytest.mark.parametrize(("columns", "white"), [(256, True), (257, True), (2049, False)])
def test_only_the_widest_tables_are_not_whitened(columns, white):
    rows = torch.randn(4, columns, dtype=torch.float64)
    table = Table(rows, tuple(f"x{index}" for index in range(columns)))
    data = FitData.read(table, Wish())
    assert data.facts.white == white
    assert (data.encoding.standardisation.factor is not None) == white


def test_a_large_table_is_not_whitened():
    model = Model.fit(torch.randn(1200, 2), settings=TrainingSettings(steps=1), progress=False)
    assert model.standardisation.factor is None


def test_the_prior_adds_the_gradient_of_its_formula():
    flow = BNAF(3, transforms=1, hidden_layers=1, width=2).double()
    objective = MaximumLikelihood(flow)
    parameters = list(flow.parameters())
    prior = Prior(objective, parameters, 0.1)
    starts = [parameter.detach().clone() for parameter in parameters]
    for parameter in parameters:
        parameter.data += torch.randn_like(parameter)
        parameter.grad = torch.zeros_like(parameter)
    loss = 0.0
    for (name, parameter), start in zip(flow.named_parameters(), starts, strict=True):
        matrix = name == "networks.weight"
        moved = parameter - (0.0 if matrix else start)
        loss = loss + 0.1 * (6.0 if matrix else 1.0) / 2 * moved.square().sum()
    prior.add_gradient()
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_noise_is_fresh_keeps_the_scale_and_knows_no_processes():
    rows = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    source = ArrayRows(rows, rows[:, :1], noise=0.5, seed=1)
    first, second = (next(source.batches(epoch)) for epoch in (0, 1))
    assert not torch.equal(first.rows, second.rows)
    assert first.rows.var() == pytest.approx(rows.var().item(), abs=0.05)
    assert not torch.equal(first.context, rows[:, :1])
    shares = [next(source.batches(1, rank=rank, world_size=2)) for rank in (0, 1)]
    for rank, share in enumerate(shares):
        torch.testing.assert_close(share.rows, second.rows[rank::2])
    assert torch.equal(next(source.all_batches()).rows, source.table.rows)


def test_tables_are_suited_where_settings_are_open():
    def suit(settings, rows, *, white):
        facts = TableFacts(rows=rows, columns=4, worth=rows, standardised=True, white=white)
        chosen = resolve(settings, facts, BNAF)
        return chosen.pull, chosen.noise

    assert suit(TrainingSettings(pull=3.0), 256, white=True) == (3.0, 0.125)
    assert suit(TrainingSettings(), 256, white=False) == (1.0, 0.0)
    assert suit(TrainingSettings(batch=64), 256, white=True) == (1.0, 0.0)
    assert suit(TrainingSettings(), 5001, white=False) == (0.0, 0.0)
    assert suit(TrainingSettings.paper(), 100, white=True) == (0.0, 0.0)


@pytest.mark.parametrize("name", flow_names())
def test_a_flow_brings_its_own_learning_rate(name):
    flow = flow_named(name)(2)
    settings = TrainingSettings(steps=1)
    record = fit(flow, torch.randn(50, 2), settings=settings, progress=False)
    assert record.settings["learning_rate"] == type(flow).learning_rate


def held_out_lead(rows, make):
    """Return by how many nats a default fit beats the Gaussian of the same rows."""
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    train, test = rows[: 2 * len(rows) // 3], rows[2 * len(rows) // 3 :]
    return make().fit(train).score(test) - GaussianMixture(1).fit(train).score(test)


def test_the_default_beats_a_gaussian_on_wine():
    assert held_out_lead(load_wine().data, FlowDensity) > 0.3


def test_the_default_does_not_memorise_gaussian_rows():
    assert held_out_lead(correlated(60, 5).numpy(), FlowDensity) > -0.1


@pytest.mark.slow
def test_the_conditional_default_beats_a_linear_regression():
    X, y = make_friedman1(300, n_features=5, random_state=0)
    law = ConditionalFlowDensity().fit(X[:200], y[:200])
    design = np.column_stack([X, np.ones(300)])
    slopes, *_ = np.linalg.lstsq(design[:200], y[:200], rcond=None)
    residuals = y - design @ slopes
    variance = np.square(residuals[:200]).mean()
    linear = -0.5 * np.square(residuals[200:]).mean() / variance
    linear -= 0.5 * math.log(2 * math.pi * variance)
    assert law.score(X[200:], y[200:]) > linear + 0.1
