"""What torch asks of a law, over all flows."""

import pytest
import torch
from cases import FEATURES, FLOWS, build
from torch.func import vmap

from bnaf import InversionError

every_flow = pytest.mark.parametrize("name", FLOWS)


@pytest.fixture
def case(name):
    """A flow with a context: what torch asks for is the same with kernels and without."""
    return build(name, True)


@every_flow
def test_draws_are_vectorised_unless_an_inverse_is_numerical(case):
    law = case.flow(case.context)

    def draw(_):
        return law.rsample((2,))

    try:
        rows = vmap(draw, randomness="different")(torch.zeros(3))
    except InversionError as error:
        assert law.direction == "density"
        assert 'direction="sampling" has closed-form samples' in str(error)
        return
    assert rows.shape == (3, 2, FEATURES)
    assert len(rows.flatten(0, 1).unique(dim=0)) == 6
