"""The base of a conditional density, scaled by validation rows."""

import pytest
import torch
from scipy import stats

from bnaf import BNAF, Model, SettingsError, TrainingSettings, load, save
from bnaf.laws.bases import NormalRows
from bnaf.model._data import FitData
from bnaf.model._scaling import NORMAL_ROWS, scale_base
from bnaf.model._wish import Wish
from bnaf.tables.table import Table

ROUGH = {"width": 3, "context_width": 4}


@pytest.fixture
def data():
    """The data of a fit of one column given another, with rows set aside."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3_000, 2, dtype=torch.float64, generator=generator)
    rows[:, 0] += rows[:, 1]
    return FitData.read(Table(rows, ("y", "x")), Wish(given=["x"], members=1))


@pytest.fixture
def flow():
    """A flow that was not trained: its noise is far from normal."""
    return BNAF(1, 1, **ROUGH)


def noise(flow, part):
    flow = flow.double()
    return flow(part.context).normal_scores(part.rows).detach().squeeze(-1)


def test_the_noise_of_validation_rows_gets_a_mean_of_zero_and_a_deviation_of_one(flow, data):
    before = noise(flow, data.valid)
    scale_base(flow.float(), data)
    count = len(before)
    location = before.sum() / (count + NORMAL_ROWS)
    spread = ((before - location) ** 2).sum() + NORMAL_ROWS * (1 + location**2)
    scale = (spread / (count + NORMAL_ROWS)).sqrt()
    expected = (before - location) / scale
    torch.testing.assert_close(noise(flow, data.valid), expected, atol=1e-4, rtol=1e-4)


def test_weighted_rows_count_by_their_weights(flow):
    rows = torch.randn(4_000, 2, dtype=torch.float64)
    weights = torch.ones(4_000, dtype=torch.float64)
    weights[2_000:] = 1e-9
    wish = Wish(given=["x"], members=1, valid=0.5, weights=weights)
    data = FitData.read(Table(rows, ("y", "x")), wish)
    counted = data.valid.weights > 0.5
    before = noise(flow, data.valid)
    scale_base(flow, data)
    location = before[counted].sum() / (counted.sum() + NORMAL_ROWS)
    torch.testing.assert_close(flow.base_law.location, location.view(1), atol=1e-4, rtol=1e-4)


def test_the_likelihood_of_cells_is_what_scales_them(flow, data):
    ends = torch.linspace(-9, 9, 10, dtype=torch.float64)  # cells two wide
    middles = (ends[1:] + ends[:-1]) / 2
    table = torch.stack([torch.randn(3_000).double(), torch.randn(3_000).double()], 1)
    table[:, 0] = middles[torch.bucketize(table[:, 0] * 3, ends[1:-1])]
    data = FitData.read(
        Table(table, ("y", "x"), cells={"y": ends}), Wish(given=["x"], members=1, valid=0.5)
    )
    before = flow.double()(data.valid.context)
    gain = -before.log_mean_density(data.valid.rows, data.valid.more["cells"]).mean()
    scale_base(flow, data)
    law, reach = flow(data.valid.context), data.valid.more["cells"]
    mass = law.cdf(data.valid.rows + reach[:, 1:]) - law.cdf(data.valid.rows - reach[:, :1])
    gain += (mass / reach.sum(1)).log().mean()
    assert gain > 0.01


def test_bases_are_left_alone_where_no_other_rows_tell(flow, data):
    rows = torch.randn(3_000, 2, dtype=torch.float64)
    for other in (
        Wish(given=["x"], members=2),  # folds judge each other
        Wish(given=["x"], members=1, valid=0.0),
    ):
        scale_base(flow, FitData.read(Table(rows, ("y", "x")), other))
        assert flow.settings["base"] == "normal"
    heavy = BNAF(1, 1, base="student", **ROUGH)
    scale_base(heavy, data)
    assert heavy.settings["base"] == "student"
    rows_of_two = FitData.read(rows, Wish())
    scale_base(BNAF(2, **{"width": 3}), rows_of_two)


def test_a_fit_scales_the_base_and_a_file_keeps_it(tmp_path):
    rows = torch.randn(1_500, 2, dtype=torch.float64)
    settings = TrainingSettings(steps=3)
    model = Model.fit(
        Table(rows, ("y", "x")), given=["x"], members=1, settings=settings, progress=False
    )
    assert model.flow.settings["base"] == "scaled"
    assert model.flow.base_law.log_scale.abs() > 1e-4
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    some = rows[:5]
    assert torch.equal(
        again.log_prob(some[:, :1], some[:, 1:]), model.log_prob(some[:, :1], some[:, 1:])
    )


def test_densities_on_a_scaled_base_integrate_to_one():
    flow = BNAF(1, 1, **ROUGH).double().requires_grad_(False)
    flow.scale_base(torch.tensor([0.7]).double(), torch.tensor([1.8]).double())
    # by x = sinh(t): far tails count
    t = torch.linspace(-12, 12, 20_001, dtype=torch.float64).unsqueeze(1)
    density = flow(torch.zeros(1).double()).log_prob(t.sinh()).exp()
    mass = (density * t.squeeze(1).cosh()).sum() * (24 / 20_000)
    assert abs(mass.item() - 1) < 1e-6


def test_a_heavy_base_is_not_scaled():
    with pytest.raises(SettingsError, match="must be normal, got base='student'"):
        BNAF(1, base="student").scale_base(torch.zeros(1), torch.ones(1))


def test_scaled_normal_rows_are_those_of_torch():
    location, log_scale = torch.randn(2, 3, dtype=torch.float64)
    law = NormalRows(location, log_scale)
    expected = torch.distributions.Normal(location, log_scale.exp())
    z = 3 * torch.randn(6, 3, dtype=torch.float64)
    torch.testing.assert_close(law.log_prob(z), expected.log_prob(z).sum(-1))
    torch.testing.assert_close(law.entropy(), expected.entropy().sum(-1))
    torch.testing.assert_close(law.mean, expected.mean)
    torch.testing.assert_close(law.variance, expected.variance)
    torch.testing.assert_close(law.from_normal_scores(law.normal_scores(z)), z)
    assert law.expand((4,)).sample((2,)).shape == (2, 4, 3)


def test_draws_on_a_scaled_base_follow_it():
    flow = BNAF(1, 1, **ROUGH).double()
    flow.scale_base(torch.tensor([0.4]).double(), torch.tensor([1.5]).double())
    law = flow(torch.zeros(1).double())
    scores = law.normal_scores(law.sample((4_000,))).squeeze(-1).detach().numpy()
    assert stats.kstest(scores, "norm").pvalue > 1e-4
    x, log_prob = law.rsample_and_log_prob((3,))
    torch.testing.assert_close(log_prob, law.log_prob(x))
