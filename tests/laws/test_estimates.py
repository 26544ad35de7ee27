"""Moments, entropies and divergences by sampling, and distribution functions of one feature."""

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from bnaf import BNAF, FlowDistribution, SettingsError
from bnaf.laws.affine import ScaleTransform
from bnaf.laws.bases import StandardNormal

SHIFT = torch.tensor([[1.0, -2.0], [0.5, 30.0]]).double()
DEVIATION = torch.tensor([0.5, 2.0]).double()


def normal_law(shift=SHIFT):
    """A law of a flow that is known: normal rows, one for each of two contexts."""
    forwards = ScaleTransform(DEVIATION.log().expand_as(shift), shift)
    return FlowDistribution(forwards.inv, StandardNormal(2, shift))


def known(shift=SHIFT):
    return Independent(Normal(shift, DEVIATION.expand_as(shift)), 1)


def test_moments_are_near_and_the_same_every_time():
    law, before = normal_law(), torch.get_rng_state()
    torch.testing.assert_close(law.mean, SHIFT, rtol=0, atol=0.1)
    torch.testing.assert_close(law.stddev, DEVIATION.expand(2, 2), rtol=0.05, atol=0)
    assert torch.equal(law.mean, law.mean)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_entropy_is_near_and_has_gradients():
    flow = BNAF(2, 1, width=3, transforms=1, direction="sampling")
    flow(torch.zeros(3, 1)).entropy(draws=10).sum().backward()
    assert any((weight.grad != 0).any() for weight in flow.parameters())
    entropy = normal_law().entropy(generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(entropy, known().entropy(), rtol=0, atol=0.05)


def test_divergences_are_registered_for_laws_of_flows_and_others():
    other = SHIFT + 0.3
    expected = kl_divergence(known(), known(other))
    for p, q in (
        (normal_law(), normal_law(other)),
        (normal_law(), known(other)),
        (known(), normal_law(other)),
    ):
        torch.testing.assert_close(kl_divergence(p, q), expected, rtol=0, atol=0.05)


@pytest.mark.parametrize("scale", [0.5, -0.5])
def test_the_distribution_function_of_one_feature_is_exact(scale):
    from torch.distributions import AffineTransform

    from bnaf.laws.transforms import ComposeTransform

    flow = BNAF(1, width=3, transforms=1).double().requires_grad_(False)
    like = torch.zeros(1).double()
    transform = ComposeTransform([AffineTransform(0.3, scale), flow().transform])
    law = FlowDistribution(transform, StandardNormal(1, like))
    x = torch.linspace(-30, 30, 60_001).double().unsqueeze(1)
    mass = law.log_prob(x).exp().cumsum(0) * 1e-3
    some = slice(5_000, None, 5_000)
    torch.testing.assert_close(law.cdf(x[some]), mass[some], rtol=0, atol=1e-3)
    levels = torch.tensor([0.1, 0.5, 0.9]).double()
    torch.testing.assert_close(law.cdf(law.icdf(levels)), levels)


def test_rows_out_of_reach_have_all_draws_on_one_side():
    law = BNAF.paper(1, transforms=1, width=3, direction="sampling").double()()
    x = torch.tensor([[-1e6], [1e6]]).double()
    assert law.cdf(x).tolist() == [0.0, 1.0]


def test_a_distribution_function_of_several_features_is_refused():
    with pytest.raises(SettingsError, match="cdf is of laws of one feature, got 2"):
        normal_law().cdf(SHIFT)


def test_undefined_rows_raise_where_arguments_are_validated():
    law = BNAF(2, width=3)()
    rows = torch.tensor([[0.0, torch.nan]])
    assert law.log_prob(rows) == -torch.inf
    strict = FlowDistribution(law.transform, law.base, validate_args=True)
    for one in (strict, strict.expand((3,))):
        with pytest.raises(ValueError, match="to be within the support"):
            one.log_prob(rows)
    assert strict.log_prob(torch.zeros(1, 2)).isfinite().all()
