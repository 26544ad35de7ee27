"""What torch asks of a transform, over all flows."""

import pytest
import torch
from cases import CONTEXT_FEATURES, FEATURES, FLOWS, build, closed_form
from torch.distributions import Independent, Normal, TransformedDistribution

every_flow = pytest.mark.parametrize("name", FLOWS)


def normal_rows(*batch: int) -> Independent:
    shape = (*batch, FEATURES)
    return Independent(Normal(torch.zeros(shape).double(), torch.ones(shape).double()), 1)


@every_flow
def test_shapes_know_the_batch_of_the_context(name):
    case = build(name, True)
    transform = closed_form(case.flow(torch.randn(4, 1, CONTEXT_FEATURES).double()))
    for one in (transform, transform.inv):
        assert one.forward_shape((FEATURES,)) == (4, 1, FEATURES)
        assert one.forward_shape((2, FEATURES)) == (4, 2, FEATURES)
        assert one.inverse_shape((5, 4, 2, FEATURES)) == (5, 4, 2, FEATURES)
    for batch in [(), (2,), (5, 4, 2)]:
        assert transform(case.rows(*batch)).shape == transform.forward_shape((*batch, FEATURES))


@every_flow
def test_torchs_law_of_a_conditional_transform_draws_every_row_by_itself(name):
    case = build(name, True)
    transform = closed_form(case.flow(torch.zeros(3, CONTEXT_FEATURES).double()))
    law = TransformedDistribution(normal_rows(), [transform])
    assert law.batch_shape == (3,)
    rows = law.sample((2,))
    assert rows.shape == (2, 3, FEATURES)
    assert len(rows.flatten(0, 1).unique(dim=0)) == 6
