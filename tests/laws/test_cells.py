"""Cells, and the normal mass of intervals against numbers of forty digits."""

import mpmath
import pytest
import torch

from bnaf import ShapeError
from bnaf.errors import TableError
from bnaf.laws.cells import Cells, log_mass
from bnaf.laws.normal import log_ndtr

DTYPES = [torch.float32, torch.float64]


def intervals(dtype):
    """Points out to 12 with widths from 1e-7 to 8, cut at several places."""
    z = torch.linspace(-12, 12, 9, dtype=dtype)
    width = torch.logspace(-7, 0.903, 9, dtype=dtype)
    share = torch.tensor([0.0, 0.5, 0.9], dtype=dtype)
    z, width, share = (part.flatten() for part in torch.meshgrid(z, width, share, indexing="ij"))
    below = width * share
    return z, below, width - below


def exact(z, below, above):
    """The log-mass of each interval and its three derivatives."""
    found = []
    with mpmath.workdps(40):
        for row in zip(z.tolist(), below.tolist(), above.tolist(), strict=True):
            middle, down, up = map(mpmath.mpf, row)
            low, high = middle - down, middle + up
            ends = (low, high) if low + high < 0 else (-high, -low)
            mass = mpmath.ncdf(ends[1]) - mpmath.ncdf(ends[0])
            at_low, at_high = mpmath.npdf(low) / mass, mpmath.npdf(high) / mass
            found.append([mpmath.log(mass), at_high - at_low, at_low, at_high])
    numbers = [[float(number) for number in row] for row in found]
    return torch.tensor(numbers, dtype=torch.float64).t()


@pytest.mark.parametrize("dtype", DTYPES)
def test_masses_and_their_gradients_have_nearly_all_digits(dtype):
    leaves = [part.requires_grad_() for part in intervals(dtype)]
    value = log_mass(*leaves)
    grads = torch.autograd.grad(value.sum(), leaves)
    eps = torch.finfo(dtype).eps
    log_exact, *slopes = exact(*(leaf.detach().double() for leaf in leaves))
    torch.testing.assert_close(value.detach().double(), log_exact, rtol=4 * eps, atol=4 * eps)
    for grad, slope in zip(grads, slopes, strict=True):
        torch.testing.assert_close(grad.double(), slope, rtol=200 * eps, atol=200 * eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("z", [-30.0, -1.0, 0.0, 2.0, 30.0])
def test_half_infinite_cells_have_the_mass_of_a_tail(dtype, z):
    middle = torch.full((2,), z, dtype=dtype)
    endless, width = torch.full_like(middle, torch.inf), torch.tensor([0.0, 0.5], dtype=dtype)
    torch.testing.assert_close(log_mass(middle, endless, width), log_ndtr(middle + width))
    torch.testing.assert_close(log_mass(middle, width, endless), log_ndtr(width - middle))
    assert (log_mass(middle, endless, endless) == 0).all()


def test_gradients_of_all_kinds_of_intervals_pass_gradcheck():
    z = torch.tensor([0.3, -2.0, 5.0, 0.1, 1.0, -9.0], dtype=torch.float64)
    below = torch.tensor([0.1, 3.0, torch.inf, 0.7, 2.0, 0.5], dtype=torch.float64)
    above = torch.tensor([0.2, 1.0, 0.5, torch.inf, 0.0, 0.4], dtype=torch.float64)
    finite = [below.isfinite(), above.isfinite()]

    def evaluate(z, below, above):
        ends = zip((below, above), finite, strict=True)
        return log_mass(z, *(torch.where(has, width, torch.inf) for width, has in ends))

    inputs = [
        z,
        *(torch.where(has, w, 1.0) for w, has in zip((below, above), finite, strict=True)),
    ]
    inputs = [part.requires_grad_() for part in inputs]
    assert torch.autograd.gradcheck(evaluate, inputs, atol=1e-6)
    assert torch.autograd.gradgradcheck(evaluate, inputs, atol=1e-5)


@pytest.mark.parametrize("z", [1e3, 1e6, -1e6])
def test_masses_far_out_are_finite_in_float32(z):
    leaves = [torch.tensor([number], requires_grad=True) for number in (z, 1e-5, 1e-5)]
    value = log_mass(*leaves)
    assert value.isfinite()
    assert all(grad.isfinite() for grad in torch.autograd.grad(value, leaves))


def test_a_middle_of_nan_is_not_known():
    x = torch.tensor([[1.0, torch.nan]])
    cells = Cells.of(x, x, x)
    assert cells.known.tolist() == [[True, False]]
    assert cells.wide.tolist() == [[True, False]]
    assert all((part == torch.tensor([[1.0, 0.0]])).all() for part in cells[:3])


@pytest.mark.parametrize("wrong", [-1.0, torch.nan])
def test_ends_on_the_wrong_side_are_refused(wrong):
    zero = torch.zeros(1, 1)
    with pytest.raises(TableError, match="either side of its middle"):
        Cells.of(zero, zero, zero + wrong)


def test_parts_of_different_shapes_are_refused():
    with pytest.raises(ShapeError, match=r"one shape, got \(1, 2\), \(1, 2\), \(2,\)"):
        Cells.of(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(2))
