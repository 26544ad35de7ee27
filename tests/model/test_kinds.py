"""Models of tables with columns of every kind: scores, samples, files and resumed fits."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from fits import weights_of
from kinds import MODELLED, QUICK, fit_kinds, kinds_frame
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from bnaf import (
    BNAF,
    Model,
    SettingsError,
    ShapeError,
    StorageError,
    TableError,
    TableWarning,
    load,
    save,
)
from bnaf._digest import digest_contents
from bnaf._random import without_draws
from bnaf.columns.schema import Schema
from bnaf.flows.mixed import Mixed
from bnaf.model.kinds import code_moments
from bnaf.tables.frames import read_frame

FRAME = kinds_frame()


@pytest.fixture(scope="module")
def model():
    return fit_kinds(FRAME)


@pytest.fixture(scope="module")
def drawn(model):
    return model.sample_table(100, seed=0)


@pytest.fixture(scope="module")
def conditional():
    return fit_kinds(FRAME, columns=["visits", "weight"], given=["city", "income"])


@pytest.fixture(scope="module")
def model_file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("kinds") / "model.safetensors"
    save(model, path)
    return path


def test_rows_of_every_kind_have_finite_log_probabilities(model):
    assert model.log_prob(FRAME).isfinite().all()
    assert model.columns == MODELLED


def test_shares_of_cells_add_up_to_the_row(model):
    shares = model.log_shares(FRAME)
    assert shares.shape == (len(FRAME), len(MODELLED))
    torch.testing.assert_close(shares.sum(1), model.log_prob(FRAME))


def test_a_constant_has_no_share_and_another_value_is_impossible(model):
    assert (model.log_shares(FRAME)[:, MODELLED.index("unit")] == 0).all()
    assert model.log_prob(FRAME.assign(unit="lb"), warn=False).eq(-torch.inf).all()


def test_values_outside_the_bounds_are_impossible(model):
    assert model.log_prob(FRAME.assign(income=-1.0), warn=False).eq(-torch.inf).all()


def test_a_level_never_seen_has_a_mass(model):
    assert model.log_prob(FRAME.assign(city="Ulm"), warn=False).isfinite().all()


def test_one_level_more_makes_the_masses_of_a_category_sum_to_one(model):
    row = FRAME[1:2]
    levels = ["Oslo", "Rome", "Łódź", None, "Ulm"]
    rows = pd.concat([row.assign(city=level) for level in levels])
    with pytest.warns(TableWarning, match="1 of levels never seen"):
        shares = model.log_shares(rows)[:, MODELLED.index("city")]
    assert shares.exp().sum().item() == pytest.approx(1.0)


def test_reading_says_of_every_column_what_it_is(model):
    told = model.encoding.read_as
    assert told["key"].startswith("left out: identifier")
    assert told["city"] == "category of 3 levels, 9 empty"
    assert told["income"].endswith("at least 0, often 0")
    assert [*told] == [*MODELLED, "key"]


def test_a_fit_announces_how_it_read_every_column():
    said = []
    fit_kinds(FRAME[["key", "city", "weight"]], announce=said.append)
    assert [line.partition(":")[0] for line in said[1:]] == ["city", "weight", "key"]
    assert said[0] == "empty cells and ranges below are those of the 96 rows to train on."


def test_samples_have_the_names_and_types_of_the_table(drawn):
    pd.testing.assert_series_equal(drawn.to_pandas().dtypes, FRAME[[*MODELLED]].dtypes)


def test_samples_lie_on_levels_grids_and_within_bounds(drawn):
    rows = drawn.to_pandas()
    assert set(rows["city"].dropna()) <= {"Oslo", "Rome", "Łódź"}
    assert (rows["price"] * 4 % 1 == 0).all()
    assert (rows["income"] >= 0).all()
    assert 0 < (rows["income"] == 0).mean() < 1
    assert (rows["day"] == rows["day"].dt.normalize()).all()
    assert (rows["unit"] == "kg").all()


def test_samples_have_empty_cells_where_the_table_has_some(drawn):
    empty = drawn.to_pandas().isna().any()
    assert [*empty[empty].index] == ["city", "weight"]


def test_samples_can_be_scored(model, drawn):
    assert model.log_prob(drawn, warn=False).isfinite().all()


def test_complete_samples_have_no_empty_cell(model):
    drawn = model.sample_table(30, complete=True, seed=0)
    assert len(drawn) == 30
    assert drawn.complete.all()


def test_given_cells_do_not_make_a_single_row_complete_that_is_not(model):
    rows = [model.sample_table(1, {"visits": 40}, complete=True, seed=seed) for seed in range(60)]
    assert all(row.complete.all() for row in rows)


def test_a_cell_that_is_given_empty_stays_so_in_complete_rows(model):
    drawn = model.sample_table(20, {"city": None}, complete=True, seed=0).to_pandas()
    assert drawn["city"].isna().all()
    assert not drawn.drop(columns="city").isna().any(axis=None)


@pytest.mark.parametrize("name", ["visits", "price", "weight", "income", "day"])
def test_samples_within_range_are_no_less_and_no_more_than_what_was_seen(model, name):
    rows = model.sample_table(2000, within_range=True, seed=0).to_pandas()[name]
    assert FRAME[name].min() <= rows.min()
    assert rows.max() <= FRAME[name].max()


def test_samples_lie_beyond_what_was_seen_unless_they_are_asked_not_to(model):
    rows = model.sample_table(2000, seed=0).to_pandas()
    assert rows["weight"].max() > FRAME["weight"].max()


def test_complete_rows_within_range_are_both(model):
    rows = model.sample_table(200, complete=True, within_range=True, seed=0).to_pandas()
    assert not rows.isna().any(axis=None)
    assert rows["weight"].max() <= FRAME["weight"].max()


def test_rows_within_range_have_empty_cells_as_often_as_others(model):
    rows = model.sample_table(2000, within_range=True, seed=0).to_pandas()
    others = model.sample_table(2000, seed=0).to_pandas()
    assert rows["weight"].isna().mean() == pytest.approx(others["weight"].isna().mean(), abs=0.05)


@pytest.mark.parametrize("values", [[1.1, 1.2, 1.3, 1.9], [0.1, 0.2, 0.3, 0.1 + 0.2]])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_range_holds_the_rows_it_was_seen_in(values, kind):
    column = np.tile(np.array(values, dtype=kind).astype(np.float64), 40)
    schema = Schema.fit({"x": column.astype(kind)}, kinds={"x": "grid"})
    packed = schema.encode(read_frame({"x": column.astype(kind)})).rows
    low, high = schema.ranges
    codes = schema.codes(schema.decode(packed))
    assert ((codes >= low) & (codes <= high)).all()


def test_a_value_that_is_given_may_lie_beyond_the_range(model):
    price = FRAME["price"].max() + 1
    drawn = model.sample_table(20, {"price": price}, within_range=True, seed=0).to_pandas()
    assert (drawn["price"] == price).all()
    assert drawn["income"].max() <= FRAME["income"].max()


def test_samples_repeat_with_their_seed_and_differ_with_another(model):
    first, again, other = (model.sample(9, seed=seed) for seed in (3, 3, 4))
    torch.testing.assert_close(first, again, rtol=0, atol=0, equal_nan=True)
    assert not first.equal(other)


def test_samples_go_to_polars(drawn):
    polars = pytest.importorskip("polars")
    assert drawn.to_polars().schema["day"] == polars.Datetime("us")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"city": "Rome"}, "Rome"),
        ({"member": True}, True),
        ({"unit": "kg"}, "kg"),
        ({"visits": "41"}, 41),
        ({"visits": 41}, 41),
        ({"weight": 71.25}, 71.25),
        ({"day": "2021-03-04"}, pd.Timestamp("2021-03-04")),
        ({"day": pd.Timestamp("2021-03-04")}, pd.Timestamp("2021-03-04")),
        ({"income": 0.0}, 0.0),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
@pytest.mark.filterwarnings("ignore::bnaf.errors.FewDrawsWarning")
def test_any_column_of_a_model_can_be_given(model, given, expected):
    (name,) = given
    cells = model.sample_table(8, given, seed=0).to_pandas()[name]
    assert len(cells) == 8
    assert (cells == expected).all()


def test_a_column_that_is_not_there_cannot_be_given(model):
    with pytest.raises(TableError, match="'town'"):
        model.sample_table(3, {"town": "Rome"})


def test_a_value_of_another_kind_cannot_be_given(model):
    with pytest.raises(TableError, match=r"'visits'.*'many'"):
        model.sample_table(3, {"visits": "many"})


def test_several_rows_cannot_be_given_to_modelled_columns(model):
    with pytest.raises(ShapeError, match="one row of modelled columns, got 2"):
        model.sample_table(3, {"city": ["Rome", "Oslo"]})


@pytest.mark.filterwarnings("ignore::bnaf.errors.FewDrawsWarning")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"visits": 5000}, "'visits'"),
        ({"weight": 5000.0}, "'weight'"),
    ],
)
def test_unusual_values_are_answered_with_a_warning(model, given, words):
    with pytest.warns(TableWarning, match=words):
        model.sample_table(2, given, seed=0)


def test_an_unusual_value_of_a_given_column_is_answered_with_a_warning(conditional):
    with pytest.warns(TableWarning, match=r"'city'.*120 of levels never seen\."):
        conditional.log_prob(FRAME.assign(city="Ulm"))


def test_given_columns_of_every_kind_are_found_by_name(conditional):
    rows = FRAME[["visits", "weight"]]
    given = FRAME[["city", "income"]]
    torch.testing.assert_close(conditional.log_prob(FRAME), conditional.log_prob(rows, given))
    shares = conditional.log_shares(FRAME)
    torch.testing.assert_close(shares.sum(1), conditional.log_prob(FRAME))


def test_rows_are_drawn_for_each_row_of_given_columns(conditional):
    given = FRAME[["city", "income"]].head(4)
    assert conditional.sample(5, given, seed=0).shape == (5, 4, 2)
    one = conditional.sample_table(5, {"city": "Rome", "income": 2.0}, seed=0)
    assert one.names == ("visits", "weight")


def test_a_given_column_that_is_left_out_is_refused():
    with pytest.raises(TableError, match="'key' cannot be conditioned on"):
        fit_kinds(FRAME, columns=["visits"], given=["key"])


def test_rows_are_taken_as_dicts_frames_and_files(model, tmp_path):
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    expected = model.log_prob(FRAME)
    for rows in (
        FRAME.to_dict("list"),
        read_frame(FRAME),
        tmp_path / "rows.csv",
        model.read(FRAME),
    ):
        torch.testing.assert_close(model.log_prob(rows), expected)
    one = model.log_prob({name: FRAME[name][1] for name in MODELLED})
    torch.testing.assert_close(one, expected[1:2])


def test_codes_are_rows_by_position(model):
    codes = model.read(FRAME).rows
    torch.testing.assert_close(model.log_prob(codes), model.log_prob(FRAME))


def test_a_table_without_a_column_is_refused(model):
    with pytest.raises(TableError, match="'weight'"):
        model.log_prob(FRAME.drop(columns="weight"))


def test_saved_and_loaded_models_give_equal_numbers(model, model_file):
    loaded = load(model_file)
    torch.testing.assert_close(loaded.log_prob(FRAME), model.log_prob(FRAME), rtol=0, atol=0)
    same = [each.sample(9, seed=5) for each in (model, loaded)]
    torch.testing.assert_close(*same, rtol=0, atol=0, equal_nan=True)
    assert loaded.encoding.read_as == model.encoding.read_as


def test_saved_conditional_models_give_equal_numbers(conditional, tmp_path):
    save(conditional, tmp_path / "c.safetensors")
    loaded = load(tmp_path / "c.safetensors")
    assert loaded.given_columns == ("city", "income")
    torch.testing.assert_close(loaded.log_prob(FRAME), conditional.log_prob(FRAME), rtol=0, atol=0)


HOSTILE = {
    "no columns": lambda header: header["schema"].pop("columns"),
    "columns are text": lambda header: header["schema"].update(columns="abc"),
    "a column is a number": lambda header: header["schema"]["columns"].append(3),
    "a column less": lambda header: header["schema"]["columns"].pop(),
    "a name twice": lambda header: header["schema"]["columns"][1].update(name="city"),
    "no such kind": lambda header: header["schema"]["columns"][0].update(kind="object"),
    "a level more": lambda header: header["schema"]["columns"][0]["known"].append("Ulm"),
    "shares below zero": lambda header: header["schema"]["columns"][0].update(shares=[2.0, -1.0]),
    "a scale of zero": lambda header: header["schema"]["columns"][6].update(scale=0.0),
    "moments of other columns": lambda header: header["moments"]["scale"].append(1.0),
    "no moments": lambda header: header.pop("moments"),
    "schema is a list": lambda header: header.update(schema=[]),
    "left out is a dict": lambda header: header["schema"].update(left_out={}),
    "given that the flow has not": lambda header: header.update(given_schema=header["schema"]),
    "given is text": lambda header: header.update(given_schema="city"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_hostile_schemas_are_refused(model_file, tmp_path, change):
    with safe_open(model_file, framework="pt") as file:
        header = json.loads(file.metadata()["bnaf"])
    tensors = load_file(model_file)
    change(header)
    text = json.dumps(header)
    metadata = {"bnaf": text, "sha256": digest_contents(text, tensors)}
    save_file(tensors, tmp_path / "m.safetensors", metadata)
    with pytest.raises(StorageError):
        load(tmp_path / "m.safetensors")


def test_a_file_of_rows_of_every_kind_is_of_format_five(model_file):
    with safe_open(model_file, framework="pt") as file:
        assert json.loads(file.metadata()["bnaf"])["format"] == 5


def test_validation_rows_may_be_a_frame():
    valid = kinds_frame(40, seed=1)
    model = fit_kinds(FRAME, valid=valid)
    assert model.record["split"] == {"rows": 120, "valid": 0, "test": 0, "seed": 1}
    assert "valid" in model.record["shift"]


def test_the_training_record_tells_log_likelihoods_in_the_units_of_the_table():
    frame, valid = FRAME[["city", "price", "weight"]], kinds_frame(40, seed=1)
    model = fit_kinds(frame, valid=valid)
    told = model.log_likelihood(model.record["valid"], "valid")
    assert told == pytest.approx(model.log_prob(valid).mean().item(), rel=1e-5)


def test_a_row_of_weight_zero_is_as_good_as_none():
    frame = FRAME[["city", "income"]]
    weights = np.r_[np.ones(100), np.zeros(20)]
    frames = (frame, frame.assign(income=np.where(weights, frame["income"], 0.5)))
    models = [fit_kinds(each, weights=weights, valid=0.0) for each in frames]
    torch.testing.assert_close(*(each.log_prob(frame) for each in models))


def test_a_resumed_fit_has_the_weights_of_an_unbroken_one(tmp_path):
    frame, path = FRAME[["city", "visits", "weight"]], tmp_path / "run.checkpoint"
    settings = replace(QUICK, steps=6, schedule="constant", warm_up=0, average=None)
    unbroken = fit_kinds(frame, settings=settings)
    fit_kinds(frame, settings=replace(settings, steps=3), checkpoint=path)
    resumed = fit_kinds(frame, settings=settings, checkpoint=path)
    assert resumed.record["steps"] == 6
    torch.testing.assert_close(weights_of(resumed.flow), weights_of(unbroken.flow))


def test_kinds_and_bounds_may_be_told():
    model = fit_kinds(
        FRAME[["visits", "weight"]],
        kinds={"visits": "category"},
        bounds={"weight": (0.0, 200.0)},
    )
    told = model.encoding.read_as
    assert told["visits"].startswith("ordered category")
    assert "from 0 to 200" in told["weight"]
    assert model.log_prob({"visits": 40, "weight": -1.0}, warn=False).item() == -torch.inf


def test_a_column_told_to_be_text_is_left_out():
    model = fit_kinds(FRAME[["city", "weight"]], kinds={"city": "text"})
    assert model.columns == ("weight",)


def test_plain_numbers_have_shares_under_the_flow_of_all_kinds():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    model = fit_kinds(frame, flow="mixed")
    torch.testing.assert_close(model.log_shares(frame).sum(1), model.log_prob(frame))
    with pytest.raises(SettingsError, match="mixed"):
        fit_kinds(frame).log_shares(frame)


def test_another_flow_refuses_text_and_kinds():
    with pytest.raises(TableError, match="'city'"):
        fit_kinds(FRAME[["city", "weight"]], flow="glow")
    with pytest.raises(SettingsError, match=r"kinds=\.\.\. must be left out: the flow 'glow'"):
        fit_kinds(FRAME[["visits"]], flow="glow", kinds={"visits": "grid"})


def test_a_flow_of_every_kind_refuses_arrays():
    with pytest.raises(SettingsError, match=r"'mixed' takes frames and files.*got a ndarray"):
        fit_kinds(np.ones((9, 2)), flow="mixed")


def test_arrays_are_plain_numbers_of_which_no_kind_is_told():
    with pytest.raises(
        SettingsError, match=r"bounds=\.\.\. must be left out: rows that come as an"
    ):
        fit_kinds(np.ones((9, 2)), bounds={"x0": (0.0, None)})


def test_averages_of_several_flows_are_of_plain_numbers():
    with pytest.raises(SettingsError, match="members must be 1"):
        fit_kinds(FRAME, members=3)


def test_a_kind_that_is_not_there_is_refused():
    with pytest.raises(SettingsError, match="'colour' for 'city'"):
        fit_kinds(FRAME, kinds={"city": "colour"})
    with pytest.raises(TableError, match="'town'"):
        fit_kinds(FRAME, kinds={"town": "category"})


def test_reading_without_missing_rows_keeps_their_numbers(model):
    table = model.read(FRAME, drop_missing=True)
    kept = np.flatnonzero(FRAME[[*MODELLED]].notna().all(axis=1))
    assert table.numbers.tolist() == kept.tolist()
    torch.testing.assert_close(model.log_prob(table), model.log_prob(FRAME)[kept])


def test_values_of_rows_are_told_as_they_are_written(model):
    row = dict(zip(MODELLED, model.encoding.values(model.read(FRAME).rows)[0], strict=True))
    assert row["city"] is None
    assert row["member"] is bool(FRAME["member"][0])
    assert row["day"] == str(FRAME["day"][0])
    assert row["price"] == FRAME["price"][0]


def test_a_model_knows_the_rows_it_was_fitted_to():
    model = fit_kinds(FRAME, valid=0.0)
    table = model.read(FRAME)
    assert model.encoding.is_of(table.rows)
    assert not model.encoding.is_of(model.read(kinds_frame(seed=1)).rows)


def test_no_standardisation_is_told_of_rows_of_every_kind(model):
    with pytest.raises(SettingsError, match="several kinds"):
        model.standardisation  # noqa: B018


def test_moments_of_codes_leave_empty_cells_out():
    codes = torch.tensor([[1.0, torch.nan], [3.0, torch.nan]], dtype=torch.float64)
    location, scale = code_moments(codes)
    assert location.tolist() == [2.0, 0.0]
    assert scale.tolist() == [1.0, 1.0]


def test_an_encoding_refuses_a_flow_of_other_levels(model):
    flow = Mixed([5, 2, 2, 2], 5, statuses=model.encoding.schema.statuses)
    with pytest.raises(SettingsError, match="levels are \\[4, 2, 2, 2\\], the flow takes \\[5"):
        Model(flow, model.encoding)


@pytest.mark.parametrize("size", [1e-320, 1e-160, 1e160, 1e300])
@pytest.mark.filterwarnings("ignore::bnaf.errors.TableWarning")
def test_columns_of_any_size_come_back_from_a_file(size, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": size * rng.uniform(-1, 1, 60), "text": rng.choice(["a", "b"], 60)})
    model = Model.fit(frame, settings=QUICK, progress=False)
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors").log_prob(frame)
    assert again.isfinite().all()
    assert torch.equal(again, model.log_prob(frame))


@pytest.mark.parametrize("rows", [3, 4])
def test_rows_that_ranges_and_moments_give_away_are_warned_of(rows):
    frame = pd.DataFrame({"x": np.arange(rows) ** 1.5, "text": ["a", "b", "a", "b"][:rows]})
    with pytest.warns(TableWarning, match="rows, which the means, deviations and ranges"):
        Model.fit(frame, settings=QUICK, progress=False)


def test_the_memory_of_many_levels_is_told_before_it_is_taken():
    wide = {"category_width": 6000, "category_layers": 2}
    with pytest.raises(TableWarning, match=r"8 columns make a flow of .* about 1\.\d GB"):
        fit_kinds(FRAME, flow_settings=wide)


def test_networks_of_very_many_levels_grow_slower_than_their_square():
    counts = []
    for parts in (500, 1000, 2000):
        sizes = Mixed.sizes_for_parts([10] * parts, 0, small=False, few=False)
        with torch.device("meta"), without_draws():
            flow = Mixed([10] * parts, 0, **sizes)
        counts.append(sum(weight.numel() for weight in flow.parameters()))
    assert counts[2] < 3 * counts[1] < 6 * counts[0]
    assert counts[2] < 1e8


@pytest.mark.parametrize("beside", [{}, {"text": ["a", "b"] * 30}], ids=["alone", "text"])
def test_whole_numbers_that_float64_rounds_are_told(beside):
    large = 2**53 + 7 * np.random.default_rng(0).integers(0, 9, 60)
    with pytest.warns(TableWarning, match="'large'.*whole numbers above 2\\^53"):
        Model.fit(pd.DataFrame({"large": large, **beside}), settings=QUICK, progress=False)


def codes_frame(rows=60):
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "zip": random.choice(["01", "02", "A3"], rows),
            "flag": random.choice(["True", "False", "Unknown"], rows),
            "since": random.choice(["2024-01-01", "2024-02-01", "never"], rows),
        }
    )


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    path = tmp_path_factory.mktemp("codes") / "t.csv"
    codes_frame().to_csv(path, index=False)
    return fit_kinds(path)


def test_levels_are_the_texts_as_they_stand_in_the_file(coded):
    assert sorted(coded.encoding.labels["zip"]) == ["01", "02", "A3"]
    assert sorted(coded.encoding.labels["flag"]) == ["False", "True", "Unknown"]


def test_the_score_of_a_row_does_not_depend_on_the_others_in_its_file(coded, tmp_path):
    frame = codes_frame()
    alone = frame[(frame != ["A3", "Unknown", "never"]).all(axis=1)]
    alone.to_csv(tmp_path / "alone.csv", index=False)
    expected = coded.log_prob(frame)[alone.index]
    torch.testing.assert_close(coded.log_prob(tmp_path / "alone.csv"), expected)
    torch.testing.assert_close(coded.log_prob(coded.read(tmp_path / "alone.csv")), expected)


def test_validation_rows_in_a_file_are_text_where_the_table_is(tmp_path):
    frame = codes_frame()
    alone = frame[(frame != ["A3", "Unknown", "never"]).all(axis=1)]
    alone.to_csv(tmp_path / "alone.csv", index=False)
    models = [fit_kinds(frame, valid=valid) for valid in (alone, tmp_path / "alone.csv")]
    assert models[0].record["valid"] == models[1].record["valid"]


@pytest.mark.parametrize("name", ["member", "visits", "price", "income", "day", "unit"])
def test_an_empty_cell_where_none_was_has_no_share(model, name):
    shares = model.log_shares(FRAME.assign(**{name: None}))
    assert (shares[:, MODELLED.index(name)] == 0).all()
    assert shares.isfinite().all()


def test_a_category_that_is_integrated_out_is_the_sum_over_its_levels():
    frame = FRAME[["weight", "member"]]
    model = fit_kinds(frame, flow="mixed")
    rows = [frame.assign(member=level, weight=None) for level in (True, False, None)]
    both, one, out = (model.log_prob(each) for each in rows)
    torch.testing.assert_close(torch.logaddexp(both, one), out)


IMPOSSIBLE = [
    ({"city": "Ulm"}, r"'city' expects one of Oslo, Rome, Łódź, got 'Ulm'; .* of given="),
    ({"member": 2}, "'member' expects one of false, true, got '2'"),
    ({"member": None}, "'member' expects a value, for no cell was empty, got an empty cell"),
    ({"visits": 41.5}, "'visits' expects a whole number, such as 41 or 42, got '41.5'"),
    ({"price": "40.3"}, "'price' expects a number on a grid of 0.25, such as 40.25 or 40.5"),
    ({"income": -5}, "'income' expects a number, at least 0, got '-5'"),
    ({"day": "2021-03-04 10:30:00"}, "'day' expects one by the day, such as 2021-03-04 .* or"),
    ({"unit": "lb"}, "'unit' expects its one value, kg, got 'lb'"),
]


@pytest.mark.parametrize(("given", "words"), IMPOSSIBLE, ids=lambda each: str(each)[:24])
def test_what_has_no_probability_cannot_be_given(model, given, words):
    with pytest.raises(TableError, match=words):
        model.sample_table(2, given, seed=0)


@pytest.fixture(scope="module")
def rare():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "town": random.choice(["Oslo", "Rome"], 200).astype(object),
            "births": random.choice([0, 1, 2, 4], 200),
        }
    )
    frame.loc[:2, "town"] = ["Bern", "Kiel", "Ghent"]
    frame.loc[:1, "births"] = [10, 12]
    return fit_kinds(frame)


@pytest.mark.filterwarnings("ignore::bnaf.errors.FewDrawsWarning")
@pytest.mark.parametrize(("name", "value"), [("town", "Kiel"), ("births", 10)])
def test_a_rare_level_that_is_given_is_not_another_of_its_pool(rare, name, value):
    drawn = rare.sample_table(40, {name: value}, seed=0).to_pandas()
    assert (drawn[name] == value).all()


@pytest.mark.filterwarnings("ignore::bnaf.errors.FewDrawsWarning")
@pytest.mark.parametrize(("name", "value"), [("town", "Ulm"), ("births", 8)])
def test_a_level_never_seen_is_one_of_the_rare_ones_and_keeps_its_name(rare, name, value):
    with pytest.warns(TableWarning, match="levels never seen"):
        drawn = rare.sample_table(40, {name: value}, seed=0).to_pandas()
    assert (drawn[name] == value).all()


def test_a_number_between_the_values_of_a_column_cannot_be_given(rare):
    with pytest.raises(
        TableError, match=r"'births' expects one of 0, 1, 2, 4, 10, 12, got '2\.5'"
    ):
        rare.sample_table(2, {"births": 2.5}, seed=0)


def test_far_values_of_scored_rows_are_told_once_by_column_and_number(model):
    rows = FRAME.head(4).assign(visits=[9000, 40, 41, 42], city="Ulm")
    for score in (model.log_prob, model.log_shares):
        with pytest.warns(TableWarning) as told:
            score(rows)
        (warning,) = told
        assert str(warning.message).startswith("Columns 'city', 'visits' have values the model")
        assert "city 4 of levels never seen; visits 1 far outside of" in str(warning.message)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"visits": 40.5}, "3 off the grid of 1"),
        ({"income": -1.0}, "3 outside of the bounds, at least 0"),
        ({"weight": 9e3}, "3 far outside of"),
        ({"unit": "lb"}, "3 that differ"),
    ],
)
def test_scores_of_values_the_model_knows_nothing_of_come_with_a_warning(model, change, words):
    with pytest.warns(TableWarning, match=f"'{next(iter(change))}' has values .*: {words}"):
        model.log_prob(FRAME.head(3).assign(**change))


def test_given_and_scored_columns_are_told_of_in_one_warning(conditional):
    with pytest.warns(TableWarning) as told:
        conditional.log_prob(FRAME.head(2).assign(city="Ulm", visits=9000))
    assert len(told) == 1


def test_plain_numbers_far_from_all_that_were_seen_are_scored_with_a_warning():
    rows = torch.randn(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = Model.fit(rows, settings=QUICK, progress=False)
    rows[3, 1] = 99.0
    assert model.log_prob(rows).isfinite().all()  # without names, as points of a grid come
    with pytest.warns(TableWarning, match="'x1' has .*: 1 more than 20 deviations"):
        model.log_prob({"x0": rows[:, 0], "x1": rows[:, 1]})


def test_rows_are_taken_as_a_list_of_dicts(model):
    records = FRAME.head(5).astype(object).where(FRAME.head(5).notna(), None).to_dict("records")
    torch.testing.assert_close(model.log_prob(records), model.log_prob(FRAME)[:5])


def test_a_model_is_fitted_to_a_list_of_dicts():
    records = FRAME[["city", "visits"]].to_dict("records")
    assert fit_kinds(records).columns == ("city", "visits")


def test_one_row_of_a_frame_is_refused_with_a_remedy(model):
    with pytest.raises(TableError, match=r"got a Series of pandas; give \.to_frame\(\)"):
        model.log_prob(FRAME.iloc[0])
    with pytest.raises(TableError, match="got a Series of pandas"):
        Model.fit(FRAME["city"], settings=QUICK, progress=False)


@pytest.fixture(scope="module")
def nullable():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "whole": pd.array(random.integers(0, 60, 80), dtype="Int16"),
            "small": pd.array(random.integers(0, 60, 80), dtype="UInt8"),
            "truth": pd.array(random.random(80) < 0.5, dtype="boolean"),
            "text": pd.array(random.choice(["u", "v"], 80), dtype="string"),
            "number": pd.array(random.normal(size=80), dtype="Float32"),
            "plain": random.integers(0, 60, 80).astype("int8"),
        }
    )
    frame.loc[::9, ["whole", "truth", "text"]] = pd.NA
    return frame


def test_nullable_types_of_pandas_come_back(nullable, tmp_path):
    save(fit_kinds(nullable), tmp_path / "m.safetensors")
    drawn = load(tmp_path / "m.safetensors").sample_table(50, seed=0).to_pandas()
    pd.testing.assert_series_equal(drawn.dtypes, nullable.dtypes)
    assert drawn[["whole", "truth", "text"]].isna().any().all()


@pytest.mark.parametrize("rows", [1, 50])
def test_whole_numbers_and_truth_values_of_a_file_that_may_be_empty_are_nullable(
    nullable, tmp_path, rows
):
    nullable.to_csv(tmp_path / "t.csv", index=False)
    types = fit_kinds(tmp_path / "t.csv").sample_table(rows, seed=0).to_pandas().dtypes
    told = {"whole": "Int64", "small": "int64", "truth": "boolean", "number": "float64"}
    assert {name: str(types[name]) for name in told} == told


def test_a_stored_column_is_nullable_or_not(nullable):
    stored = fit_kinds(nullable).encoding.schema.as_dict()
    stored["columns"][0]["nullable"] = "yes"
    with pytest.raises(StorageError, match="'nullable'"):
        Schema.from_dict(stored)


def test_categories_alone_are_trained_at_the_rate_of_their_flow():
    model = fit_kinds(FRAME[["city", "member"]])
    assert model.flow.learning_rate < BNAF.learning_rate
    assert model.record["settings"]["learning_rate"] == model.flow.learning_rate
