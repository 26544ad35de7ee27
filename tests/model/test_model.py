"""Models: densities and samples in the units of the table, and columns by name."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import FLOWS, build, randomise

from bnaf import (
    BNAF,
    DtypeError,
    Model,
    SettingsError,
    ShapeError,
    TableError,
    TableWarning,
    TrainingSettings,
)
from bnaf._random import without_draws
from bnaf.flows.ensemble import Ensemble
from bnaf.flows.registry import FLOWS as NAMES
from bnaf.flows.registry import flow_name, flow_named, flow_names
from bnaf.model._chunks import CHUNK_ROWS, measure_rows
from bnaf.model._data import FitData
from bnaf.model._wish import Wish
from bnaf.model.standardisation import Standardisation
from bnaf.tables.moments import RunningMoments
from bnaf.tables.reading import read_table
from bnaf.tables.streams import ParquetStream
from bnaf.tables.table import Table
from bnaf.tables.writing import write_table

SCALES = Standardisation(torch.tensor([10.0, -3.0]), torch.tensor([100.0, 0.01]))
GIVEN_SCALES = Standardisation(torch.tensor([5.0]), torch.tensor([2.0]))


@pytest.fixture
def model():
    flow = BNAF(2, width=4)
    randomise(flow)
    return Model(flow, columns=["a", "b"], standardisation=SCALES, types=["int32", "float64"])


@pytest.fixture
def conditional_model():
    flow = BNAF(2, 1, width=4)
    randomise(flow)
    return Model(
        flow,
        columns=["a", "b"],
        standardisation=SCALES,
        given_columns=["g"],
        given_standardisation=GIVEN_SCALES,
    )


def test_log_densities_are_those_of_the_flow_in_float64_and_other_units(model):
    z = torch.randn(50, 2, dtype=torch.float64)
    scores = model.log_prob(SCALES.invert(z))
    flow = BNAF(**model.flow.settings).double()
    flow.load_state_dict(model.flow.state_dict())
    torch.testing.assert_close(scores, flow().log_prob(z).detach() - math.log(100 * 0.01))
    assert next(model.flow.parameters()).dtype == torch.float32
    assert not scores.requires_grad


def test_the_density_integrates_to_one_in_the_units_of_the_table():
    flow = BNAF(1, width=4)
    randomise(flow)
    model = Model(flow, standardisation=Standardisation(torch.tensor([1e3]), torch.tensor([50.0])))
    x = torch.linspace(-3e3, 5e3, 200_001, dtype=torch.float64)
    density = model.log_prob(x.unsqueeze(1)).exp()
    assert torch.trapezoid(density, x).item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("batch", [(), (1,), (2, 5), (0,), (20_000,)])
def test_any_batch_of_rows(model, batch):
    rows = SCALES.invert(torch.randn(*batch, 2))
    scores = model.log_prob(rows)
    assert scores.shape == batch
    assert scores.dtype == torch.float64
    if scores.numel():
        last = rows.reshape(-1, 2)[-1]
        torch.testing.assert_close(scores.flatten()[-1], model.log_prob(last))


def test_rows_of_any_type_and_gradients_of_rows(model):
    assert model.log_prob(torch.zeros(3, 2, dtype=torch.int32)).isfinite().all()
    assert model.log_prob(torch.tensor([[float("nan"), 0.0]])).item() == -math.inf
    rows = SCALES.invert(torch.randn(4, 2)).requires_grad_()
    model.log_prob(rows).sum().backward()
    assert rows.grad.isfinite().all()
    assert all(parameter.grad is None for parameter in model.flow.parameters())


def test_samples_are_seeded_and_leave_the_global_generator_alone(model):
    before = torch.get_rng_state()
    rows = model.sample(500, seed=3)
    assert rows.shape == (500, 2)
    assert torch.equal(rows, model.sample(500, seed=3))
    assert not torch.equal(rows, model.sample(500, seed=4))
    assert not torch.equal(model.sample(5), model.sample(5))
    generator = torch.Generator().manual_seed(1)
    drawn = model.sample(5, generator=generator)
    assert not torch.equal(drawn, model.sample(5, generator=generator))
    assert torch.equal(drawn, model.sample(5, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.get_rng_state(), before)
    assert model.sample(0, seed=0).shape == (0, 2)
    assert model.sample(10_000, seed=0).shape == (10_000, 2)


def test_samples_are_in_the_units_of_the_table():
    model = Model(BNAF(2, width=4), standardisation=SCALES)
    with torch.no_grad():
        for parameter in model.flow.parameters():
            parameter.mul_(0.1)
    z = SCALES.apply(model.sample(4000, seed=0))
    expected = model.flow().sample((4000,)).double()
    torch.testing.assert_close(z.mean(0), expected.mean(0), atol=0.2, rtol=0.1)
    torch.testing.assert_close(z.std(0), expected.std(0), atol=0.2, rtol=0.1)


def test_columns_are_taken_by_name_and_kept_by_samples(model):
    rows = SCALES.invert(torch.randn(6, 2))
    table = Table(torch.cat([rows[:, [1]], rows[:, [0]], rows[:, [0]]], 1), ("b", "other", "a"))
    torch.testing.assert_close(model.log_prob(table), model.log_prob(rows))
    with pytest.raises(TableError, match="'a' not found"):
        model.log_prob(table.select(["b"]))
    drawn = model.sample_table(7, seed=0)
    assert drawn.columns == ("a", "b")
    assert drawn.types == ("int32", "float64")
    assert torch.equal(drawn.rows, model.sample(7, seed=0))


def test_given_columns_are_standardised_and_have_no_jacobian(conditional_model):
    model = conditional_model
    z, context = torch.randn(9, 2).double(), torch.randn(9, 1).double()
    rows, given = SCALES.invert(z), GIVEN_SCALES.invert(context)
    flow = BNAF(**model.flow.settings).double()
    flow.load_state_dict(model.flow.state_dict())
    expected = flow(context).log_prob(z).detach() + SCALES.log_det
    torch.testing.assert_close(model.log_prob(rows, given), expected)
    table = read_table(torch.cat([given, rows], 1), names=["g", "a", "b"], warn=False)
    torch.testing.assert_close(model.log_prob(table), expected)
    torch.testing.assert_close(model.log_prob(rows, given[0])[0], expected[0])
    torch.testing.assert_close(model.log_prob(rows[:, None], given)[0, 0], expected[0])
    assert model.sample(5, given).shape == (5, 9, 2)
    assert model.sample(5, given[0]).shape == (5, 2)
    assert len(model.sample_table(5, table.take(torch.tensor([0])), seed=1)) == 5
    with pytest.raises(ShapeError, match=r"one row of given columns, got \(9,\)"):
        model.sample_table(5, given)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda one, _: one.log_prob(torch.zeros(3, 5)),
            ShapeError,
            r"2 columns \(a, b\).*\(3, 5\)",
        ),
        (
            lambda one, _: one.log_prob(np.zeros((3, 2), dtype=complex)),
            DtypeError,
            r"a table or a tensor.*complex128",
        ),
        (
            lambda one, _: one.log_prob(torch.zeros(3, 2), torch.zeros(3, 1)),
            ShapeError,
            r"has no given columns; leave out given",
        ),
        (
            lambda _, two: two.log_prob(torch.zeros(3, 2)),
            ShapeError,
            r"expects the given columns g; give them with given=",
        ),
        (
            lambda _, two: two.log_prob(torch.zeros(3, 2), torch.zeros(4, 1)),
            ShapeError,
            r"\(3, 2\) do not broadcast with given ones of shape \(4, 1\)",
        ),
        (
            lambda one, _: one.sample(3, seed=1, generator=torch.Generator()),
            SettingsError,
            r"a seed or a generator, got both",
        ),
        (lambda one, _: Model(one.flow, columns=["a"]), SettingsError, r"columns .* \(2\), got 1"),
        (lambda one, _: Model(one.flow, types=["bool"]), SettingsError, r"types .* \(2\), got 1"),
        (lambda one, _: Model(one.flow, types=["O", "O"]), TableError, r"among bool, .* got 'O'"),
        (lambda one, _: Model(one.flow, columns=["a", "a"]), TableError, r"'a' 2 times"),
        (
            lambda one, _: Model(one.flow, standardisation=GIVEN_SCALES),
            SettingsError,
            r"standardisation must have one entry per column of the flow \(2\), got 1",
        ),
    ],
)
def test_messages(model, conditional_model, call, error, message):
    with pytest.raises(error, match=message):
        call(model, conditional_model)


@pytest.mark.parametrize("name", FLOWS)
def test_models_of_all_flows_score(name, conditional):
    flow, context = build(name, conditional)
    model = Model(flow.float())
    given = context.expand(4, -1) if conditional else None
    rows = torch.randn(4, flow.features)
    scores = model.log_prob(rows, given)
    expected = flow.double()(given).log_prob(rows.double()).detach()
    torch.testing.assert_close(scores, expected)


def test_models_score_in_inference_mode(model):
    with torch.inference_mode():
        scores = model.log_prob(torch.zeros(3, 2))
        rows = model.sample(3, seed=0)
    torch.testing.assert_close(scores, model.log_prob(torch.zeros(3, 2)))
    torch.testing.assert_close(rows, model.sample(3, seed=0))


def test_models_move(model):
    assert model.to(dtype=torch.float64) is model
    assert next(model.flow.parameters()).dtype == torch.float64
    assert model.device == torch.device("cpu")
    assert "columns=('a', 'b')" in repr(model)


def test_flows_have_names():
    assert flow_names() == sorted(NAMES)
    for name in flow_names():
        assert flow_named(name).__name__
    assert flow_name(BNAF(2)) == "bnaf"
    with pytest.raises(SettingsError, match=r"flow must be one of .*bnaf.*, got 'naf'"):
        flow_named("naf")

    class Mine(BNAF):
        pass

    with pytest.raises(SettingsError, match=r"got Mine; name it in bnaf.flows.registry.FLOWS"):
        flow_name(Mine(2))


STEPS = TrainingSettings(steps=60)


def fitted(table, **settings):
    return Model.fit(table, **{"settings": STEPS, "progress": False, **settings})


def test_a_fit_learns_a_table_in_its_own_units():
    torch.manual_seed(0)
    rows = torch.randn(800, 2, dtype=torch.float64) * torch.tensor([3.0, 200.0]) + 1000
    model = fitted(Table(rows, ("a", "b")))
    exact = torch.distributions.Normal(1000.0, torch.tensor([3.0, 200.0])).log_prob(rows).sum(-1)
    assert abs((model.log_prob(rows) - exact).mean()) < 0.2
    assert model.columns == ("a", "b")
    assert model.record["steps"] == 60


def test_a_fit_can_be_repeated_and_leaves_global_draws_alone():
    rows = torch.randn(300, 2, dtype=torch.float64)
    state = torch.get_rng_state()
    one, two = fitted(rows), fitted(rows)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one.log_prob(rows), two.log_prob(rows))


def test_a_fit_of_a_small_table_does_not_depend_on_the_order_of_rows():
    rows = torch.randn(200, 2, dtype=torch.float64).exp()
    order = torch.randperm(200)
    weights = torch.rand(200, dtype=torch.float64)
    one, two = fitted(rows, weights=weights), fitted(rows[order], weights=weights[order])
    assert torch.equal(one.log_prob(rows), two.log_prob(rows))


@pytest.mark.filterwarnings("ignore::bnaf.TableWarning")
def test_tables_of_one_row_and_of_one_column_are_fitted():
    one = fitted(torch.tensor([[1.0, 2.0]], dtype=torch.float64))
    assert one.log_prob(torch.tensor([[1.0, 2.0]])).isfinite().all()
    assert one.sample(3, seed=0).shape == (3, 2)
    column = fitted(torch.randn(50, 1, dtype=torch.float64))
    assert column.sample(3, seed=0).shape == (3, 1)


def test_given_columns_are_conditioned_on():
    x = torch.randn(600, 1, dtype=torch.float64)
    table = Table(torch.cat([x, 5 * x + 0.1 * torch.randn_like(x)], 1), ("cause", "effect"))
    settings = TrainingSettings(steps=250)
    model = fitted(table, given=["cause"], settings=settings, members=1)
    assert model.columns == ("effect",)
    assert model.given_columns == ("cause",)
    draws = model.sample(200, given=torch.tensor([1.0]), seed=0)
    assert abs(draws.mean() - 5) < 0.5
    assert draws.std() < 1


def test_rows_of_large_tables_are_set_aside_and_those_of_small_ones_are_not():
    small = fitted(torch.randn(1000, 1, dtype=torch.float64))
    large = fitted(torch.randn(1001, 1, dtype=torch.float64))
    assert small.record["valid"] is None
    assert large.record["valid"] is not None


def test_a_fit_takes_any_flow_of_the_registry():
    model = fitted(torch.randn(100, 2), flow="glow", flow_settings={"transforms": 2})
    assert flow_name(model.flow) == "glow"


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """A stream of rows, some incomplete, of which the last column is to weigh the others."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4000, 4, dtype=torch.float64, generator=generator) * 10 + 50
    rows[:, 1] += rows[:, 0]
    rows[5, 2] = torch.nan
    path = tmp_path_factory.mktemp("stream") / "rows.parquet"
    write_table(Table(rows, ("a", "b", "c", "d")), path)
    return ParquetStream(path, 512, drop_missing=True, warn=False)


def test_a_stream_is_fitted_and_keeps_its_columns(stream):
    model = fitted(stream)
    assert model.columns == ("a", "b", "c", "d")
    assert model.standardisation.location[0] == pytest.approx(50, abs=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_stream_is_read_as_a_table_is(stream, weighted):
    table = read_table(stream.path, drop_missing=True, warn=False)
    weights = table.rows[:, 3].abs() if weighted else None
    wish = Wish(["b", "a"], ["c"], 0.1, 100, weights, 3)
    read = [FitData.read(source, wish) for source in (stream, table)]
    assert [data.encoding.columns for data in read] == [("b", "a")] * 2
    assert [data.encoding.given_columns for data in read] == [("c",)] * 2
    assert read[0].split == read[1].split
    assert read[0].facts.worth == pytest.approx(read[1].facts.worth)
    assert read[0].facts.valid_rows == read[1].facts.valid_rows
    for name in ("standardisation", "given_standardisation"):
        ours, theirs = (getattr(data.encoding, name) for data in read)
        torch.testing.assert_close(ours.location, theirs.location)
        torch.testing.assert_close(ours.scale, theirs.scale)
    streamed = [*read[0].valid.all_batches()]
    for part in ("rows", "context", *(["weights"] if weighted else [])):
        ours = torch.cat([getattr(batch, part) for batch in streamed])
        theirs = getattr(read[1].valid, part)
        assert len(ours) == len(theirs) == 400
        torch.testing.assert_close(ours.sum(0), theirs.sum(0))
    trained = torch.cat([batch.rows for batch in read[0].train.batches(0)])
    known = {round(value, 9) for value in read[1].train.rows[:, 0].tolist()}
    assert {round(value, 9) for value in trained[:, 0].tolist()} <= known


def test_a_stream_with_given_columns_weights_and_test_rows_is_fitted(stream):
    model = fitted(
        stream,
        columns=["a"],
        given=["b", "c"],
        test=0.1,
        weights=torch.ones(stream.rows),
        valid=0.1,
    )
    assert (model.columns, model.given_columns) == (("a",), ("b", "c"))
    assert model.record["split"]["test"] == 400
    assert model.record["valid"] is not None


def test_a_stream_made_for_one_of_two_processes_is_fitted_as_a_whole(tmp_path):
    rows = torch.randn(600, 2, dtype=torch.float64)
    write_table(Table(rows, ("a", "b")), tmp_path / "t.parquet")
    stream = ParquetStream(tmp_path / "t.parquet", 64, rank=0, world_size=2, warn=False)
    assert fitted(stream).record["split"]["rows"] == 600


def test_a_stream_keeps_its_batches_or_refuses_others(stream):
    assert fitted(stream).record["batch"] == 512
    with pytest.raises(SettingsError, match="batch must be that of the rows, 512, got 100"):
        fitted(stream, settings=TrainingSettings(steps=3, batch=100))


def test_a_streamed_run_with_other_weights_is_another_run(stream, tmp_path):
    weights = torch.ones(stream.rows)
    fitted(stream, weights=weights, checkpoint=tmp_path / "run.ckpt")
    weights[3] = 2.0
    with pytest.raises(SettingsError, match=r"another run: rows\.prepared is"):
        fitted(stream, weights=weights, checkpoint=tmp_path / "run.ckpt")


@pytest.mark.parametrize("rows", [900, 1050, 1200])
def test_a_stream_and_a_table_of_as_many_rows_get_one_recipe(tmp_path, rows):
    generator = torch.Generator().manual_seed(0)
    table = Table(torch.randn(rows, 2, dtype=torch.float64, generator=generator), ("a", "b"))
    write_table(table, tmp_path / "t.parquet")
    stream = ParquetStream(tmp_path / "t.parquet", 64, warn=False)
    read = [FitData.read(source, Wish()) for source in (stream, table)]
    for name in ("rows", "worth", "valid_rows", "standardised", "white", "small", "few"):
        assert getattr(read[0].facts, name) == getattr(read[1].facts, name), name


NUMBERS = torch.randn(100, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
SOURCES = {
    "tensor": NUMBERS,
    "numeric frame": {"a": NUMBERS[:, 0].numpy(), "b": NUMBERS[:, 1].numpy()},
    "mixed frame": {"a": NUMBERS[:, 0].numpy(), "b": ["Oslo", "Rome"] * 50},
}


@pytest.mark.parametrize("rows", [1_000, 1_001, 1_100, 1_112])
def test_a_table_is_whitened_or_has_rows_set_aside(rows):
    table = torch.randn(rows, 2, dtype=torch.float64)
    facts = FitData.read(table, Wish()).facts
    assert facts.white == facts.small == (facts.valid_rows is None) == (rows == 1_000)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize(
    "share", [np.float32(0.25), np.int64(25), np.array(25), torch.tensor(0.25), 0.25]
)
def test_shares_may_be_numbers_of_numpy(source, share):
    settings = TrainingSettings(steps=1, seed=np.int64(7))
    model = fitted(source, valid=share, test=np.array(3), settings=settings)
    assert model.record["split"] == {"rows": 100, "valid": 25, "test": 3, "seed": 7}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_rows_with_weights_are_set_aside_only_if_asked_for(source):
    how = {"weights": torch.arange(1.0, 101), "settings": TrainingSettings(steps=1)}
    models = [fitted(source, **how), fitted(source, valid=0.2, **how)]
    assert [model.record["split"]["valid"] for model in models] == [0, 20]


def test_counts_and_seeds_of_samples_may_be_numbers_of_numpy():
    model = Model(BNAF(2))
    assert model.sample(np.int64(2), seed=np.int64(4)).shape == (2, 2)
    with pytest.raises(SettingsError, match="count must be a whole number of at least 0, got -1"):
        model.sample(-1)


@pytest.mark.parametrize("size", [1e-310, 1e-162, 1e-20, 1e20, 1e160])
def test_columns_of_any_size_are_brought_to_a_common_scale(size):
    rows = torch.randn(60, 2, dtype=torch.float64)
    scales = Standardisation.from_rows(rows * torch.tensor([size, 1.0], dtype=torch.float64))
    moments = Standardisation.from_rows(rows)
    torch.testing.assert_close(scales.scale[0] / size, moments.scale[0])
    assert torch.equal(scales.scale[1], moments.scale[1])


def test_small_values_in_later_chunks_are_not_lost():
    rows = torch.randn(60, 1, dtype=torch.float64) * 1e-200
    moments = RunningMoments(1)
    moments.update(torch.zeros(5, 1, dtype=torch.float64))
    moments.update(rows)
    whole = Standardisation.from_rows(torch.cat([torch.zeros(5, 1), rows]) * 1e200)
    torch.testing.assert_close(moments.deviation * 1e200, whole.scale)


def test_the_widest_tables_get_the_smallest_flows():
    sizes = [BNAF.sizes_for(columns, small=True) for columns in (256, 1000, 3000, 8000)]
    with torch.device("meta"), without_draws():
        counts = [
            BNAF(columns, **chosen).networks.weight.numel()
            for columns, chosen in zip((256, 1000, 3000, 8000), sizes, strict=True)
        ]
    assert [chosen["width"] for chosen in sizes] == [5, 5, 1, 1]
    assert max(counts) <= 2**25


def test_the_memory_of_a_wide_table_is_told_before_it_is_taken():
    table = read_table(torch.randn(5, 30, dtype=torch.float64), warn=False)
    wide = {"width": 300, "transforms": 1, "hidden_layers": 2}
    with pytest.raises(TableWarning, match=r"30 columns make a flow of 42,1.* about 2\.1 GB"):
        Model.fit(table, flow_settings=wide, progress=False)


@pytest.mark.parametrize(("rows", "told"), [(1, "1 row, which"), (4, "4 rows, which")])
def test_rows_that_moments_give_away_are_warned_of(rows, told):
    table = read_table(torch.randn(rows, 1, dtype=torch.float64), warn=False)
    with pytest.raises(TableWarning, match=f"The fit has {told} the means, .* give away exactly"):
        Model.fit(table, progress=False)


def test_samples_of_numbers_stay_within_range_where_they_are_asked_to():
    rows = torch.rand(300, 2, dtype=torch.float64)
    model = Model.fit(rows, settings=TrainingSettings(steps=5), progress=False)
    free, kept = (model.sample(500, within_range=within, seed=0) for within in (False, True))
    least, largest = rows.amin(0), rows.amax(0)
    assert ((free < least) | (free > largest)).any()
    assert ((kept >= least) & (kept <= largest)).all()


def test_ranges_of_a_stream_are_those_of_all_its_rows(tmp_path):
    rows = torch.randn(1500, 2, dtype=torch.float64)
    write_table(Table(rows, ("a", "b")), tmp_path / "t.parquet")
    stream = ParquetStream(tmp_path / "t.parquet", 100)
    model = Model.fit(stream, settings=TrainingSettings(steps=2), valid=0.0, progress=False)
    assert model.encoding.ranges.equal(torch.stack([rows.amin(0), rows.amax(0)]))


def test_each_row_of_given_columns_has_its_own_draws_within_range():
    rows = torch.rand(300, 2, dtype=torch.float64)
    table = Table(rows, ("y", "x"))
    model = Model.fit(table, given=["x"], settings=TrainingSettings(steps=5), progress=False)
    drawn = model.sample(50, rows[:7, 1:], within_range=True, seed=0)
    assert drawn.shape == (50, 7, 1)
    assert ((drawn >= rows[:, 0].min()) & (drawn <= rows[:, 0].max())).all()


def test_a_model_without_a_table_knows_no_range(model):
    with pytest.raises(SettingsError, match="does not know the ranges of its columns"):
        model.sample(3, within_range=True)


def test_rows_that_hardly_ever_are_within_range_are_told(model):
    model.encoding.ranges = torch.tensor([[1e9, 1e9], [2e9, 2e9]], dtype=torch.float64)
    with pytest.raises(
        TableError,
        match=r"After 10,\d+ draws 2 of 2 rows are not as asked yet; draw .* within_range=True",
    ):
        model.sample(2, within_range=True, seed=0)


def fit_rows(rows, **options):
    """A quick fit of an array or a table."""
    return Model.fit(rows, settings=TrainingSettings(steps=5), progress=False, **options)


def test_a_constant_column_within_range_has_its_value():
    rows = torch.rand(300, 2, dtype=torch.float64)
    rows[:, 1] = 3.0
    with pytest.warns(TableWarning, match="constant"):
        model = fit_rows(rows)
    drawn = model.sample(50, within_range=True, seed=0)
    assert (drawn[:, 1] == 3.0).all()


def test_whole_numbers_at_the_ends_of_a_range_are_drawn_as_often_as_others():
    values = torch.randint(0, 2, (400, 1)).double()
    model = fit_rows(Table(values, ("flag",), ("int64",)))
    free, kept = (model.sample(4000, within_range=within, seed=0) for within in (False, True))
    inside = (free.round() >= 0) & (free.round() <= 1)
    share = (free[inside] < 0).double().mean().item()
    assert share > 0
    assert (kept < 0).double().mean().item() == pytest.approx(share, abs=0.05)


def test_rows_that_weigh_nothing_do_not_widen_a_range():
    rows = torch.rand(300, 1, dtype=torch.float64)
    rows[0], weights = 99.0, torch.ones(300)
    weights[0] = 0.0
    model = fit_rows(rows, weights=weights)
    assert model.encoding.ranges[1].item() < 1


def test_bounded_numbers_stay_within_range_in_the_units_of_the_table():
    rows = torch.rand(300, 1, dtype=torch.float64).exp()
    table = {"x": rows[:, 0].numpy()}
    model = fit_rows(table, bounds={"x": (0.0, None)})
    drawn = model.sample_table(500, within_range=True, seed=0).to_pandas()["x"]
    assert rows.min().item() <= drawn.min()
    assert drawn.max() <= rows.max().item()


def test_no_row_is_within_range_too(model):
    model.encoding.ranges = torch.zeros(2, 2, dtype=torch.float64)
    assert model.sample(0, within_range=True).shape == (0, 2)


@pytest.fixture(params=["fitted as a whole", "with rows set aside"])
def marks(request):
    """A table of marks given a number, the cells they stand for, and the data of its fit."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1_200, 2, dtype=torch.float64, generator=generator)
    rows[:, 0] = (5 + rows.sum(1)).round().clamp(3, 7)
    ends = torch.tensor([2.0, 3.5, 4.5, 5.5, 6.5, 8.0], dtype=torch.float64)
    whole = request.param == "fitted as a whole"
    table = Table(rows[: 600 if whole else None], ("mark", "x"), cells={"mark": ends})
    return table, ends, FitData.read(table, Wish(given=["x"], members=1))


def reaches(data):
    """Return the rows of every part of a fit, and the lower and upper ends of their cells."""
    scales, shift = data.encoding.standardisation, data.encoding.shift
    for part in filter(None, (data.train, data.valid)):
        value = scales.invert(part.rows, part.context)
        reach = part.more["cells"] * np.exp(-shift)
        yield value, value - reach[:, :1], value + reach[:, 1:]


def test_cells_of_a_table_reach_the_flow(marks):
    _, ends, data = marks
    for value, low, high in reaches(data):
        cell = torch.bucketize(value.round(decimals=6), ends) - 1
        torch.testing.assert_close(low, ends[cell])
        torch.testing.assert_close(high, ends[cell + 1])


def test_flows_that_take_no_cells_are_fitted_to_numbers_within_them(marks):
    _, _, data = marks
    spread = data.spread(0)
    scales = data.encoding.standardisation
    for (value, low, high), part in zip(
        reaches(data), filter(None, (spread.train, spread.valid)), strict=True
    ):
        found = scales.invert(part.rows, part.context)
        assert "cells" not in part.more
        assert ((found >= low - 1e-9) & (found <= high + 1e-9)).all()
        assert (found != value).any()


def test_cells_count_in_a_fit(marks):
    table, _, _ = marks
    settings = TrainingSettings(steps=3)
    with_cells, without = (
        Model.fit(each, given=["x"], members=1, settings=settings, progress=False)
        for each in (table, replace(table, cells={}))
    )
    assert with_cells.record["loss"] != without.record["loss"]


def test_cells_of_several_columns_are_refused(marks):
    table, _, _ = marks
    with pytest.raises(SettingsError, match="modelled alone, got those of mark"):
        Model.fit(table, progress=False)


def test_a_fit_of_cells_resumes_to_the_same_bits(marks, tmp_path):
    table, path = marks[0], tmp_path / "run.checkpoint"
    settings = TrainingSettings(steps=6, schedule="constant", warm_up=0)
    unbroken, _, resumed = (
        Model.fit(table, given=["x"], members=1, settings=each, progress=False, checkpoint=file)
        for each, file in ((settings, None), (replace(settings, steps=3), path), (settings, path))
    )
    given = table.rows[:5, 1:]
    found, expected = (each.log_prob(table.rows[:5, :1], given) for each in (resumed, unbroken))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_values_beyond_all_cells_are_refused(marks):
    table = marks[0]
    with pytest.raises(TableError, match=r"mark has .* values beyond the ends of its cells"):
        Model.fit(
            replace(table, cells={"mark": torch.tensor([4.0, 5.0])}),
            given=["x"],
            progress=False,
        )


@pytest.mark.parametrize(
    ("leading", "count"),
    [((), 10_000), ((1,), 10_000), ((3,), 10_000), ((2, 3), 3_000), ((0,), 5), ((10_000,), 2)],
)
@pytest.mark.parametrize("flow", [BNAF(1, 2, width=3), Ensemble(1, 2, members=2)])
def test_many_rows_under_each_context_are_as_those_under_copies_of_it(flow, leading, count):
    flow = copy.deepcopy(flow).double()
    x = torch.randn(*leading, count, 1, dtype=torch.float64)
    context = torch.randn(count, 2, dtype=torch.float64)
    copies = context.expand(*leading, -1, -1).reshape(-1, 2)
    sizes = []

    def noise_and_density(law, rows):
        sizes.append(rows[..., 0].numel())
        return torch.stack([law.log_prob(rows), law.cdf(rows)], -1)

    with torch.no_grad():
        found = measure_rows(flow, x, context, noise_and_density)
        law, rows = flow(copies), x.reshape(-1, 1)
        expected = torch.stack([law.log_prob(rows), law.cdf(rows)], -1)
    assert max(sizes) <= CHUNK_ROWS
    torch.testing.assert_close(found.reshape(-1, 2), expected, atol=1e-9, rtol=1e-9)
