"""How the block flow starts."""

import pytest
import torch
from cases import randomise

from bnaf import BNAF, SettingsError, ShapeError
from bnaf._random import private_draws
from bnaf.flows.ensemble import Ensemble

FEATURES = 6


def divergence_of(flow, context=None):
    """Return the divergence between the law of a flow and a normal one, by closed forms alone."""
    with torch.no_grad(), private_draws(1):
        law = flow(context)
        drawn = flow.direction == "sampling"
        x = law.sample((2000,)) if drawn else torch.randn(2000, *law.batch_shape, FEATURES)
        gap = torch.distributions.Normal(0, 1).log_prob(x).sum(-1) - law.log_prob(x)
        return (-gap if drawn else gap).mean().item()


@pytest.mark.parametrize("direction", ["density", "sampling"])
@pytest.mark.parametrize("hidden_layers", [1, 2, 3])
def test_a_flow_that_starts_at_the_identity_starts_near_a_normal_law(hidden_layers, direction):
    settings = {"hidden_layers": hidden_layers, "width": 4, "direction": direction}
    with private_draws(0):
        flow = BNAF(FEATURES, **settings, init="identity")
        far = BNAF(FEATURES, **settings)
    assert 0 < divergence_of(flow) < 1 < divergence_of(far)


@pytest.mark.parametrize("context", ["biases", "amortised"])
def test_contexts_leave_a_start_at_the_identity_near_it(context):
    with private_draws(0):
        flow = BNAF(FEATURES, 3, width=4, hidden_layers=1, context=context, init="identity")
        assert 0 < divergence_of(flow, torch.randn(5, 3)) < 1


def test_a_smooth_start_forgets_the_gains_of_before():
    with private_draws(0):
        flow = BNAF(2, 3, width=4, context="amortised", direction="sampling")
        flow.start_smoothly()
        contexts = flow.conditioner(torch.zeros(1, 3))
    assert torch.allclose(contexts.row_scales, torch.ones_like(contexts.row_scales), atol=0.3)


@pytest.fixture(params=[0, 2])
def column(request):
    """A flow of one column, without and with a context, rows and the reach of their cells."""
    flow = BNAF(1, request.param, transforms=3, width=4).double()
    randomise(flow, 0.5)
    context = torch.randn(30, 2, dtype=torch.float64) if request.param else None
    cells = torch.rand(30, 2, dtype=torch.float64) + 0.1
    return flow, context, torch.randn(30, 1, dtype=torch.float64), cells


def test_the_mean_density_of_a_cell_is_its_mass_over_its_width(column):
    flow, context, x, cells = column
    law = flow(context)
    mass = law.cdf(x + cells[:, 1:]) - law.cdf(x - cells[:, :1])
    found = law.log_mean_density(x, cells)
    torch.testing.assert_close(found, (mass / cells.sum(1)).log())


def test_the_mean_density_of_a_cell_without_width_is_that_of_the_row(column):
    flow, context, x, cells = column
    found = flow(context).log_mean_density(x, torch.zeros_like(cells))
    torch.testing.assert_close(found, flow(context).log_prob(x))


def test_gradients_of_losses_of_cells_are_those_of_finite_differences(column):
    flow, context, x, cells = column
    flow.requires_grad_(False)

    def losses(rows, weights, *given):
        return torch.func.functional_call(
            Losses(flow), {"flow.networks.weight": weights}, (rows, *given, cells[:4])
        )

    rows, weights = x[:4].requires_grad_(), flow.networks.weight.clone().requires_grad_()
    given = None if context is None else context[:4].requires_grad_()
    assert torch.autograd.gradcheck(losses, (rows, weights, given))


@pytest.mark.parametrize("direction", ["density", "sampling"])
def test_a_scaled_base_leaves_the_direction_as_it_is(direction):
    flow = BNAF(3, width=2, transforms=2, direction=direction).double()
    flow.scale_base(torch.tensor([0.3, -0.2, 0.0]), torch.tensor([0.7, 1.0, 1.4]))
    law = flow()
    assert law.direction == direction
    x = law.sample((50,))
    z = law.transform(x)
    torch.testing.assert_close(law.transform.inv(z), x, atol=1e-9, rtol=1e-9)


class Losses(torch.nn.Module):
    """The losses of a flow as a module's forward, whose weights can be given."""

    def __init__(self, flow):
        super().__init__()
        self.flow = flow

    def forward(self, rows, context, cells):
        return self.flow.losses(rows, context, cells=cells)


def test_cells_are_taken_by_flows_of_one_column_with_a_normal_base():
    assert BNAF(1).takes_cells
    for other in (BNAF(2), BNAF(1, direction="sampling"), BNAF(1, base="student")):
        assert not other.takes_cells


@pytest.mark.parametrize(
    "flow", [BNAF(2), BNAF(1, direction="sampling"), BNAF(1, base="student"), Ensemble(1)]
)
def test_mean_densities_of_cells_are_refused_where_they_are_not_known(flow):
    with pytest.raises(SettingsError, match=r"laws of one feature|of B-NAF in the density"):
        flow().log_mean_density(torch.zeros(3, flow.features), torch.ones(3, 2))


@pytest.mark.parametrize("shape", [(3, 3), (2,), (4, 2)])
def test_cells_have_two_ends_for_each_row(shape):
    with pytest.raises(ShapeError, match=r"two numbers for each row, shape \(3, 2\), got"):
        BNAF(1)().log_mean_density(torch.zeros(3, 1), torch.ones(shape))
