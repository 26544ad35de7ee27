"""What torch asks of a transform, over all flows."""

import copy

import pytest
import torch
from cases import CONTEXT_FEATURES, FEATURES, FLOWS, build, closed_form
from torch.distributions import Independent, Normal, TransformedDistribution

from bnaf import SettingsError

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
