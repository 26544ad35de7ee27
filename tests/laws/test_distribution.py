"""What torch asks of a law, where one flow is enough to tell."""

import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal, StudentT

from bnaf import BNAF, FlowDistribution, SettingsError, ShapeError
from bnaf.errors import RedrawWarning


class Named(FlowDistribution):
    """A law with a constructor and an attribute of its own."""

    def __init__(self, flow: BNAF, title: str) -> None:
        law = flow()
        self.title = title
        super().__init__(law.transform, law.base, watched=list(flow.parameters()))


def test_a_subclass_is_expanded_to_its_own_kind():
    law = Named(BNAF(2, width=3), "prices")
    wide = law.expand((4,))
    assert type(wide) is Named
    assert wide.title == "prices"
    assert wide.batch_shape == (4,)
    assert law.batch_shape == ()
    assert wide.sample((5,)).shape == (5, 4, 2)


def test_expand_fills_the_instance_that_it_is_given():
    law = BNAF(2, width=3)()
    instance = Named.__new__(Named)
    assert law.expand((4,), instance) is instance
    assert instance.sample().shape == (4, 2)


def test_draws_follow_from_the_generator_that_is_given():
    law = BNAF(2, width=3)()
    before = torch.get_rng_state()
    for draw in (law.sample, law.rsample, lambda *a, **k: law.rsample_and_log_prob(*a, **k)[0]):
        one, same, other = (
            draw((5,), generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
        )
        assert torch.equal(one, same)
        assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_moves_on_from_draw_to_draw():
    law = BNAF(2, width=3)()
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(
        law.sample((5,), generator=generator), law.sample((5,), generator=generator)
    )


def test_redraws_and_missing_mass_follow_from_the_generator_too():
    flow = BNAF.paper(2, transforms=1, width=3)
    before = torch.get_rng_state()
    with pytest.warns(RedrawWarning):
        one, same = (
            flow().sample((50,), outside="redraw", generator=torch.Generator().manual_seed(1))
            for _ in range(2)
        )
    assert torch.equal(one, same)
    shares = [
        flow.missing_mass(100, generator=torch.Generator().manual_seed(1)).share for _ in range(2)
    ]
    assert shares[0] == shares[1] > 0
    assert torch.equal(torch.get_rng_state(), before)


def student_rows(*batch: int, features: int = 2) -> Independent:
    return Independent(StudentT(torch.full((*batch, features), 3.0).double()), 1)


@pytest.mark.parametrize("direction", ["density", "sampling"])
def test_any_torch_law_over_rows_is_a_base(direction):
    transform = BNAF(2, 1, width=3, direction=direction).double()(torch.zeros(4, 1).double())
    law = FlowDistribution(transform.transform, student_rows())
    assert law.batch_shape == (4,)
    x, log_prob = law.rsample_and_log_prob((5,))
    assert x.shape == (5, 4, 2)
    torch.testing.assert_close(law.log_prob(x), log_prob)
    z, log_det = law.transform.call_and_ladj(x)
    torch.testing.assert_close(log_prob, student_rows().log_prob(z) + log_det)


def test_a_base_may_have_a_batch_of_its_own():
    law = FlowDistribution(BNAF(2, width=3).double()().transform, student_rows(3))
    assert law.batch_shape == (3,)
    assert law.sample((5,)).shape == (5, 3, 2)
    assert law.expand((4, 3)).sample((5,)).shape == (5, 4, 3, 2)
    assert law.log_prob(torch.zeros(2).double()).shape == (3,)


def test_a_base_without_gradients_can_still_be_drawn():
    weights = Categorical(torch.ones(2).double())
    parts = Independent(Normal(torch.randn(2, 3).double(), 1.0), 1)
    base = MixtureSameFamily(weights, parts)
    law = FlowDistribution(BNAF(3, width=3).double()().transform, base)
    assert not law.has_rsample
    assert law.sample((5,)).shape == (5, 3)
    with pytest.raises(SettingsError, match="draws of its base have no gradients; use sample"):
        law.rsample((5,))


def test_a_base_of_other_rows_is_refused():
    transform = BNAF(2, width=3)().transform
    for base in (Normal(torch.zeros(2), 1.0), student_rows(features=3)):
        with pytest.raises(ShapeError, match="base must be a law over rows of 2 features"):
            FlowDistribution(transform, base)
