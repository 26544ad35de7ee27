"""Draws in order, each put into its cell before the next feature looks."""

import pytest
import torch
from cases import randomise

from bnaf import BNAF, InversionError
from bnaf.errors import SettingsError
from bnaf.laws.cells import Cells

CONTEXTS = [None, "biases", "amortised"]


def build(context=None, rows=50, **settings):
    """The transform of a flow in one order with weights of order one."""
    given = 0 if context is None else 2
    settings = {"width": 4, "transforms": 3, "context": context or "biases", **settings}
    flow = BNAF(3, given, permutation=None, **settings).double()
    randomise(flow)
    contexts = [torch.randn(rows, 2, dtype=torch.float64)] if given else []
    return flow(*contexts).transform


def as_points(feature, x):
    return x, torch.zeros_like(x), torch.zeros_like(x)


def to_halves(feature, x):
    """Cells of a grid with step one half."""
    return (2 * x).round() / 2, torch.full_like(x, 0.25), torch.full_like(x, 0.25)


@pytest.mark.parametrize("settings", [{}, {"activation": "leaky_relu"}, {"residual": "normal"}])
@pytest.mark.parametrize("context", CONTEXTS)
def test_draws_of_points_are_the_inverse(context, settings):
    transform = build(context, **settings)
    z = torch.randn(50, 3, dtype=torch.float64)
    cells = transform.draw(z, as_points)
    assert cells.known.all()
    torch.testing.assert_close(cells.middle, transform.inv(z), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("context", CONTEXTS)
def test_each_draw_lies_in_its_cell_given_the_middles_before(context):
    transform = build(context)
    z = torch.randn(50, 3, dtype=torch.float64)
    cells = transform.draw(z, to_halves)
    assert (cells.middle == (2 * cells.middle).round() / 2).all()
    for feature in range(3):
        ends = []
        for width in (-cells.below, cells.above):
            row = cells.middle.clone()
            row[:, feature] += width[:, feature]
            ends.append(transform(row)[:, feature])
        inside = (ends[0] <= z[:, feature] + 1e-9) & (z[:, feature] <= ends[1] + 1e-9)
        assert inside.all()


def test_later_features_see_zero_where_one_is_not_known():
    transform = build()
    z = torch.randn(50, 3, dtype=torch.float64)

    def snap(feature, x):
        if feature == 0:
            return None
        hidden = torch.arange(50) % 2 == 0 if feature == 1 else torch.zeros(50, dtype=torch.bool)
        return as_points(feature, torch.where(hidden, torch.nan, x))

    cells = transform.draw(z, snap)
    assert cells.known.sum(0).tolist() == [0, 25, 50]
    assert (cells.middle[~cells.known] == 0).all()
    torch.testing.assert_close(transform(cells.middle)[:, 2], z[:, 2])


def test_contexts_broadcast_against_base_noise():
    flow = BNAF(3, 2, permutation=None, width=4).double()
    randomise(flow)
    transform = flow(torch.randn(5, 2, dtype=torch.float64)).transform
    z = torch.randn(4, 1, 3, dtype=torch.float64)
    cells = transform.draw(z, to_halves)
    assert cells.middle.shape == cells.known.shape == (4, 5, 3)
    again = transform.draw(z.expand(4, 5, 3), to_halves)
    torch.testing.assert_close(cells.middle, again.middle)


def test_frequencies_of_drawn_cells_are_their_masses():
    transform = build(transforms=1)
    z = torch.randn(20_000, 3, dtype=torch.float64)
    middle, counts = transform.draw(z, to_halves).middle[:, 0].unique(return_counts=True)
    cells = Cells.points(torch.zeros(len(middle), 3, dtype=torch.float64))
    cells.middle[:, 0] = middle
    cells.below[:, 0] = cells.above[:, 0] = 0.25
    mass = transform.log_shares(cells)[:, 0].exp()
    share = counts / len(z)
    assert ((share - mass).abs() < 5 * (mass / len(z)).sqrt() + 1e-4).all()


@pytest.mark.parametrize(
    ("flow", "match"),
    [
        (BNAF(2), "permutation=None"),
        (BNAF(2, permutation=None, activation="tanh", residual=None), "onto"),
    ],
    ids=["another order", "not onto"],
)
def test_flows_that_cannot_draw_in_order_say_why(flow, match):
    with pytest.raises(SettingsError, match=match):
        flow().transform.draw(torch.zeros(1, 2), as_points)


def test_base_noise_that_is_not_finite_is_refused():
    with pytest.raises(InversionError, match="1 of 2 rows"):
        BNAF(1, permutation=None)().transform.draw(torch.tensor([[0.0], [torch.inf]]), as_points)
