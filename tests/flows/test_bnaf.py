"""How the block flow starts."""

import pytest
import torch

from bnaf import BNAF
from bnaf._random import private_draws

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
