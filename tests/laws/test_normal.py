"""The normal distribution function and its inverse, far into the tails."""

import mpmath
import pytest
import torch
from scipy import special

from bnaf.laws.normal import log_ndtr, mean_score, ndtri_exp


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
    torch.testing.assert_close(ndtri_exp(log_ndtr(x)), x, rtol=1e-11, atol=1e-11)


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


def exact_mean_score(scores: list[float]) -> float:
    """The normal score of the mean of normal probabilities, in as many digits as it takes."""
    with mpmath.workdps(30):
        # from the far tail in logarithms, where shares of 1e-20,000 are no smaller than others
        share = mpmath.fsum(mpmath.erfc(-mpmath.mpf(z) / mpmath.sqrt(2)) for z in scores)
        target = mpmath.log(share / (2 * len(scores)))
        start = max(scores)
        return float(
            mpmath.findroot(
                lambda z: mpmath.log(mpmath.erfc(-z / mpmath.sqrt(2)) / 2) - target,
                (start - 0.5, start),
            )
        )


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize(
    "scores", [[-0.3, 0.2], [-8.0, -9.0], [-37.0, -40.0, -38.5], [-200.0, -100.0], [-300.0, 0.1]]
)
def test_the_mean_of_probabilities_is_exact_in_both_tails(scores, side):
    z = mean_score(side * torch.tensor(scores, dtype=torch.float64))
    assert z.item() == pytest.approx(side * exact_mean_score(scores), rel=1e-11, abs=1e-11)


def test_the_mean_of_shares_on_both_sides_of_one_half_is_exact():
    z = mean_score(torch.tensor([9.0, -0.5], dtype=torch.float64))  # a mean above one half
    assert z.item() == pytest.approx(-exact_mean_score([-9.0, 0.5]), rel=1e-11)


def test_the_mean_score_has_the_gradient_of_its_formula_far_out():
    scores = torch.tensor([[-8.0, -9.0], [30.0, 40.0], [0.0, 0.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(mean_score, scores.requires_grad_())


def test_the_mean_of_no_probability_at_all_is_infinitely_far_out():
    scores = torch.tensor([[-torch.inf, -torch.inf], [torch.inf, torch.inf]])
    assert mean_score(scores).tolist() == [-torch.inf, torch.inf]
