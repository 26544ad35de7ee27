"""Curves: what they are made to be, beyond what all flows are tested for."""

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from bnaf.laws.curves import AffineCurve, BendCurve
from bnaf.laws.mixture import LOG_DEVIATION_LIMIT, MixtureCurve
from bnaf.laws.sigmoids import SigmoidCurve
from bnaf.laws.spline import SplineCurve


def sigmoids(layers=2, units=4):
    matrices = [torch.randn(units, units, dtype=torch.float64) for _ in range(2 * (layers - 1))]
    last = torch.randn(1, units, dtype=torch.float64)
    return SigmoidCurve(matrices[: layers - 1], [*matrices[layers - 1 :], last])


CURVES = {
    "affine": AffineCurve(),
    "bend": BendCurve(),
    "mixture": MixtureCurve(4),
    "spline": SplineCurve(5, 3.0),
    "sigmoids": sigmoids(),
}


def numbers_of(curve, *batch, scale=0.7):
    return scale * torch.randn(*batch, curve.numbers, dtype=torch.float64)


@pytest.mark.parametrize("name", ["affine", "bend", "mixture", "spline"])
def test_a_curve_starts_near_the_identity(name):
    curve = CURVES[name]
    x = torch.linspace(-2, 2, 41, dtype=torch.float64)
    y, log_slope = curve.map(x, curve.start().double())
    assert (y - x).abs().max() < 0.6
    assert (log_slope - log_slope.mean()).abs().max() < 1.0


@pytest.mark.parametrize("name", CURVES)
def test_the_log_density_is_that_of_the_map(name):
    curve = CURVES[name]
    x, numbers = torch.randn(50, dtype=torch.float64), numbers_of(curve, 50)
    y, log_slope = curve.map(x, numbers)
    expected = Normal(0.0, 1.0).log_prob(y) + log_slope
    torch.testing.assert_close(curve.log_density(x, numbers), expected)


@pytest.mark.parametrize("name", CURVES)
def test_tails_are_inverted(name):
    curve = CURVES[name]
    y = torch.tensor([-1e4, -100.0, -9.0, 9.0, 100.0, 1e4], dtype=torch.float64)
    numbers = numbers_of(curve, 6)
    x = curve.invert(y, numbers)
    torch.testing.assert_close(curve.map(x, numbers)[0], y, rtol=1e-9, atol=1e-9)


def test_the_mixture_is_that_of_torch():
    curve = MixtureCurve(3)
    x, numbers = torch.randn(50, dtype=torch.float64), numbers_of(curve, 50)
    logits, means, raw = numbers.chunk(3, -1)
    deviation = (LOG_DEVIATION_LIMIT * (raw / LOG_DEVIATION_LIMIT).tanh()).exp()
    law = MixtureSameFamily(Categorical(logits=logits), Normal(means, deviation))
    torch.testing.assert_close(curve.log_density(x, numbers), law.log_prob(x))
    torch.testing.assert_close(Normal(0.0, 1.0).cdf(curve.map(x, numbers)[0]), law.cdf(x))


def test_mixtures_keep_their_digits_far_out_in_float32():
    curve = MixtureCurve(3)
    numbers = numbers_of(curve, 1)
    x = torch.tensor([-1e3, -30.0, 30.0, 1e3], dtype=torch.float64)
    exact, exact_log_slope = curve.map(x, numbers)
    y, log_slope = curve.map(x.float(), numbers.float())
    torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=0)
    # a difference of two numbers as large as the square of y
    assert ((log_slope - exact_log_slope).abs() <= 1e-6 * exact.square()).all()


def test_splines_are_smooth_at_their_ends_and_the_identity_beyond():
    curve = SplineCurve(5, 3.0)
    numbers = numbers_of(curve)
    x = torch.tensor([-3.0, 3.0], dtype=torch.float64)
    y, log_slope = curve.map(x * (1 - 1e-9), numbers)
    torch.testing.assert_close(y, x, rtol=0, atol=1e-7)
    torch.testing.assert_close(log_slope, torch.zeros(2).double(), rtol=0, atol=1e-6)
    far = torch.tensor([-1e6, -3.0, 3.1, 1e6], dtype=torch.float64)
    assert torch.equal(curve.map(far, numbers)[0], far)


def test_sigmoids_are_those_of_the_paper():
    curve = sigmoids(layers=2, units=3)
    x, numbers = torch.randn(20, dtype=torch.float64), numbers_of(curve, 20)
    parts = numbers.unflatten(-1, (-1, 3)).unbind(-2)
    h = x.unsqueeze(-1)
    for index, (raw_scale, b, raw) in enumerate((parts[:3], parts[3:6])):
        if index:
            u = (parts[6].unsqueeze(-2) + curve.inner[0]).softmax(-1)
            h = (u @ h.unsqueeze(-1)).squeeze(-1)
        a = (3 * (raw_scale / 3).tanh()).exp()
        w = (raw.unsqueeze(-2) + curve.outer[index]).softmax(-1)
        h = (w @ (a * h + b).sigmoid().unsqueeze(-1)).squeeze(-1).logit()
    torch.testing.assert_close(curve.map(x, numbers)[0], h.squeeze(-1))
