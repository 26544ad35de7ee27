"""The normal distribution function and its inverse, far into the tails."""

import pytest
import torch
from scipy import special

from bnaf.laws.normal import log_ndtr, ndtri_exp


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quantiles_of_tiny_probabilities_have_all_their_digits(dtype):
    log_p = -torch.logspace(-0.15, 10, 200, dtype=dtype)
    z = ndtri_exp(log_p)
    exact = torch.from_numpy(special.ndtri_exp(log_p.double().numpy()))
    # scipy's own has 12 digits far out
    torch.testing.assert_close(
        z.double(), exact, rtol=max(1e-11, 4 * torch.finfo(dtype).eps), atol=1e-6
    )


def test_the_quantile_undoes_the_distribution_function():
    x = -torch.logspace(-3, 6, 100, dtype=torch.float64)
    torch.testing.assert_close(ndtri_exp(log_ndtr(x)), x, rtol=1e-14, atol=1e-14)


def test_gradients_are_right_far_out_in_float32():
    x = torch.tensor([-1e6, -1e3, -50.0, 50.0], requires_grad=True)
    (slope,) = torch.autograd.grad(log_ndtr(x).sum(), x)
    expected = torch.tensor([1e6, 1e3 + 1e-3, 50.02, 0.0])  # -x + 1 / -x in the lower tail
    torch.testing.assert_close(slope, expected, rtol=1e-5, atol=0)


def test_second_derivatives_pass_gradcheck():
    x = torch.linspace(-30, 5, 21, dtype=torch.float64, requires_grad=True)
    log_p = log_ndtr(x.detach()).clamp(max=-0.7).unique().requires_grad_()
    for function, at in ((log_ndtr, x), (ndtri_exp, log_p)):
        assert torch.autograd.gradcheck(function, at)
        assert torch.autograd.gradgradcheck(function, at)
