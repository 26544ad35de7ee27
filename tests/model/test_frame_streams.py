"""Models of streams with columns of every kind: as those of the whole table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from fits import weights_of
from kinds import QUICK, fit_kinds, kinds_frame

from bnaf import SettingsError, TableError
from bnaf.model._reading import read_data
from bnaf.model._wish import Wish
from bnaf.tables import frame_streams
from bnaf.tables.frame_streams import FrameStream
from bnaf.tables.streams import ParquetStream

FRAME = kinds_frame(2400)
LONGER = replace(QUICK, steps=25, schedule="constant", warm_up=0, average=None)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("streams") / "rows.parquet"
    FRAME.to_parquet(path, row_group_size=500)
    return path


@pytest.fixture(scope="module")
def stream(path):
    return FrameStream(path, 128, buffer_rows=700)


@pytest.fixture(scope="module")
def model(stream):
    return fit_kinds(stream)


@pytest.fixture
def small_sample(monkeypatch):
    """Columns are read off 300 rows."""
    monkeypatch.setattr(frame_streams, "SAMPLE_ROWS", 300)


def read_both(stream, **wish):
    return [read_data(source, "bnaf", Wish(**wish)) for source in (stream, FRAME)]


def test_a_streamed_model_reads_columns_as_one_of_the_whole_table(model):
    whole = fit_kinds(FRAME).encoding.read_as
    streamed = model.encoding.read_as
    told = {name: words for name, words in whole.items() if name != "key"}
    assert told == {name: streamed[name] for name in told}
    assert streamed["key"].startswith("left out: identifier or free text")


def test_a_streamed_model_scores_and_draws_rows_of_every_kind(model):
    assert model.log_prob(FRAME).isfinite().all()
    drawn = model.sample_table(50, seed=0).to_pandas()
    assert set(drawn["city"].dropna()) <= {"Oslo", "Rome", "Łódź"}
    assert (drawn["visits"] == drawn["visits"].round()).all()


def test_a_streamed_model_says_what_it_gains_as_one_of_the_whole_table_does(stream):
    ours, theirs = read_both(stream, valid=0.2, test=100)
    assert ours.split == theirs.split
    assert ours.shifts == pytest.approx(theirs.shifts)
    torch.testing.assert_close(ours.encoding.location, theirs.encoding.location)
    torch.testing.assert_close(ours.encoding.scale, theirs.encoding.scale)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_stream_sets_aside_and_weighs_the_rows_that_a_frame_does(stream, weighted):
    weights = np.linspace(0.5, 2, len(FRAME)) if weighted else None
    wish = {"columns": ["weight", "city", "visits"], "given": ["income", "member"]}
    ours, theirs = read_both(stream, **wish, valid=0.2, test=100, weights=weights)
    for name in ("rows", "columns", "given", "worth", "valid_rows", "counted", "standardised"):
        assert getattr(ours.facts, name) == pytest.approx(getattr(theirs.facts, name)), name
    streamed = [*ours.valid.all_batches()]
    found, wanted = (
        torch.cat([cells_of(data, batch) for batch in batches])
        for data, batches in ((ours, streamed), (theirs, [theirs.valid]))
    )
    torch.testing.assert_close(ordered(found), ordered(wanted))


def test_an_epoch_of_a_stream_has_rows_to_train_on_alone(stream):
    ours, theirs = read_both(stream, columns=["visits", "weight"], valid=0.2)
    seen = torch.cat([batch.rows for batch in ours.train.batches(3)])
    known = {tuple(row) for row in theirs.train.rows.nan_to_num(nan=-9.0).tolist()}
    assert len(seen) == 128 * (1920 // 128)
    assert {tuple(row) for row in seen.nan_to_num(nan=-9.0).tolist()} <= known


def cells_of(data, batch):
    """Return what stands for the cells of a batch, its contexts and its weights, side by side."""
    schema = data.encoding.schema
    parts = [schema.codes(schema.decode(batch.rows)), batch.context]
    if batch.weights is not None:
        parts.append(batch.weights.unsqueeze(1))
    return torch.cat(parts, 1)


def ordered(rows):
    """Return rows in an order of their own."""
    values = rows.nan_to_num(nan=-9.0).numpy()
    return torch.from_numpy(values[np.lexsort(values.T.round(6))])


def test_a_streamed_fit_is_that_of_its_seed(stream, model):
    assert torch.equal(weights_of(fit_kinds(stream).flow), weights_of(model.flow))


def test_a_streamed_fit_resumes_to_the_same_bits(stream, tmp_path):
    unbroken = fit_kinds(stream, settings=LONGER)
    path = tmp_path / "run.checkpoint"
    fit_kinds(stream, settings=replace(LONGER, steps=19), checkpoint=path)
    resumed = fit_kinds(stream, settings=LONGER, checkpoint=path)
    assert resumed.record["steps"] == 25
    assert torch.equal(weights_of(resumed.flow), weights_of(unbroken.flow))


@pytest.mark.parametrize(
    "change", [{"weights": np.arange(2400) + 1.0}, {"kinds": {"visits": "category"}}]
)
def test_a_streamed_fit_with_other_weights_or_kinds_is_another_run(stream, tmp_path, change):
    some = {"columns": ["visits", "weight"], "checkpoint": tmp_path / "run.checkpoint"}
    fit_kinds(stream, valid=0.1, weights=np.ones(2400), **some)
    with pytest.raises(SettingsError, match=r"another run"):
        fit_kinds(stream, valid=0.1, **{"weights": np.ones(2400)} | some | change)


def test_rows_that_weigh_nothing_teach_no_kind(stream):
    frame_weights = np.where(FRAME["city"] == "Rome", 0.0, 1.0)
    data = read_data(stream, "bnaf", Wish(columns=["city", "weight"], weights=frame_weights))
    assert "Rome" not in data.encoding.labels["city"]


@pytest.mark.usefixtures("small_sample")
def test_columns_of_a_long_stream_are_read_off_a_sample(stream):
    lines = []
    model = fit_kinds(stream, announce=lines.append)
    assert lines[0] == "columns are read off a random sample, 300 of 2,160 rows."
    assert model.log_prob(FRAME).isfinite().all()


@pytest.mark.usefixtures("small_sample")
def test_a_column_that_counts_the_rows_is_found_in_a_sample(tmp_path):
    frame = FRAME[["city", "weight"]].assign(number=np.arange(len(FRAME)) + 5)
    frame.to_parquet(tmp_path / "t.parquet")
    told = fit_kinds(FrameStream(tmp_path / "t.parquet", 128)).encoding.read_as
    assert told["number"] == "left out: identifier: it counts the rows"


@pytest.mark.usefixtures("small_sample")
def test_levels_that_are_not_in_the_sample_are_unseen_ones(tmp_path):
    frame = FRAME[["city", "weight"]].assign(city=["rare", *FRAME["city"][1:]])
    frame.to_parquet(tmp_path / "t.parquet")
    model = fit_kinds(FrameStream(tmp_path / "t.parquet", 128, seed=1))
    assert "rare" not in model.encoding.labels["city"]
    torch.testing.assert_close(
        model.log_prob({"city": "rare", "weight": 70.0}, warn=False),
        model.log_prob({"city": "never seen", "weight": 70.0}, warn=False),
    )


def test_a_short_stream_is_a_frame(tmp_path):
    FRAME[:300].to_parquet(tmp_path / "t.parquet")
    streamed = fit_kinds(FrameStream(tmp_path / "t.parquet"))
    assert torch.equal(weights_of(streamed.flow), weights_of(fit_kinds(FRAME[:300]).flow))


def test_a_stream_is_validated_on_other_rows(stream):
    model = fit_kinds(stream, valid=kinds_frame(200, seed=3))
    assert model.record["split"]["valid"] == 0
    assert model.record["valid"] is not None


def test_kinds_and_bounds_of_a_stream_may_be_told(stream):
    told = fit_kinds(
        stream,
        columns=["visits", "weight"],
        kinds={"visits": "category"},
        bounds={"weight": (0, 200)},
    ).encoding.read_as
    assert told["visits"].startswith("ordered category")
    assert "from 0 to 200" in told["weight"]


def test_numbers_stream_as_numbers_do(tmp_path):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(1500, 2)), columns=["a", "b"])
    rows.to_parquet(tmp_path / "t.parquet")
    model = fit_kinds(ParquetStream(tmp_path / "t.parquet", 128), flow="bnaf")
    assert model.encoding.schema is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"flow": "glow"}, SettingsError, r"a ParquetStream for the flow 'glow'.*a FrameStream"),
        ({"members": 3}, SettingsError, r"members must be 1 for columns of several kinds, got 3"),
        ({"columns": ["z"]}, TableError, r"'z' not found"),
        ({"kinds": {"z": "category"}}, TableError, r"'z' not found"),
    ],
)
def test_what_a_stream_of_every_kind_cannot_do_is_refused(stream, options, error, message):
    with pytest.raises(error, match=message):
        fit_kinds(stream, **options)
