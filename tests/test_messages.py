"""What each error says: what was expected, what came, what to do."""

import pytest
import torch

import bnaf
from bnaf import BNAF, DtypeError, SettingsError, ShapeError
from bnaf._checks import check_rows

FLOW = BNAF(3)
CONDITIONAL = BNAF(3, 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: FLOW().log_prob(torch.zeros(7, 2)),
            ShapeError,
            r"expects 3 features in the last dim.*got shape \(7, 2\)",
        ),
        (
            lambda: FLOW().log_prob(torch.tensor(1.0)),
            ShapeError,
            r"expects 3 features .* got shape \(\)",
        ),
        (
            lambda: FLOW().log_prob(torch.zeros(2, 3, dtype=torch.long)),
            DtypeError,
            r"torch.float32, got torch.int64; convert it with x.to\(torch.float32\)",
        ),
        (
            lambda: FLOW().log_prob(torch.zeros(2, 3).double()),
            DtypeError,
            r"got torch.float64; .* or the flow with flow.to\(torch.float64\)",
        ),
        (
            lambda: check_rows([[0.0]], 1, torch.zeros(1), "x"),
            DtypeError,
            r"must be a torch tensor, got list",
        ),
        (
            lambda: FLOW(torch.zeros(2)),
            ShapeError,
            r"takes no context; call flow\(\), or build it with context_features=2",
        ),
        (
            lambda: CONDITIONAL(),
            ShapeError,
            r"expects a context of 2 features; call flow\(context\)",
        ),
        (
            lambda: CONDITIONAL(torch.zeros(4, 3)),
            ShapeError,
            r"expects 2 features in the last dimension of context, got shape \(4, 3\)",
        ),
        (
            lambda: CONDITIONAL(torch.zeros(4, 2)).log_prob(torch.zeros(5, 3)),
            ShapeError,
            r"x of shape \(5, 3\) does not broadcast .* \(4,\)",
        ),
        (
            lambda: FLOW().sample((2,), outside="drop"),
            SettingsError,
            r"outside must be one of 'raise', 'redraw', got 'drop'",
        ),
        (lambda: BNAF(0), SettingsError, r"features must be a whole number of at least 1, got 0"),
        (lambda: BNAF(2, -1), SettingsError, r"context_features .* at least 0, got -1"),
        (lambda: BNAF(2, transforms=0), SettingsError, r"transforms must be .* got 0"),
        (lambda: BNAF(2, width=0), SettingsError, r"width must be .* got 0"),
        (lambda: BNAF(2, width=[3, 0]), SettingsError, r"width must be a whole number .* got 0"),
        (
            lambda: BNAF(2, width=[3, 4, 5]),
            SettingsError,
            r"one number per hidden layer \(2\), got 3",
        ),
        (lambda: BNAF(2, hidden_layers=-1), SettingsError, r"hidden_layers must be"),
        (
            lambda: BNAF(2, activation="relu"),
            SettingsError,
            r"activation must be one of 'tanh', 'leaky_tanh', 'leaky_relu', got 'relu'",
        ),
        (
            lambda: BNAF(2, residual="plain"),
            SettingsError,
            r"residual must be one of 'gated', 'normal', None, got 'plain'",
        ),
        (lambda: BNAF(2, direction="both"), SettingsError, r"direction must be one of"),
        (lambda: BNAF(2, permutation="shuffle"), SettingsError, r"permutation must be one of"),
        (lambda: BNAF(2, init="zeros"), SettingsError, r"init must be one of"),
        (lambda: BNAF(2, leak=0.0), SettingsError, r"leak must be a number between 0 and 1"),
    ],
)
@pytest.mark.parametrize("validation", [True, False])
def test_messages(call, error, message, validation):
    torch.distributions.Distribution.set_default_validate_args(validation)
    try:
        with pytest.raises(error, match=message) as caught:
            call()
    finally:
        torch.distributions.Distribution.set_default_validate_args(True)
    assert isinstance(caught.value, bnaf.BnafError)


def test_a_misspelt_setting_is_a_type_error():
    with pytest.raises(TypeError, match="hidden_layer"):
        BNAF(2, hidden_layer=2)


def test_draws_without_pre_image_are_counted():
    flow = BNAF.paper(2, transforms=1, width=4)
    with pytest.raises(bnaf.InversionError, match=r"\d+ of 1000 rows have no pre-image.*redraw"):
        flow().sample((1000,))


def test_redrawing_says_how_many():
    flow = BNAF.paper(2, transforms=1, width=4)
    with torch.no_grad():
        flow.networks.layers[-1].log_gain.fill_(1.0)
    with pytest.warns(bnaf.RedrawWarning, match=r"\d+ draws of the base"):
        x = flow().sample((100,), outside="redraw")
    assert x.isfinite().all()
    assert flow().log_prob(x).isfinite().all()


def test_repr_is_readable():
    assert repr(FLOW).startswith("BNAF(\n  features=3, context_features=0, transforms=3")
    assert repr(FLOW()) == "FlowDistribution(features=3, batch_shape=(), direction='density')"


def test_redrawing_ends():
    flow = BNAF.paper(2, transforms=1, width=4)
    with torch.no_grad():
        flow.networks.layers[-1].bias.fill_(100.0)
    assert flow.missing_mass(100).share == 1.0
    with pytest.raises(bnaf.InversionError, match="reaches almost nothing"):
        flow().sample((3,), outside="redraw")
