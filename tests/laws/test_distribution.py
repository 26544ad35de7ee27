"""What torch asks of a law, where one flow is enough to tell."""

import torch
from torch.distributions import Independent, Normal

from bnaf import BNAF, FlowDistribution


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
