"""What torch asks of a law, over all flows."""

import pytest
import torch
from cases import FEATURES, FLOWS, SAMPLING, build, closed_form
from torch._subclasses import FakeTensorMode
from torch.distributions import (
    Categorical,
    Independent,
    MixtureSameFamily,
    Normal,
)
from torch.func import vmap

from bnaf import DtypeError, FlowDistribution, InversionError, ShapeError
from bnaf.laws.bases import StandardNormal
from bnaf.laws.estimates import estimate_divergence

every_flow = pytest.mark.parametrize("name", FLOWS)

CLOSED_FORM_SAMPLES = [
    *SAMPLING,
    *("glow", "glow_one_step", "real_nvp", "nsf_coupling"),
    *("planar", "planar_context_network", "sylvester_density"),
]


LIKE = torch.zeros(FEATURES).double()


@pytest.fixture
def case(name):
    """A flow with a context: what torch asks for is the same with kernels and without."""
    return build(name, True)


@pytest.mark.parametrize("name", CLOSED_FORM_SAMPLES)
def test_closed_form_draws_are_vectorised(case):
    law = case.flow(case.context)
    rows = vmap(lambda _: law.rsample((2,)), randomness="different")(torch.zeros(3))
    assert rows.shape == (3, 2, FEATURES)
    assert len(rows.flatten(0, 1).unique(dim=0)) == 6


@pytest.mark.parametrize("name", [name for name in FLOWS if name not in CLOSED_FORM_SAMPLES])
def test_draws_by_a_numerical_inverse_are_not_vectorised_and_say_what_is(case):
    law = case.flow(case.context)
    with pytest.raises(InversionError, match='direction="sampling" has closed-form samples'):
        vmap(lambda _: law.rsample((2,)), randomness="different")(torch.zeros(3))


@every_flow
def test_rows_and_contexts_of_lower_precision_are_taken_under_autocast(case):
    flow, rows = case.flow.float(), case.rows(4, dtype=torch.bfloat16)
    context = case.context.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        transform = closed_form(flow(context))
        found = transform(rows)
        law = flow(context)
        if law.direction == "density":  # in the other its inverse is numerical, and slow
            assert law.log_prob(rows).isfinite().all()
    assert found.dtype == transform.like.dtype == torch.float32
    exact = closed_form(flow(context.float()))(rows.float())
    torch.testing.assert_close(found, exact, rtol=0.2, atol=0.2)
    with pytest.raises(DtypeError, match=r"context must be of the flow's type torch\.float32"):
        flow(context)


@pytest.mark.parametrize("name", ["bnaf", "amortised"])
def test_no_kernel_is_called_on_fake_tensors(case):
    rows = case.rows(4)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        made = closed_form(case.flow(mode.from_tensor(case.context)))
        assert made(mode.from_tensor(rows)).shape == rows.shape
        assert closed_form(case.flow(case.context)).call_and_ladj(rows)[1].shape == (4,)
        scored = FlowDistribution(made, case.flow(case.context).base)
        assert scored.log_prob(mode.from_tensor(rows)).shape == (4,)


@every_flow
def test_shapes_of_a_law_are_those_of_contexts_and_rows(case):
    law = case.flow(case.context.expand(4, 1, -1))
    assert law.batch_shape == (4, 1)
    assert law.event_shape == (FEATURES,)
    assert law._extended_shape((5,)) == (5, 4, 1, FEATURES)
    scored = FlowDistribution(closed_form(law), law.base)
    for batch in [(), (2,), (3, 4, 2)]:
        expected = torch.broadcast_shapes(batch, (4, 1))
        assert scored.log_prob(case.rows(*batch)).shape == expected


@every_flow
def test_draws_lie_in_the_support_and_have_gradients_as_asked(case):
    law = case.flow(case.context)
    drawn = FlowDistribution(closed_form(law).inv, law.base)  # closed-form draws of any flow
    assert drawn.has_rsample
    rows = drawn.rsample((2,))
    assert drawn.support.check(rows).all()
    assert rows.requires_grad
    assert not drawn.sample((2,)).requires_grad


@every_flow
def test_an_expanded_law_has_the_same_density(case):
    law = FlowDistribution(closed_form(case.flow(case.context)), StandardNormal(FEATURES, LIKE))
    x, wide = case.rows(4), law.expand((3, 1)).expand((2, 3, 4))
    assert wide.batch_shape == (2, 3, 4)
    assert wide.event_shape == law.event_shape
    assert type(wide) is type(law)
    torch.testing.assert_close(wide.log_prob(x), law.log_prob(x).expand(2, 3, 4))
    with pytest.raises(ShapeError, match="cannot be expanded"):
        wide.expand((5,))


@every_flow
def test_contexts_taken_together_have_the_sum_of_their_log_densities(case):
    context = torch.stack([case.context, -case.context])
    law = FlowDistribution(closed_form(case.flow(context)), StandardNormal(FEATURES, LIKE))
    x = case.rows(2)
    together = Independent(law, 1)
    assert together.event_shape == (2, FEATURES)
    torch.testing.assert_close(together.log_prob(x), law.log_prob(x).sum())


@every_flow
def test_a_mixture_of_laws_has_the_mean_of_their_densities(case):
    context = torch.stack([case.context, -case.context])
    law = FlowDistribution(closed_form(case.flow(context)), StandardNormal(FEATURES, LIKE))
    mixture = MixtureSameFamily(Categorical(torch.ones(2).double()), law)
    x = case.rows(3)
    each = law.log_prob(x.unsqueeze(1)).exp()
    torch.testing.assert_close(mixture.log_prob(x).exp(), each.mean(-1))


@every_flow
def test_estimates_by_sampling_have_the_shapes_of_the_law(case):
    context = torch.stack([case.context, -case.context])
    law = case.flow(context)
    drawn = FlowDistribution(closed_form(law).inv, law.base)
    scored = FlowDistribution(closed_form(law), law.base)
    assert drawn.entropy(draws=2).shape == (2,)
    other = Independent(Normal(torch.zeros(2, FEATURES).double(), 1.0), 1)
    assert estimate_divergence(other, scored, draws=2).shape == (2,)


@every_flow
def test_what_has_no_end_is_not_enumerated(case):
    law = case.flow(case.context)
    assert not law.has_enumerate_support
    assert not law.support.is_discrete
    with pytest.raises(NotImplementedError):
        law.enumerate_support()


@pytest.mark.parametrize("name", SAMPLING)
def test_gradients_of_draws_are_those_of_the_reparametrised_mean(case):
    # the derivative of the mean in the context, by draws and by their difference
    def mean(context):
        law = case.flow(context)
        return law.rsample((8,), generator=torch.Generator().manual_seed(0)).mean()

    context = case.context.clone().requires_grad_()
    mean(context).backward()
    step = torch.zeros_like(case.context)
    step[0] = 1e-6
    with torch.no_grad():
        slope = (mean(case.context + step) - mean(case.context - step)) / 2e-6
    torch.testing.assert_close(context.grad[0], slope, rtol=1e-5, atol=1e-7)
