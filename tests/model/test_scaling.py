"""The base of a conditional density, scaled by validation rows."""

import copy
import math

import pytest
import torch
from scipy import stats

from bnaf import BNAF, Model, SettingsError, ShapeError, TrainingSettings, load, save
from bnaf.flows.ensemble import Ensemble
from bnaf.flows.maf import MAF
from bnaf.model._data import FitData
from bnaf.model._scaling import FARTHEST, NORMAL_ROWS, scale_base
from bnaf.model._wish import Wish
from bnaf.tables.streams import ParquetStream
from bnaf.tables.table import Table
from bnaf.tables.writing import write_table

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


def data_of(rows):
    return FitData.read(Table(rows, ("y", "x")), Wish(given=["x"], members=1))


def noise(flow, part):
    flow = flow.double()
    return flow(part.context).normal_scores(part.rows).detach().squeeze(-1)


def test_the_noise_of_validation_rows_gets_a_mean_of_zero_and_a_deviation_of_one(flow, data):
    before = noise(flow, data.valid).clamp(-FARTHEST, FARTHEST)
    gain = scale_base(flow, data)
    count = len(before)
    location = before.sum() / (count + NORMAL_ROWS)
    spread = ((before - location) ** 2).sum() + NORMAL_ROWS * (1 + location**2)
    scale = (spread / (count + NORMAL_ROWS)).sqrt()
    whole = noise(flow, data.valid) * scale + location  # before, and beyond the farthest, too
    torch.testing.assert_close(whole.clamp(-FARTHEST, FARTHEST), before, atol=1e-9, rtol=1e-9)
    normal = torch.distributions.Normal(0, 1)
    after = normal.log_prob((whole - location) / scale) - scale.log()
    expected_gain = (after - normal.log_prob(whole)).mean()
    torch.testing.assert_close(torch.tensor(gain).double(), expected_gain)


def test_one_wild_row_does_not_widen_the_law_of_all(flow):
    rows = torch.randn(3_000, 2, dtype=torch.float64)
    valid = 3 * torch.randn(500, 2, dtype=torch.float64)
    wild = valid.clone()
    wild[0, 0] = 30.0
    deviations = []
    for judging in (valid, wild):
        wish = Wish(given=["x"], members=1, valid=Table(judging, ("y", "x")))
        one = copy.deepcopy(flow)
        scale_base(one, FitData.read(Table(rows, ("y", "x")), wish))
        deviations.append(one.base_scale.log_scale.exp().item())
    assert abs(deviations[1] / deviations[0] - 1) < 0.1


def test_what_a_base_gains_is_told_of_all_rows_and_none_that_loses_is_taken(flow):
    rows = torch.randn(3_000, 2, dtype=torch.float64)
    valid = 0.1 * torch.randn(500, 2, dtype=torch.float64)
    for farthest, taken in ((0.0, True), (8.0, True), (1e4, False)):
        judging = valid.clone()
        judging[0, 0] = farthest  # beyond where noise is clamped
        one = copy.deepcopy(flow)
        data = FitData.read(
            Table(rows, ("y", "x")),
            Wish(given=["x"], members=1, valid=Table(judging, ("y", "x"))),
        )
        exact = copy.deepcopy(one).double()
        before = exact(data.valid.context).log_prob(data.valid.rows).mean()
        gain = scale_base(one, data)
        assert (gain is not None) == taken
        if gain is not None:
            after = one.double()(data.valid.context).log_prob(data.valid.rows).mean()
            torch.testing.assert_close(after - before, torch.tensor(gain).double())


def test_weighted_rows_count_by_their_weights(flow):
    rows = torch.randn(4_000, 2, dtype=torch.float64)
    weights = torch.ones(4_000, dtype=torch.float64)
    weights[2_000:] = 1e-9
    wish = Wish(given=["x"], members=1, valid=0.5, weights=weights)
    data = FitData.read(Table(rows, ("y", "x")), wish)
    counted = data.valid.weights > 0.5
    before = noise(flow, data.valid)
    scale_base(flow, data)
    location = before[counted].clamp(-FARTHEST, FARTHEST).sum() / (counted.sum() + NORMAL_ROWS)
    torch.testing.assert_close(flow.base_scale.location, location.view(1), atol=1e-6, rtol=1e-6)


def test_the_likelihood_of_cells_is_what_scales_them(flow, data):
    ends = torch.linspace(-9, 9, 10, dtype=torch.float64)  # cells two wide
    middles = (ends[1:] + ends[:-1]) / 2
    table = torch.stack([torch.randn(3_000).double(), torch.randn(3_000).double()], 1)
    table[:, 0] = middles[torch.bucketize(table[:, 0] * 3, ends[1:-1])]
    data = FitData.read(
        Table(table, ("y", "x"), cells={"y": ends}), Wish(given=["x"], members=1, valid=0.5)
    )
    rows, reach = data.valid.rows, data.valid.more["cells"]
    before = flow.double()(data.valid.context).log_mean_density(rows, reach).detach()
    gain = scale_base(flow, data)
    law = flow(data.valid.context)
    mass = law.cdf(rows + reach[:, 1:]) - law.cdf(rows - reach[:, :1])
    after = (mass / reach.sum(1)).log().detach()
    assert gain > 0.01
    torch.testing.assert_close((after - before).mean().item(), gain, atol=1e-6, rtol=0)


def test_bases_are_left_alone_where_no_other_rows_tell(flow, data):
    rows = torch.randn(3_000, 2, dtype=torch.float64)
    for other in (
        Wish(given=["x"], members=2),  # folds judge each other
        Wish(given=["x"], members=1, valid=0.0),
    ):
        scale_base(flow, FitData.read(Table(rows, ("y", "x")), other))
        assert flow.settings["base"] == "normal"


def test_bases_are_left_alone_of_flows_that_are_not_of_one_column_given_others(data):
    heavy = BNAF(1, 1, base="student", **ROUGH)
    turned = BNAF(1, 1, direction="sampling", **ROUGH)
    of_rows = FitData.read(torch.randn(3_000, 2, dtype=torch.float64), Wish())
    alone = FitData.read(torch.randn(3_000, 1, dtype=torch.float64), Wish())
    for flow, seen in (
        (heavy, data),
        (turned, data),
        (BNAF(2, width=3), of_rows),
        (BNAF(1, width=3), alone),
    ):
        before = flow.settings
        assert scale_base(flow, seen) is None
        assert flow.settings == before


def test_a_fit_scales_the_base_and_a_file_keeps_it(tmp_path):
    rows = torch.randn(1_500, 2, dtype=torch.float64)
    settings = TrainingSettings(steps=3)
    model = Model.fit(
        Table(rows, ("y", "x")), given=["x"], members=1, settings=settings, progress=False
    )
    assert model.flow.settings["base"] == "scaled"
    assert model.flow.base_scale.log_scale.abs() > 1e-4
    train, valid = (data_of(rows).split.sets().train, data_of(rows).split.sets().valid)
    held = model.log_prob(rows[valid, :1], rows[valid, 1:]).mean().item()
    assert model.log_likelihood(model.record["valid"], "valid") == pytest.approx(held, abs=0.01)
    assert len(train) + len(valid) == 1_500
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


@pytest.mark.parametrize(
    ("flow", "found"),
    [
        (BNAF(1, base="student"), "base='student'"),
        (MAF(1), "MAF, which has none to choose"),
        (Ensemble(1), "Ensemble, which has none to choose"),
    ],
)
def test_a_base_that_is_not_normal_or_not_to_choose_is_not_scaled(flow, found):
    with pytest.raises(SettingsError, match=f"must be normal, got {found}; take a BNAF"):
        flow.scale_base(torch.zeros(1), torch.ones(1))


@pytest.mark.parametrize("sizes", [(1, 3), (3, 1), (1, 1)])
def test_a_base_has_a_number_for_each_feature_and_is_kept_where_it_is_refused(sizes):
    flow = BNAF(3, width=2)
    flow.scale_base(torch.zeros(3), torch.full((3,), 2.0))
    with pytest.raises(ShapeError, match=r"for each feature, shape \(3,\), got"):
        flow.scale_base(torch.zeros(sizes[0]), torch.ones(sizes[1]))
    assert torch.equal(flow.base_scale.log_scale.exp(), torch.full((3,), 2.0))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_deviations_that_are_none_are_refused(scale):
    with pytest.raises(SettingsError, match="positive finite deviations"):
        BNAF(1).scale_base(torch.zeros(1), torch.tensor([scale]))


def test_a_base_that_was_scaled_is_scaled_anew_by_a_fit_of_the_same_settings():
    rows, settings = torch.randn(1_500, 2, dtype=torch.float64), TrainingSettings(steps=3)
    how = {"given": ["x"], "members": 1, "settings": settings, "progress": False}
    first = Model.fit(Table(rows, ("y", "x")), **how)
    given = {name: first.flow.settings[name] for name in ("base", "width")}
    again = Model.fit(Table(rows, ("y", "x")), **how, flow_settings=given)
    assert again.flow.base_scale.log_scale == first.flow.base_scale.log_scale
    plain = Model.fit(Table(rows, ("y", "x")), **how, flow_settings={"base": "normal"})
    assert plain.flow.settings["base"] == "normal"


def test_a_stream_scales_as_a_table_does(tmp_path):
    rows = torch.randn(3_000, 2, dtype=torch.float64)
    table, path = Table(rows, ("y", "x")), tmp_path / "t.parquet"
    write_table(table, path)
    bases = []
    for source in (table, ParquetStream(path, 512, warn=False)):
        flow = BNAF(1, 1, **ROUGH)
        with torch.no_grad():
            for weight in flow.parameters():
                weight.fill_(0.3)
        assert scale_base(flow, FitData.read(source, Wish(given=["x"], members=1))) is not None
        bases.append(torch.cat([flow.base_scale.location, flow.base_scale.log_scale]))
    torch.testing.assert_close(*bases, atol=1e-4, rtol=1e-4)


def test_a_member_on_a_scaled_base_brings_it():
    flow = Ensemble(1, 1, members=2, settings=ROUGH).double()
    x, given = torch.randn(5, 1).double(), torch.randn(5, 1).double()
    before = flow(given).log_prob(x)
    flow.parts[0].scale_base(torch.tensor([0.3]), torch.tensor([1.4]))
    expected = torch.stack([part(given).log_prob(x) for part in flow.parts])
    found = flow(given).log_prob(x)
    torch.testing.assert_close(found, expected.logsumexp(0) - math.log(2))
    assert (found != before).all()


def test_the_noise_of_a_scaled_base_is_standard_normal_for_whoever_takes_the_transform():
    flow = BNAF(1, 1, **ROUGH).double()
    given, x = torch.randn(5, 1).double(), torch.randn(5, 1).double()
    z = flow(given).transform(x)
    flow.scale_base(torch.tensor([0.3]), torch.tensor([1.4]))
    torch.testing.assert_close(flow(given).transform(x), (z - 0.3) / 1.4)
    normal = torch.distributions.Normal(0, 1)
    z, log_det = flow(given).transform.call_and_ladj(x)
    torch.testing.assert_close(flow(given).log_prob(x), normal.log_prob(z).squeeze(1) + log_det)


def test_draws_on_a_scaled_base_follow_it():
    flow = BNAF(1, 1, **ROUGH).double()
    flow.scale_base(torch.tensor([0.4]).double(), torch.tensor([1.5]).double())
    law = flow(torch.zeros(1).double())
    scores = law.normal_scores(law.sample((4_000,))).squeeze(-1).detach().numpy()
    assert stats.kstest(scores, "norm").pvalue > 1e-4
    x, log_prob = law.rsample_and_log_prob((3,))
    torch.testing.assert_close(log_prob, law.log_prob(x))
