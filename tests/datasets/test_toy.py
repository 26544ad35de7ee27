"""Toy data sets: draws, densities and entropies."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from bnaf import SettingsError
from bnaf.datasets._quadrature import gauss_legendre, square_grid
from bnaf.datasets.toy import TOY_DATA, draw_toy, toy_named
from bnaf.datasets.toy_laws import NoisyCurves, Pinwheel

ENTROPIES = {  # nats; the first three to the digits of the literature
    "8gaussians": 2.8319,
    "checkerboard": math.log(32),
    "2spirals": 2.6454,
    "moons": 2.3939,
    "circles": 3.2681,
    "pinwheel": 2.3178,
    "swissroll": 2.6696,
    "rings": 3.4855,
}
every_toy = pytest.mark.parametrize("toy", TOY_DATA.values(), ids=TOY_DATA)


@every_toy
def test_the_density_integrates_to_one(toy):
    points, area = square_grid(toy.limit, 160)
    assert abs(toy.log_prob(points).exp().sum().item() * area - 1) < 1e-6


@every_toy
def test_the_entropy_is_known(toy):
    assert abs(toy.entropy() - ENTROPIES[toy.name]) < 1e-4


@every_toy
def test_draws_follow_the_density(toy):
    # the mean of -log p over draws of q exceeds the entropy of q unless p is q
    log_prob = toy.log_prob(toy.draw(20_000, 1, dtype=torch.float64))
    error = log_prob.std().item() / math.sqrt(len(log_prob))
    assert abs(-log_prob.mean().item() - toy.entropy()) <= 4 * error + 1e-9


@every_toy
def test_the_share_of_draws_in_each_cell_is_that_of_the_density(toy):
    cells = 8
    fine, area = square_grid(toy.limit, 20 * cells)
    mass = (toy.log_prob(fine).exp() * area).view(cells, 20, cells, 20).sum((1, 3)).flatten()
    draws = toy.draw(100_000, 2, dtype=torch.float64)
    cell = ((draws + toy.limit) / (2 * toy.limit) * cells).floor().long().clamp(0, cells - 1)
    share = torch.bincount(cell[:, 0] * cells + cell[:, 1], minlength=cells**2) / len(draws)
    assert ((share - mass).abs() <= 5 * (mass * (1 - mass) / len(draws)).sqrt() + 1e-4).all()


@every_toy
def test_a_seed_gives_the_same_points_and_leaves_the_global_generator_alone(toy):
    state = torch.get_rng_state()
    first = toy.draw(50, 3)
    assert torch.equal(first, toy.draw(50, torch.Generator().manual_seed(3)))
    assert torch.equal(first, draw_toy(toy.name, 50, 3))
    assert not torch.equal(first, toy.draw(50, 4))
    assert torch.equal(torch.get_rng_state(), state)


def test_numbers_of_numpy_are_numbers_and_seeds_of_points():
    drawn = draw_toy("8gaussians", np.int64(5), np.int64(3))
    assert torch.equal(drawn, draw_toy("8gaussians", 5, 3))


def test_a_seed_of_points_must_be_a_whole_number():
    with pytest.raises(SettingsError, match=r"generator must be a whole number.*got -1"):
        draw_toy("8gaussians", 5, -1)


@every_toy
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_batch_shape_are_kept(toy, dtype):
    x = toy.draw(6, 0, dtype=dtype)
    assert x.dtype == toy.log_prob(x).dtype == dtype
    assert x.shape == (6, 2)
    assert toy.log_prob(x.view(2, 3, 2)).shape == (2, 3)
    torch.testing.assert_close(toy.log_prob(x.view(2, 3, 2)).flatten(), toy.log_prob(x))
    assert toy.draw(0, 0).shape == (0, 2)


@pytest.mark.parametrize("name", [name for name in TOY_DATA if name != "checkerboard"])
def test_log_densities_are_finite_far_out_and_have_gradients(name):
    toy = toy_named(name)
    x = torch.cat([toy.draw(3, 0, dtype=torch.float64), 30 * torch.ones(1, 2).double()])
    log_prob = toy.log_prob(x)
    assert log_prob.isfinite().all()
    assert log_prob[3] < -1000
    assert torch.autograd.gradcheck(toy.log_prob, x[:3].requires_grad_(), atol=1e-4)


@every_toy
def test_more_nodes_change_nothing(toy):
    if isinstance(toy, NoisyCurves):
        finer = replace(toy, nodes=2 * toy.nodes)
    elif isinstance(toy, Pinwheel):
        finer = replace(toy, angles=2 * toy.angles)
    else:
        pytest.skip("nothing is integrated")
    x = toy.draw(500, 0, dtype=torch.float64)
    torch.testing.assert_close(finer.log_prob(x), toy.log_prob(x), rtol=0, atol=1e-7)


def test_the_board_has_empty_squares():
    board = toy_named("checkerboard")
    x = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, 3.0], [5.0, 1.0], [1.0, -5.0]])
    assert board.log_prob(x).isfinite().tolist() == [True, True, False, False, False]


def test_gauss_and_legendre_integrate_polynomials_exactly():
    t, weight = gauss_legendre(4)
    for power in range(8):
        assert abs((weight * t**power).sum().item() - 1 / (power + 1)) < 1e-12


def test_unknown_names_are_refused():
    with pytest.raises(SettingsError, match=r"one of 8gaussians, 2spirals.*, got 'spirals'"):
        draw_toy("spirals", 5)
