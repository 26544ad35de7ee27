"""Plain numbers with bounds: the density is zero outside, and no sample falls there."""

import numpy as np
import pandas as pd
import pytest
import torch
from kinds import QUICK

import bnaf
from bnaf import Model, StorageError, TableError, TableWarning
from bnaf.columns.opening import Opening
from bnaf.model.openings import Openings

DRAWS = np.random.default_rng(0)
PRICES = pd.DataFrame({"price": DRAWS.exponential(size=300), "size": DRAWS.normal(size=300)})
BOUNDS = [(0.5, None), (None, 3.0), (0.5, 3.0), (None, None)]


@pytest.fixture(scope="module")
def model():
    return Model.fit(PRICES, settings=QUICK, progress=False)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_an_opening_is_undone(bounds):
    opening = Opening(bounds, 0.3)
    x = torch.linspace(0.51, 2.99, 50, dtype=torch.float64)
    torch.testing.assert_close(opening.undo(opening.apply(x)[0]), x)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_log_slope_of_an_opening_is_that_of_autograd(bounds):
    opening = Opening(bounds, 0.3)
    x = torch.linspace(0.51, 2.99, 50, dtype=torch.float64, requires_grad=True)
    y, log_slope = opening.apply(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(log_slope, slope.log())


def test_learned_bounds_of_plain_numbers_hold(model):
    assert model.encoding.schema is None
    assert model.encoding.read_as == {"price": "numbers, at least 0", "size": "numbers"}
    assert model.sample(2000, seed=0)[:, 0].min() >= 0
    rows = torch.tensor([[-0.5, 0.0], [0.5, 0.0]], dtype=torch.float64)
    assert model.log_prob(rows).isneginf().tolist() == [True, False]


def test_given_bounds_of_plain_numbers_hold():
    told = {"bounds": {"size": (-9.0, 9.0)}}
    model = Model.fit(PRICES, settings=QUICK, progress=False, **told)
    assert model.encoding.schema is None
    assert model.sample(2000, seed=0)[:, 1].abs().max() <= 9


def test_the_density_within_bounds_is_the_slope_of_the_distribution():
    model = Model.fit(PRICES[["price"]], settings=QUICK, progress=False)
    y = torch.linspace(-5, 60, 100_001, dtype=torch.float64)
    x = model.encoding.openings.of[0].undo(y).unsqueeze(1)
    below = torch.special.ndtr(model.base_noise(x).squeeze(1))
    mass = torch.trapezoid(model.log_prob(x).exp(), x.squeeze(1)).item()
    assert mass == pytest.approx((below[-1] - below[0]).item(), abs=1e-4)


def test_figures_of_a_fit_are_in_the_units_of_the_table():
    model = Model.fit(PRICES, valid=PRICES, settings=QUICK, progress=False)
    figure = model.log_likelihood(model.record["valid"], "valid")
    assert figure == pytest.approx(model.log_prob(PRICES).mean().item(), abs=1e-4)


def test_bounds_of_plain_numbers_are_kept_in_files(model, tmp_path):
    bnaf.save(model, tmp_path / "m.safetensors")
    again = bnaf.load(tmp_path / "m.safetensors")
    assert again.encoding.openings == model.encoding.openings
    assert torch.equal(again.log_prob(PRICES), model.log_prob(PRICES))


def test_values_outside_of_bounds_are_warned_of(model):
    with pytest.warns(TableWarning, match="1 outside of the bounds, at least 0"):
        model.log_prob({"price": -1.0, "size": 0.0})


def test_a_bound_that_rows_set_aside_contradict_is_not_learned():
    frame = PRICES.assign(price=np.where(np.arange(300) < 9, 0.0, PRICES["price"]))
    frame.loc[200, "price"] = -35.5
    for seed in range(4):
        settings = bnaf.TrainingSettings(steps=2, seed=seed)
        model = Model.fit(frame, test=0.5, settings=settings, progress=False)
        assert model.log_prob(frame, warn=False).isfinite().all()


@pytest.mark.parametrize("frame", [PRICES, PRICES.assign(city=["Rome", "Oslo", "Bern"] * 100)])
def test_validation_rows_out_of_bounds_are_warned_of(frame):
    valid = frame.iloc[:40].assign(price=-1.0)
    with pytest.warns(TableWarning, match="40 of 40 validation rows lie outside"):
        Model.fit(
            frame, valid=valid, bounds={"price": (0.0, None)}, settings=QUICK, progress=False
        )


@pytest.mark.parametrize(
    "stored",
    [
        [{"column": 2, "bounds": [0.0, None], "soft": 1.0}],
        [{"column": 0, "bounds": [1.0, 0.0], "soft": 1.0}],
        [{"column": 0, "bounds": [0.0, None], "soft": 0.0}],
        [{"column": 0, "bounds": [0.0, None], "soft": 1.0}] * 2,
        ["price"],
    ],
)
def test_bounds_of_a_file_that_cannot_be_are_refused(stored):
    with pytest.raises(StorageError):
        Openings.from_list(stored, 2)


def test_bounds_and_a_kind_without_any_are_refused():
    frame = PRICES.assign(city=["Rome", "Oslo", "Bern"] * 100)
    with pytest.raises(TableError, match="kind 'category', which has no bounds"):
        Model.fit(frame, kinds={"price": "category"}, bounds={"price": (0, 9)}, progress=False)
