"""Energies: values, normalisers and the mass of their regions."""

import math

import pytest
import torch

from bnaf import SettingsError
from bnaf.datasets._quadrature import square_grid
from bnaf.datasets.energies import ENERGIES, energy_named

LITERATURE = {"u1": 1.87750, "u2": 2.62532, "u3": 3.18493, "u4": 3.25393}
every_energy = pytest.mark.parametrize("energy", ENERGIES.values(), ids=ENERGIES)


@every_energy
def test_the_normaliser_is_the_integral(energy):
    points, area = square_grid(12.0, 800)
    log_normaliser = (-energy(points)).logsumexp(0).item() + math.log(area)
    assert abs(log_normaliser - energy.log_normaliser) < 1e-6
    assert abs(log_normaliser - LITERATURE[energy.name]) < 1e-5
    assert abs(energy.log_prob(points).exp().sum().item() * area - 1) < 1e-6


@every_energy
def test_the_masses_of_the_regions_are_integrals(energy):
    points, area = square_grid(12.0, 2400)  # edges of regions fall between cells
    mass = energy.log_prob(points).exp() * area
    masses = torch.zeros(len(energy.regions), dtype=torch.float64)
    masses.index_add_(0, energy.region(points), mass)
    assert len(energy.masses) == len(energy.regions)
    torch.testing.assert_close(masses, torch.tensor(energy.masses).double(), rtol=0, atol=2e-5)


def test_values_are_those_of_the_formulas():
    z = torch.tensor([1.5, -0.5], dtype=torch.float64)
    z1, z2 = z.tolist()
    w1, w2 = math.sin(math.pi * z1 / 2), 3 * math.exp(-0.5 * ((z1 - 1) / 0.6) ** 2)
    w3 = 3 / (1 + math.exp(-(z1 - 1) / 0.3))

    def bell(value, width):
        return math.exp(-0.5 * (value / width) ** 2)

    expected = {
        "u1": 0.5 * ((math.hypot(z1, z2) - 2) / 0.4) ** 2
        - math.log(bell(z1 - 2, 0.6) + bell(z1 + 2, 0.6)),
        "u2": 0.5 * ((z2 - w1) / 0.4) ** 2,
        "u3": -math.log(bell(z2 - w1, 0.35) + bell(z2 - w1 + w2, 0.35)),
        "u4": -math.log(bell(z2 - w1, 0.4) + bell(z2 - w1 + w3, 0.35)),
    }
    for name, value in expected.items():
        assert math.isclose(energy_named(name)(z).item(), value, rel_tol=1e-9)


def test_walls_stand_at_six():
    energy = energy_named("u2")
    on_ridge = torch.tensor([[8.0, 0.0], [-9.0, -1.0], [6.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(energy(on_ridge), torch.tensor([4.0, 9.0, 0.0]).double())


@every_energy
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
def test_batch_shape_dtype_and_gradients_are_kept(energy, batch):
    z = torch.randn(*batch, 2, requires_grad=True)
    value = energy(z)
    assert value.shape == batch
    assert value.dtype == torch.float32
    (grad,) = torch.autograd.grad(value.sum(), z)
    assert grad.isfinite().all()


@every_energy
def test_energies_are_finite_far_out(energy):
    assert energy(100 * torch.randn(50, 2)).isfinite().all()


def test_coverage_counts_points():
    z = torch.tensor([[-2.0, 0.0], [2.0, 0.0], [2.0, 0.1], [1.5, 0.0]])
    assert energy_named("u1").coverage(z) == {"left": 0.25, "right": 0.75}
    fork = torch.tensor([[-1.0, -1.0], [2.0, 0.0], [2.0, -3.0], [2.0, -2.8]])
    assert energy_named("u4").coverage(fork) == {"upper": 0.25, "lower": 0.5, "left": 0.25}
    split = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [1.0, -2.0], [3.0, -1.0]])
    assert set(energy_named("u3").coverage(split).values()) == {0.25}
    assert energy_named("u2").coverage(split)["2 to 4"] == 0.25


def test_unknown_names_are_refused():
    with pytest.raises(SettingsError, match="one of u1, u2, u3, u4, got 'u5'"):
        energy_named("u5")
