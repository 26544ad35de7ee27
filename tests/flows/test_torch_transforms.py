"""What torch asks of a transform, over all flows."""

import copy
import pickle

import pytest
import torch
from cases import CONTEXT_FEATURES, FEATURES, FLOWS, build, closed_form
from torch.distributions import (
    AffineTransform,
    Independent,
    IndependentTransform,
    Normal,
    TransformedDistribution,
)
from torch.distributions import transforms as torchs

from bnaf import FlowDistribution, SettingsError
from bnaf.laws.bases import StandardNormal
from bnaf.laws.transforms import ComposeTransform

every_flow = pytest.mark.parametrize("name", FLOWS)


@pytest.fixture
def case(name):
    """A flow with a context: what torch asks for is the same with kernels and without."""
    return build(name, True)


def normal_rows(*batch: int) -> Independent:
    shape = (*batch, FEATURES)
    return Independent(Normal(torch.zeros(shape).double(), torch.ones(shape).double()), 1)


@every_flow
def test_shapes_know_the_batch_of_the_context(case):
    transform = closed_form(case.flow(torch.randn(4, 1, CONTEXT_FEATURES).double()))
    for one in (transform, transform.inv):
        assert one.forward_shape((FEATURES,)) == (4, 1, FEATURES)
        assert one.forward_shape((2, FEATURES)) == (4, 2, FEATURES)
        assert one.inverse_shape((5, 4, 2, FEATURES)) == (5, 4, 2, FEATURES)
    for batch in [(), (2,), (5, 4, 2)]:
        assert transform(case.rows(*batch)).shape == transform.forward_shape((*batch, FEATURES))


@every_flow
def test_torchs_law_of_a_conditional_transform_draws_every_row_by_itself(case):
    transform = closed_form(case.flow(torch.zeros(3, CONTEXT_FEATURES).double()))
    law = TransformedDistribution(normal_rows(), [transform])
    assert law.batch_shape == (3,)
    rows = law.sample((2,))
    assert rows.shape == (2, 3, FEATURES)
    assert len(rows.flatten(0, 1).unique(dim=0)) == 6


@every_flow
def test_a_cache_gives_back_the_very_rows_that_went_in(case):
    transform = closed_form(case.flow(case.context))
    x = transform(case.rows(2)).detach()
    for plain in (transform, transform.inv):
        cached = plain.with_cache()
        assert cached is not plain
        assert cached.with_cache(1) is cached
        assert type(cached.with_cache(0)) is type(plain)
        y = cached(x)
        assert cached(x) is y
        assert cached.inv(y) is x
        log_det = cached.log_abs_det_jacobian(x, y)
        torch.testing.assert_close(log_det, plain.log_abs_det_jacobian(x, y))
        again, same = cached.call_and_ladj(x)
        assert again is y
        assert torch.equal(same, log_det)


@every_flow
def test_torchs_law_scores_its_own_draws_alike_with_and_without_a_cache(case):
    transform = closed_form(case.flow(case.context))
    cached = TransformedDistribution(normal_rows(), [transform.with_cache()])
    x = cached.rsample((4,))
    expected = TransformedDistribution(normal_rows(), [transform]).log_prob(x)
    torch.testing.assert_close(cached.log_prob(x), expected, rtol=1e-6, atol=1e-6)


def test_a_cache_is_of_one_value_or_none():
    with pytest.raises(SettingsError, match="cache_size must be 0 or 1, got 2"):
        build("bnaf", False).flow().transform.with_cache(2)


@every_flow
def test_a_copy_of_a_cached_transform_has_a_cache_of_its_own(case):
    transform = closed_form(case.flow.requires_grad_(False)(case.context)).with_cache()
    x = case.rows(2)
    y = transform(x)
    twin = copy.deepcopy(transform)
    again = twin(x)
    assert again is not y
    assert twin(x) is again
    assert torch.equal(again, y)


@every_flow
def test_a_transform_is_equal_to_itself_and_to_no_other(case):
    transform = closed_form(case.flow(case.context))
    other = closed_form(case.flow(case.context))
    assert transform == transform.inv.inv
    assert transform.inv == transform.inv
    assert transform != other
    assert transform.inv != other.inv
    assert len({transform, transform.inv.inv, other}) == 2


@every_flow
def test_both_sides_are_all_rows_and_keep_their_dimension(case):
    transform = closed_form(case.flow(case.context))
    assert transform.event_dim == transform.domain.event_dim == transform.codomain.event_dim == 1
    assert transform.bijective
    x = case.rows(3)
    assert transform.domain.check(x).all()
    assert transform.codomain.check(transform(x)).all()


@every_flow
def test_there_and_back_is_where_one_was(case):
    transform = closed_form(case.flow(case.context))
    x = case.rows(2)
    y = transform(x).detach()
    again = transform.inv(y)
    # where tanh saturates, several rows have one image to the last digit: images are compared
    torch.testing.assert_close(transform(again), y, rtol=1e-8, atol=1e-8)
    there = transform.log_abs_det_jacobian(again, y)
    assert there.shape == (2,)
    torch.testing.assert_close(transform.inv.log_abs_det_jacobian(y, again), -there)


@every_flow
def test_torchs_composition_is_one_after_the_other(case):
    first = closed_form(case.flow(case.context))
    second = AffineTransform(1.0, torch.tensor([2.0, -0.5, 1.5]).double())
    both, x = torchs.ComposeTransform([first, second]), case.rows(3)
    y = both(x)
    torch.testing.assert_close(y, second(first(x)))
    log_det = first.log_abs_det_jacobian(x, first(x)) + second.scale.abs().log().sum()
    torch.testing.assert_close(both.log_abs_det_jacobian(x, y), log_det)
    ours = ComposeTransform([first, second])
    torch.testing.assert_close(ours.call_and_ladj(x), (y, log_det))
    assert both.forward_shape(x.shape) == ours.forward_shape(x.shape) == x.shape


@every_flow
def test_rows_taken_together_have_the_sum_of_their_log_determinants(case):
    transform = closed_form(case.flow(case.context))
    together, x = IndependentTransform(transform, 1), case.rows(2, 3)
    assert together.domain.event_dim == 2
    y = together(x)
    torch.testing.assert_close(y, transform(x))
    each = transform.log_abs_det_jacobian(x, y)
    torch.testing.assert_close(together.log_abs_det_jacobian(x, y), each.sum(-1))


@every_flow
def test_torchs_law_of_a_transform_is_ours(case):
    law = case.flow(case.context)
    inverse = closed_form(law).inv
    torchs_law = TransformedDistribution(normal_rows(), [inverse])
    ours = FlowDistribution(inverse.inv, StandardNormal(FEATURES, inverse.like))
    assert torchs_law.batch_shape == ours.batch_shape
    assert torchs_law.event_shape == ours.event_shape
    x = case.rows(3)
    torch.testing.assert_close(torchs_law.log_prob(x), ours.log_prob(x))
    wide = torchs_law.expand((2,))
    torch.testing.assert_close(wide.log_prob(x[:2]), ours.expand((2,)).log_prob(x[:2]))


@every_flow
def test_pickles_of_a_transform_compute_the_same(case):
    transform = closed_form(case.flow.requires_grad_(False)(case.context))
    x = case.rows(2)
    again = pickle.loads(pickle.dumps(transform.with_cache()))
    assert torch.equal(again(x), transform(x))
    assert again.inv.inv is again
