"""Roots of increasing functions."""

import torch

from bnaf.laws.roots import solve_increasing


class Cube:
    """The cube of one unknown per row, and the points at which it was asked for."""

    def __init__(self):
        self.asked = []

    def value_and_slope(self, x):
        self.asked.append(x)
        return x**3, 3 * x**2

    def keep(self, rows):
        return self


ROOTS = torch.tensor([[-5.0, -0.1, 0.3, 2.0, 40.0]], dtype=torch.float64)


def test_roots_are_found_from_anywhere():
    torch.testing.assert_close(solve_increasing(Cube(), ROOTS**3), ROOTS)


def test_a_root_is_sought_within_a_bracket_that_is_known():
    cube = Cube()
    found = solve_increasing(cube, ROOTS[:, :1] ** 3, (ROOTS[:, :1] - 1, ROOTS[:, :1] + 3))
    torch.testing.assert_close(found, ROOTS[:, :1])
    asked = torch.cat(cube.asked)
    assert asked.min() >= -6
    assert asked.max() <= -2


def test_ends_of_a_bracket_may_be_the_root():
    for bracket in ((ROOTS, ROOTS + 1), (ROOTS - 1, ROOTS), (ROOTS, ROOTS)):
        torch.testing.assert_close(solve_increasing(Cube(), ROOTS**3, bracket), ROOTS)
