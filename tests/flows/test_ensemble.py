"""Ensembles: the mean of densities, as one flow."""

import math

import pytest
import torch
from cases import randomise

import bnaf
from bnaf import BNAF, SettingsError, ShapeError
from bnaf.flows.ensemble import Ensemble, one_or_open
from bnaf.laws.normal import normal_cdf

SIZES = {"transforms": 2, "width": 4, "hidden_layers": 1}


@pytest.fixture
def ensemble():
    flow = Ensemble(1, 2, members=3, settings=SIZES | {"context_width": 5}).double().eval()
    randomise(flow, 0.5)
    return flow


@pytest.fixture
def context():
    return torch.randn(40, 2, dtype=torch.float64)


def test_the_density_is_the_mean_of_those_of_its_members(ensemble, context):
    x = 2 * torch.randn(40, 1, dtype=torch.float64)
    each = torch.stack([flow(context).log_prob(x) for flow in ensemble.parts])
    expected = each.logsumexp(0) - math.log(3)
    torch.testing.assert_close(ensemble(context).log_prob(x), expected)


def test_noise_is_the_normal_score_of_the_mean_probability(ensemble, context):
    x = torch.randn(40, 1, dtype=torch.float64)
    each = torch.stack([flow(context).base_noise(x) for flow in ensemble.parts])
    expected = torch.special.ndtri(normal_cdf(each).mean(0))
    torch.testing.assert_close(ensemble(context).base_noise(x), expected)


def test_samples_are_the_pre_images_of_their_noise(ensemble, context):
    z = 3 * torch.randn(5, 40, 1, dtype=torch.float64)
    transform = ensemble(context).transform
    torch.testing.assert_close(transform(transform.inv(z)), z)


def test_the_log_det_is_that_of_autograd(ensemble, context):
    x = torch.randn(40, 1, dtype=torch.float64, requires_grad=True)
    z, log_det = ensemble(context).transform.call_and_ladj(x)
    (slope,) = torch.autograd.grad(z.sum(), x)
    torch.testing.assert_close(log_det.exp(), slope.squeeze(1))


def test_gradients_of_samples_are_those_of_finite_differences(ensemble, context):
    z = torch.randn(4, 1, dtype=torch.float64, requires_grad=True)
    given = context[:4].requires_grad_()
    assert torch.autograd.gradcheck(lambda z, c: ensemble(c).transform.inv(z), (z, given))


def test_a_row_trains_all_members_but_that_of_its_fold(ensemble, context):
    x, fold = torch.randn(40, 1, dtype=torch.float64), torch.arange(40) % 3
    for training in (True, False):
        ensemble.train(training)
        loss = ensemble.losses(x[fold == 1], context[fold == 1], fold[fold == 1]).sum()
        ensemble.zero_grad()
        loss.backward()
        reached = [flow.networks.weight.grad is not None for flow in ensemble.parts]
        moved = [
            got and bool(flow.networks.weight.grad.abs().sum() > 0)
            for got, flow in zip(reached, ensemble.parts, strict=True)
        ]
        assert moved == ([True, False, True] if training else [False, True, False])


PIECES = {"context_bins": 4, "context_layers": 2}


@pytest.mark.parametrize(
    "settings", [{}, PIECES, {"context": "amortised"}, {"context_layers": 0}], ids=str
)
def test_contexts_of_all_members_at_once_are_those_of_each(context, settings):
    flow = Ensemble(1, 2, members=3, settings=SIZES | {"context_width": 5} | settings).double()
    randomise(flow, 0.5)
    x = torch.randn(40, 1, dtype=torch.float64)
    together = type(flow.parts[0]).make_transforms(flow.parts, context)
    for part, transform in zip(flow.parts, together, strict=True):
        torch.testing.assert_close(transform(x), part.make_transform(context)(x))
    loss = flow.losses(x, context)
    each = torch.stack([part.losses(x, context) for part in flow.parts]).mean(0)
    torch.testing.assert_close(loss, each)
    expected = torch.autograd.grad(each.sum(), list(flow.parameters()))
    found = torch.autograd.grad(loss.sum(), list(flow.parameters()))
    torch.testing.assert_close(found, expected)


def test_members_that_cut_contexts_differently_keep_their_pieces(context):
    flow = Ensemble(1, 2, members=2, settings=SIZES | PIECES).double()
    randomise(flow, 0.5)
    flow.parts[1].see_contexts(3 * context)
    x = torch.randn(40, 1, dtype=torch.float64)
    each = torch.stack([part.losses(x, context) for part in flow.parts]).mean(0)
    torch.testing.assert_close(flow.losses(x, context), each)


def test_members_leave_units_out_of_training_and_of_nothing_else(context):
    settings = SIZES | {"context_width": 64, "context_dropout": 0.5}
    flow = Ensemble(1, 2, members=2, settings=settings).double()
    randomise(flow, 0.5)
    x = torch.randn(40, 1, dtype=torch.float64)
    assert not torch.equal(flow.losses(x, context), flow.losses(x, context))
    flow.eval()
    assert torch.equal(flow.losses(x, context), flow.losses(x, context))


@pytest.mark.parametrize("batch", [(), (1,), (2, 5)], ids=str)
def test_contexts_have_any_batch_shape(ensemble, context, batch):
    x = torch.randn(*batch, 1, dtype=torch.float64)
    given = torch.randn(*batch, 2, dtype=torch.float64)
    each = torch.stack([flow(given).log_prob(x) for flow in ensemble.parts])
    torch.testing.assert_close(ensemble(given).log_prob(x), each.logsumexp(0) - math.log(3))


def test_all_members_leave_out_the_same_units(context):
    settings = SIZES | {"context_width": 64, "context_dropout": 0.5}
    flow = Ensemble(1, 2, members=2, settings=settings).double()
    randomise(flow, 0.5)
    flow.parts[1].load_state_dict(flow.parts[0].state_dict())
    x = torch.randn(40, 1, dtype=torch.float64)
    first, second = type(flow.parts[0]).make_transforms(flow.parts, context)
    assert torch.equal(first(x), second(x))
    assert not torch.equal(first(x), flow.parts[0].make_transform(context)(x))


@pytest.mark.parametrize("given", [None, torch.zeros(40, 3, dtype=torch.float64)], ids=str)
def test_contexts_are_checked_in_training_too(ensemble, given):
    x = torch.randn(40, 1, dtype=torch.float64)
    with pytest.raises(ShapeError, match="context"):
        ensemble.train().losses(x, given, torch.zeros(40, dtype=torch.long))


def test_contexts_in_pieces_have_a_rate_of_their_own():
    shares = [
        {name: share for name, (share, _) in BNAF(1, 2, context_bins=bins).rates().items()}
        for bins in (0, 4)
    ]
    assert shares == [{"context": 0.1}, {"context in pieces": 0.2}]


def test_ensembles_come_back_from_files(ensemble, context, tmp_path):
    bnaf.save(ensemble, tmp_path / "flow.safetensors")
    again = bnaf.load(tmp_path / "flow.safetensors")
    x = torch.randn(40, 1, dtype=torch.float64)
    assert torch.equal(again(context).log_prob(x), ensemble(context).log_prob(x))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": 2}, "one column, got features=2"),
        ({"flow": "ensemble"}, "must be a transform, and no ensemble"),
        ({"members": 0}, "members must be"),
        ({"settings": {"direction": "sampling"}}, "of the density direction, got direction='samp"),
    ],
)
def test_what_no_ensemble_can_be_is_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        Ensemble(**settings)


@pytest.mark.parametrize("training", [True, False])
def test_the_loss_of_cells_is_that_of_masses_over_widths(ensemble, context, training):
    ensemble.train(training)
    x = torch.randn(40, 1, dtype=torch.float64)
    cells = torch.rand(40, 2, dtype=torch.float64) + 0.1
    masses = torch.stack(
        [
            flow(context).cdf(x + cells[:, 1:]) - flow(context).cdf(x - cells[:, :1])
            for flow in ensemble.parts
        ]
    )
    densities = masses / cells.sum(1)
    expected = densities.log().mean(0) if training else densities.mean(0).log()
    torch.testing.assert_close(-ensemble.losses(x, context, cells=cells), expected)


def test_cells_are_judged_by_the_member_that_did_not_see_them(ensemble, context):
    x, fold = torch.randn(40, 1, dtype=torch.float64), torch.arange(40) % 3
    cells = torch.rand(40, 2, dtype=torch.float64)
    losses = ensemble.eval().losses(x, context, fold, cells)
    for member, flow in enumerate(ensemble.parts):
        own = fold == member
        expected = flow.losses(x[own], context[own], cells=cells[own])
        torch.testing.assert_close(losses[own], expected)


OTHERS = [
    {"activation": "tanh", "residual": None},
    {"activation": "tanh", "last_residual": False, "bounded_gate": False},
    {"direction": "sampling"},
    {"base": "student"},
]


@pytest.mark.parametrize("settings", OTHERS, ids=repr)
def test_flows_that_cannot_be_averaged_are_fitted_one_by_one_or_refused(settings):
    assert one_or_open(None, "bnaf", settings) == 1
    assert one_or_open(None, "bnaf", {"width": 3}) is None
    with pytest.raises(
        SettingsError, match="members must be 1 for bnaf with these settings, got 3"
    ):
        one_or_open(3, "bnaf", settings)
    with pytest.raises(SettingsError, match="An ensemble "):
        Ensemble(1, members=2, settings=settings)().log_prob(torch.zeros(1))
