"""Models of frames as users hold them: with odd names, odd types and odd cells."""

import numpy as np
import pandas as pd
import pytest
import torch
from kinds import QUICK, fit_kinds
from pyarrow.parquet import ParquetFile

from bnaf import BNAF, Model, SettingsError, TableError, TrainingSettings
from bnaf.columns.category import MOST_LEVELS, Category
from bnaf.columns.detection import fit_column
from bnaf.columns.schema import Schema
from bnaf.evaluation.independent import score_independent
from bnaf.report.assessment import assess
from bnaf.tables.frames import read_frame
from bnaf.tables.splits import RowSplit
from bnaf.tables.streams import ParquetStream

DRAWS = np.random.default_rng(0)
NUMBERS = pd.DataFrame(DRAWS.normal(size=(60, 2)) ** 2, columns=["price", "size"])
CITIES = NUMBERS.assign(city=["Rome", "Oslo", "Bern"] * 20)


def test_one_column_may_have_a_kind_and_bounds():
    told = {"kinds": {"price": "number"}, "bounds": {"price": (0, None)}}
    model = fit_kinds(CITIES, **told)
    assert model.sample_table(200, seed=0).to_pandas()["price"].min() >= 0


@pytest.mark.parametrize("frame", [NUMBERS, CITIES])
@pytest.mark.parametrize("told", [{"kinds": {"prise": "number"}}, {"bounds": {"prise": (0, 1)}}])
def test_what_is_told_of_a_column_that_is_not_there_is_refused(frame, told):
    with pytest.raises(TableError, match="'prise' not found"):
        Model.fit(frame, settings=QUICK, progress=False, **told)


@pytest.mark.parametrize("frame", [NUMBERS, CITIES])
def test_one_name_in_place_of_a_list_is_refused(frame):
    with pytest.raises(SettingsError, match=r"got the text 'price'; give \['price'\]"):
        Model.fit(frame, given="price")


@pytest.mark.parametrize("source", [NUMBERS, CITIES, NUMBERS.to_numpy()])
def test_a_column_is_not_both_modelled_and_given(source):
    name = "x0" if isinstance(source, np.ndarray) else "price"
    with pytest.raises(SettingsError, match=f"Column '{name}' cannot be both"):
        Model.fit(source, columns=[name], given=[name])


def test_frames_of_ours_are_scored_by_models_of_plain_numbers():
    model = Model.fit(NUMBERS, settings=QUICK, progress=False)
    frame = read_frame(NUMBERS)
    assert torch.equal(model.log_prob(frame), model.log_prob(NUMBERS))
    assert torch.equal(model.read(frame).rows, model.read(NUMBERS).rows)


@pytest.mark.parametrize("turn", [lambda x: x[::-1], lambda x: x.astype(">f8"), np.asfortranarray])
def test_arrays_of_any_strides_and_bytes_are_scored(turn):
    model = Model(BNAF(2, transforms=1, width=2))
    rows = turn(NUMBERS.to_numpy())
    assert torch.equal(model.log_prob(rows), model.log_prob(rows.astype(float).copy()))


def test_rows_with_cells_that_were_never_empty_are_assessed():
    model = fit_kinds(CITIES)
    other = CITIES.copy()
    other.loc[3, "city"] = None
    codes = model.read(other).rows
    (scores,) = score_independent(model.encoding.schema, codes, [codes])
    assert scores.isfinite().all()
    assess(model, other)


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_a_day_that_never_changes_is_one_day_in_all_types(unit):
    days = pd.Series(pd.to_datetime(["2024-01-20"] * 60)).astype(f"datetime64[{unit}]")
    model = fit_kinds(CITIES.assign(day=days))
    known = model.log_prob(CITIES.assign(day=days))
    assert known.isfinite().all()
    for other in (days.astype("datetime64[ms]"), ["2024-01-20"] * 60, days.dt.date):
        assert torch.equal(model.log_prob(CITIES.assign(day=other)), known)
    moved = model.log_prob(CITIES.assign(day=days + pd.Timedelta(days=1)), warn=False)
    assert (moved == -torch.inf).all()
    assert model.encoding.schema.describe()["day"].startswith("constant: 2024-01-20")
    assert (model.sample_table(3, seed=0).to_pandas()["day"] == days[0]).all()


def test_a_time_that_never_changes_is_kept_to_the_nanosecond():
    times = pd.Series([pd.Timestamp("2024-01-20 10:11:12.123456789")] * 60)
    model = fit_kinds(CITIES.assign(time=times))
    assert model.log_prob(CITIES.assign(time=times)).isfinite().all()
    later = times + pd.Timedelta(nanoseconds=1)
    assert (model.log_prob(CITIES.assign(time=later), warn=False) == -torch.inf).all()


def test_dates_far_ahead_come_back():
    days = pd.Series(pd.to_datetime(["2024-01-20", "2024-02-01", "2262-04-11"] * 20))
    frame = CITIES.assign(day=days.astype("datetime64[ns]"))
    model = fit_kinds(frame)
    codes = model.read(frame)
    back = model.encoding.schema.frame(codes.rows).to_pandas()["day"]
    assert (back == frame["day"]).all()


def test_many_levels_of_one_count_are_known_up_to_the_most():
    column = read_frame({"store": [f"s{i:04}" for i in range(1500)] * 6})["store"]
    found = Category.fit(column)
    assert (len(found.known), len(found.pooled)) == (MOST_LEVELS, 500)


def test_pools_name_no_more_levels_than_a_file_can_hold(monkeypatch):
    monkeypatch.setattr("bnaf.columns.category.MOST_POOLED", 10)
    column = read_frame({"id": [f"t{i}" for i in range(40)] + ["often"] * 60})["id"]
    found = Category.fit(column)
    assert (found.known, len(found.pooled)) == (("often",), 10)
    assert sum(found.shares) == pytest.approx(1)
    assert found.shares[-1] == pytest.approx(1 - 10 / 80)  # 40 seen once, and as many unseen


def test_whole_numbers_that_lie_close_are_different_levels():
    column = read_frame({"day": np.array([20240101, 20240102] * 60)})["day"]
    found = fit_column(column)
    near = read_frame({"day": np.array([20240102, 20240103])})["day"]
    assert found.unusual(near) == "1 of levels never seen, such as '20240103'"
    one = fit_column(read_frame({"id": np.array([123456789] * 40)})["id"])
    other = read_frame({"id": np.array([123456790])})["id"]
    assert (one.encode(other).shift == -np.inf).all()


def test_a_number_that_is_there_once_does_not_fail_the_fit():
    sparse = np.full(60, np.nan)
    sparse[[3, 30]] = 1.25
    model = fit_kinds(CITIES.assign(rare=sparse), kinds={"rare": "number"})
    assert model.log_prob(CITIES.assign(rare=sparse)).isfinite().all()


def test_a_flag_that_only_rows_set_aside_have_keeps_a_mass():
    frame = pd.DataFrame({"x": DRAWS.normal(size=100), "flag": 0})
    set_aside = RowSplit.plan(100, 0.2, 0.0, seed=QUICK.seed).sets().valid
    frame.loc[int(set_aside[0]), "flag"] = 1
    model = Model.fit(frame, valid=0.2, settings=QUICK, progress=False)
    assert model.log_prob(frame, warn=False).isfinite().all()


def test_a_constant_number_that_is_told_to_be_one_is_constant():
    model = Model.fit(NUMBERS.assign(a=1.0), kinds={"a": "number"}, settings=QUICK, progress=False)
    assert model.encoding.schema.describe()["a"] == "constant: 1"


def test_lists_of_text_are_left_out():
    frame = read_frame(CITIES.assign(tags=[["a", "b"]] * 60))
    assert frame["tags"].holds == "objects"


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
def test_dates_of_numpy_are_dates(unit):
    days = np.array(["2024-01-20", "2024-02-01"], dtype=f"datetime64[{unit}]")
    assert read_frame({"day": days})["day"].holds == "dates"
    structured = np.array([*zip(days, [1.0, 2.0], strict=True)], [("d", days.dtype), ("x", float)])
    assert read_frame(structured)["d"].holds == "dates"


@pytest.mark.parametrize("cells", [[1, "a", pd.NA], [10**30, 1, 2], [1, None, 10**30]])
def test_cells_of_several_types_are_text_or_refused_clearly(cells):
    frame = pd.DataFrame({"a": pd.Series(cells, dtype=object), "b": [1.0, 2.0, 3.0]})
    assert read_frame(frame)["a"].holds in ("texts", "objects")
    with pytest.raises(TableError, match="Expected columns of numbers, text or dates"):
        read_frame({"a": cells})


@pytest.mark.parametrize("cell", [np.array(1.5), torch.tensor(1.5), np.float32(1.5)])
def test_a_value_without_dimensions_is_one_cell(cell):
    assert read_frame({"a": cell})["a"].values.tolist() == [1.5]


def test_columns_of_several_kinds_have_no_base_noise():
    with pytest.raises(SettingsError, match="expects a model of plain numbers"):
        fit_kinds(CITIES).base_noise(CITIES)


def test_no_rows_have_no_shares_and_no_draws():
    model = fit_kinds(CITIES)
    codes = model.read(CITIES).rows
    assert model.log_shares(codes[:0]).shape == (0, 3)
    assert model.sample(0, given={"size": 0.5}).shape[0] == 0


def test_a_stream_trains_on_the_rows_that_it_has(tmp_path):
    path = tmp_path / "rows.parquet"
    rows = pd.DataFrame(DRAWS.normal(size=(3000, 3)), columns=["a", "b", "c"])
    rows.loc[:999, "c"] = np.nan
    rows.loc[1000:, "a"] += 100
    rows.to_parquet(path)
    stream = ParquetStream(path, batch_rows=100, drop_missing=True, warn=False)
    model = Model.fit(stream, columns=["a", "b"], settings=QUICK, progress=False)
    assert model.standardisation.location[0] == pytest.approx(100, abs=1)


def test_only_the_columns_that_are_wanted_are_read_of_a_parquet_file(tmp_path):
    path = tmp_path / "wide.parquet"
    CITIES.to_parquet(path)
    price = ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    start = price.dictionary_page_offset or price.data_page_offset
    content[start : start + price.total_compressed_size] = bytes(price.total_compressed_size)
    path.write_bytes(content)
    with pytest.raises(TableError):
        read_frame(path)
    assert read_frame(path, columns=["size"]).names == ("size",)


def test_complete_rows_are_drawn_where_hardly_any_is():
    draws = np.random.default_rng(0)
    cells = draws.normal(size=(200, 12)).round(1)
    frame = pd.DataFrame(cells, columns=[f"x{place}" for place in range(12)])
    frame = frame.mask(draws.random(frame.shape) < 0.5).assign(nothing=np.nan)
    model = fit_kinds(frame.assign(city=["Rome", None] * 100))
    drawn = model.sample_table(30, complete=True, seed=0).to_pandas()
    assert drawn["nothing"].isna().all()
    assert not drawn.drop(columns="nothing").isna().any(axis=None)


def test_levels_of_complete_rows_are_those_of_rows_that_happen_to_be_complete():
    draws = np.random.default_rng(0)
    city = draws.choice(["Rome", "Oslo"], 400)
    frame = pd.DataFrame({"city": city, "x": draws.normal(size=400)})
    frame.loc[(city == "Rome") & (draws.random(400) < 0.9), "x"] = np.nan
    model = fit_kinds(frame, settings=TrainingSettings(steps=200, seed=1))
    drawn = model.sample_table(20_000, seed=0).to_pandas().dropna()["city"]
    complete = model.sample_table(20_000, complete=True, seed=1).to_pandas()["city"]
    shares = [float((column == "Rome").mean()) for column in (drawn, complete)]
    assert shares[1] == pytest.approx(shares[0], abs=0.03)


def test_categories_of_intervals_are_levels():
    frame = CITIES.assign(band=pd.cut(CITIES["price"], [-1, 0.5, 1, 99]))
    model = fit_kinds(frame)
    assert model.encoding.read_as["band"] == "ordered category of 3 levels"
    assert {*model.sample_table(50, seed=0).to_pandas()["band"]} <= {*frame["band"].astype(str)}


def test_a_schema_reads_a_frame_of_pandas():
    assert Schema.fit(CITIES).describe()["city"] == "category of 3 levels"


def test_empty_cells_that_a_model_does_not_know_are_refused_with_a_way_out():
    model = Model.fit(NUMBERS, settings=QUICK, progress=False)
    frame = NUMBERS.mask(NUMBERS["price"] > 1)
    with pytest.raises(TableError, match="flow='mixed', which integrates them out"):
        model.log_prob(frame)


@pytest.mark.parametrize("frame", [NUMBERS, CITIES])
def test_masses_and_densities_of_a_column_add_up_to_one(frame):
    whole = frame.assign(visits=np.random.default_rng(1).poisson(3.0, len(frame)))
    model = fit_kinds(whole, columns=["visits"], flow="mixed")
    cells = pd.DataFrame({"visits": np.arange(0, 400)})
    assert model.log_prob(cells, warn=False).exp().sum().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("frame", [NUMBERS, CITIES])
def test_a_first_column_that_numbers_the_rows_of_a_file_is_told(frame, tmp_path):
    said = []
    frame.to_csv(tmp_path / "t.csv")
    Model.fit(tmp_path / "t.csv", settings=QUICK, progress=False, announce=said.append)
    assert said[0] == "the first column, which numbers the rows, is left out."
