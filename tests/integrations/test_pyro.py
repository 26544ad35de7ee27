"""Flows as Pyro's laws, transforms and guides."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pyro = pytest.importorskip("pyro", reason="Pyro is not installed: make test-integrations")

from cases import randomise  # noqa: E402
from pyro import distributions as dist  # noqa: E402
from pyro.infer import SVI, Predictive, Trace_ELBO  # noqa: E402
from pyro.infer.autoguide import AutoNormalizingFlow  # noqa: E402

from bnaf import BNAF  # noqa: E402
from bnaf.flows.iaf import IAF  # noqa: E402
from bnaf.integrations.pyro import (  # noqa: E402
    AutoBNAF,
    ConditionalFlowTransform,
    FlowLaw,
    FlowTransform,
)

FLOWS = {
    "density": lambda context=0: BNAF(2, context, width=4, transforms=2),
    "sampling": lambda context=0: BNAF(2, context, width=4, transforms=2, direction="sampling"),
    "iaf": lambda context=0: IAF(2, context, transforms=2, width=6, direction="sampling"),
}


@pytest.fixture(autouse=True)
def _empty_store():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)


@pytest.fixture(params=FLOWS)
def make(request):
    def build(context=0):
        flow = FLOWS[request.param](context).double()
        randomise(flow)
        return flow

    return build


def base(*batch):
    return dist.Normal(torch.zeros(*batch, 2, dtype=torch.float64), 1.0).to_event(1)


def test_the_transformed_law_is_that_of_the_flow(make):
    flow, x = make(), torch.randn(5, 2, dtype=torch.float64)
    law = dist.TransformedDistribution(base(), [FlowTransform(flow)])
    torch.testing.assert_close(law.log_prob(x), flow().log_prob(x))


def test_the_density_of_a_draw_is_that_of_the_flow(make):
    flow = make()
    law = dist.TransformedDistribution(base(), [FlowTransform(flow)])
    x = law.rsample((5,))
    torch.testing.assert_close(law.log_prob(x), flow().log_prob(x.detach()))


def test_the_density_of_the_last_draw_needs_no_other_pass(make):
    flow = make()
    law = dist.TransformedDistribution(base(), [FlowTransform(flow)])
    x = law.rsample((5,))
    flow.register_forward_pre_hook(lambda *_: pytest.fail("the flow was called again"))
    law.log_prob(x)


def test_without_a_cache_nothing_is_kept(make):
    transform = FlowTransform(make()).with_cache(0)
    z = torch.randn(3, 2, dtype=torch.float64)
    x = transform(z)
    assert transform._last is None
    torch.testing.assert_close(transform.inv(x), z)


def test_conditional_transforms_have_the_law_of_their_context(make):
    flow = make(3)
    context, x = torch.randn(4, 3).double(), torch.randn(4, 2).double()
    module = ConditionalFlowTransform(flow)
    law = dist.conditional.ConditionalTransformedDistribution(base(), [module])
    torch.testing.assert_close(law.condition(context).log_prob(x), flow(context).log_prob(x))


def test_the_batch_of_contexts_broadens_that_of_the_law(make):
    module = ConditionalFlowTransform(make(3))
    transform = module.condition(torch.randn(4, 3).double())
    law = dist.TransformedDistribution(base(), [transform])
    assert law.batch_shape == (4,)
    assert law.sample((7,)).shape == (7, 4, 2)
    assert law.sample().unique(dim=0).shape == (4, 2)


@pytest.mark.parametrize("kind", [FlowTransform, ConditionalFlowTransform])
def test_the_weights_are_parameters_in_the_store(make, kind):
    flow = make(3 if kind is ConditionalFlowTransform else 0)
    pyro.module("flow", kind(flow))
    stored = {id(value.unconstrained()) for value in map(pyro.param, pyro.get_param_store())}
    assert {id(weight) for weight in flow.parameters()} == stored


def test_the_inverse_of_a_conditional_transform_is_its_inverse(make):
    module, context = ConditionalFlowTransform(make(3)), torch.randn(3).double()
    x = torch.randn(4, 2).double()
    z = module.inv.condition(context)(x)
    torch.testing.assert_close(module.condition(context)(z), x)


def test_laws_are_sampled_and_observed_in_plates(make):
    flow, context = make(3), torch.randn(4, 3).double()
    rows = torch.randn(5, 4, 2).double()

    def model(rows=None):
        with pyro.plate("times", 5, dim=-2), pyro.plate("rows", 4, dim=-1):
            return pyro.sample("x", FlowLaw(flow(context)), obs=rows)

    assert model().shape == (5, 4, 2)
    trace = pyro.poutine.trace(model).get_trace(rows)
    torch.testing.assert_close(trace.log_prob_sum(), flow(context).log_prob(rows).sum())


def test_a_law_is_the_same_after_it_was_expanded(make):
    law = FlowLaw(make()())
    assert isinstance(law.expand((3,)), FlowLaw)
    x = law.expand((3,)).sample((2,))
    torch.testing.assert_close(law.expand((3,)).log_prob(x), law.log_prob(x))


def schools():
    effects = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def model():
        mean = pyro.sample("mean", dist.Normal(0.0, 10.0))
        spread = pyro.sample("spread", dist.HalfCauchy(5.0))
        with pyro.plate("schools", 8):
            effect = pyro.sample("effect", dist.Normal(mean, spread))
            pyro.sample("seen", dist.Normal(effect, errors), obs=effects)

    return model


def test_the_guide_learns_with_particles_in_a_plate():
    model = schools()
    guide = AutoBNAF(model, transforms=2, width=4)
    loss = Trace_ELBO(num_particles=8, vectorize_particles=True, max_plate_nesting=1)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.02}), loss)
    losses = [svi.step() for _ in range(60)]
    assert sum(losses[-10:]) < sum(losses[:10]) - 50
    drawn = Predictive(model, guide=guide, num_samples=6)()
    assert drawn["effect"].shape == (6, 8)


def test_the_guide_starts_where_it_is_told():
    guide = AutoBNAF(schools(), init_scale=1e-3)
    guide()
    effects = torch.stack([guide()["effect"] for _ in range(20)])
    assert effects.std(0).max() < 0.1


def test_the_guide_is_of_the_type_of_the_model():
    def model():
        pyro.sample("x", dist.Normal(torch.zeros(3).double(), 1.0).to_event(1))

    guide = AutoBNAF(model)
    assert guide()["x"].dtype == torch.float64
    assert all(weight.dtype == torch.float64 for weight in guide.parameters())


def test_quantiles_of_the_guide_are_those_of_its_draws():
    def model():
        pyro.sample("x", dist.Normal(torch.tensor([1.0, -3.0]), 1.0).to_event(1))

    guide = AutoBNAF(model, transforms=1, width=3)
    guide()
    low, high = guide.quantiles([0.1, 0.9])["x"]
    drawn = torch.stack([guide()["x"] for _ in range(2000)])
    share = ((drawn > low) & (drawn < high)).float().mean(0)
    torch.testing.assert_close(share, torch.full((2,), 0.8), atol=0.05, rtol=0)


def test_pyros_own_guide_takes_the_transform():
    def make(features):
        return FlowTransform(BNAF(features, direction="sampling", width=3))

    guide = AutoNormalizingFlow(schools(), make)
    svi = SVI(schools(), guide, pyro.optim.Adam({"lr": 0.01}), Trace_ELBO())
    assert torch.isfinite(torch.tensor(svi.step()))


def test_the_example_draws_with_and_without_the_flow():
    path = Path(__file__).parents[2] / "examples" / "neutra.py"
    command = [sys.executable, str(path), "--steps", "3", "--draws", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in ("NUTS alone", "NUTS through the flow"):
        assert re.search(rf"^{name}: \S+ effective draws of 4", done.stdout, re.MULTILINE)
