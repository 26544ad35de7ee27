"""What torch asks of a law, over all flows."""

import pytest
import torch
from cases import BNAF_FLOWS, FEATURES, FLOWS, SAMPLING, build, closed_form
from torch._subclasses import FakeTensorMode
from torch.func import vmap

from bnaf import DtypeError, InversionError

every_flow = pytest.mark.parametrize("name", FLOWS)

CLOSED_FORM_SAMPLES = [
    *SAMPLING,
    *("glow", "glow_one_step", "real_nvp", "nsf_coupling", "iaf_density"),
    *("planar", "planar_context_network", "sylvester_density"),
]


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


@pytest.mark.parametrize("name", BNAF_FLOWS)
def test_no_kernel_is_called_on_fake_tensors(case):
    rows = case.rows(4)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        made = closed_form(case.flow(mode.from_tensor(case.context)))
        assert made(mode.from_tensor(rows)).shape == rows.shape
        assert closed_form(case.flow(case.context)).call_and_ladj(rows)[1].shape == (4,)
