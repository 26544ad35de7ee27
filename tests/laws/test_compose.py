"""Transforms of torch among ours."""

import pytest
import torch
from torch.distributions import (
    AffineTransform,
    ExpTransform,
    Independent,
    ReshapeTransform,
    SigmoidTransform,
    StickBreakingTransform,
    Uniform,
)
from torch.distributions.transforms import AbsTransform

from bnaf import BNAF, FlowDistribution, SettingsError, ShapeError
from bnaf.laws.bases import StandardNormal
from bnaf.laws.transforms import ComposeTransform

SCALE = torch.tensor([2.0, -0.5, 1.5]).double()


def block():
    return BNAF(3, width=3, transforms=1).double()().transform


def law_of(*parts):
    return FlowDistribution(ComposeTransform(parts), StandardNormal(3, SCALE))


def test_torchs_transforms_are_composed_with_ours():
    ours, torchs = block(), AffineTransform(1.0, SCALE)
    both = ComposeTransform([torchs, ours])
    x = torch.randn(4, 3).double()
    y, log_det = both.call_and_ladj(x)
    torch.testing.assert_close(y, ours(torchs(x)))
    expected = SCALE.abs().log().sum() + ours.log_abs_det_jacobian(torchs(x), y)
    torch.testing.assert_close(log_det, expected)
    torch.testing.assert_close(both.inv(y), x)
    assert both.with_cache().inv.inv(x).shape == (4, 3)


def test_rows_outside_the_domain_have_density_zero():
    law = law_of(ExpTransform().inv, block())  # of positive rows
    x = torch.tensor([[1.0, 2.0, 3.0], [1.0, -2.0, 3.0]]).double()
    log_prob = law.log_prob(x)
    assert log_prob[0].isfinite()
    assert log_prob[1] == -torch.inf
    assert law.onto
    assert (law.sample((20,)) > 0).all()


def test_domains_are_those_of_the_outermost_parts():
    law = law_of(ExpTransform().inv, block())
    rows = torch.tensor([[1.0, 2.0, 3.0], [1.0, -2.0, 3.0]]).double()
    for constraint in (law.support, law.transform.domain, law.transform.inv.codomain):
        assert constraint.event_dim == 1
        assert constraint.check(rows).tolist() == [True, False]
    assert law.transform.codomain.check(rows).all()
    checked = FlowDistribution(law.transform, law.base, validate_args=True)
    with pytest.raises(ValueError, match="within the support"):
        checked.log_prob(rows)


def test_noise_outside_the_support_of_a_base_has_density_zero():
    base = Independent(Uniform(-torch.ones(3).double(), 1.0), 1)
    law = FlowDistribution(block(), base)
    log_prob = law.log_prob(torch.cat([law.sample((5,)), torch.full((1, 3), 1e3).double()]))
    assert log_prob[:-1].isfinite().all()
    assert log_prob[-1] == -torch.inf


def test_images_outside_the_codomain_have_no_pre_image():
    squashed = ComposeTransform([block(), SigmoidTransform()])
    assert not squashed.onto
    y = torch.tensor([[0.2, 0.5, 0.7], [0.2, 1.5, 0.7]]).double()
    assert squashed.invert(y).inside.tolist() == [True, False]


def test_a_transform_for_each_context_broadens_the_batch():
    both = ComposeTransform([block(), AffineTransform(torch.zeros(5, 1).double(), SCALE)])
    assert both.context_batch == (5,)
    assert both(torch.zeros(3).double()).shape == (5, 3)


def test_transforms_that_are_no_bijections_of_rows_are_refused():
    with pytest.raises(SettingsError, match="AbsTransform is no bijection of rows"):
        ComposeTransform([block(), AbsTransform()])
    for other in (StickBreakingTransform(), ReshapeTransform((3,), (3, 1))):
        with pytest.raises(ShapeError, match=r"must map rows of 3 features to such rows"):
            ComposeTransform([block(), other])
    with pytest.raises(SettingsError, match="at least one transform of the library"):
        ComposeTransform([ExpTransform()])
