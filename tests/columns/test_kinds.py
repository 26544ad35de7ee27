"""Each kind of column: its cells as a flow sees them, and back; alone, stored, and hostile."""

import datetime
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from near import assert_near
from scipy.stats import norm

from bnaf import StorageError, TableError
from bnaf.columns.constant import Constant
from bnaf.columns.schema import Schema
from bnaf.tables.column import Column
from bnaf.tables.frames import Frame, read_frame

ROWS = 200
RANDOM = np.random.default_rng(5)
DAY = datetime.date(2023, 12, 30)
EMPTY = RANDOM.random(ROWS) < 0.1
GAMMA = RANDOM.gamma(2, 30, ROWS)


def with_empty(values):
    return [None if empty else value for value, empty in zip(values, EMPTY, strict=True)]


COLUMNS: dict[str, list] = {
    "category": [["lo", "mid", "hi"][code] for code in RANDOM.integers(0, 3, ROWS)],
    "category with empty cells": with_empty(np.array(["a", "b"])[RANDOM.integers(0, 2, ROWS)]),
    "yes/no": (RANDOM.random(ROWS) < 0.3).tolist(),
    "few values": RANDOM.choice([1, 2, 5, 10], ROWS).tolist(),
    "whole numbers": GAMMA.astype(int).tolist(),
    "whole numbers with empty cells": with_empty(GAMMA.astype(int).tolist()),
    "heaped": np.where(GAMMA < 50, 0, GAMMA.astype(int)).tolist(),
    "grid": (GAMMA.astype(int) / 20).tolist(),
    "grid of twenty-five": (25 * GAMMA.astype(int) - 700).tolist(),
    "number": RANDOM.normal(size=ROWS).tolist(),
    "number with empty cells": with_empty(RANDOM.normal(size=ROWS).tolist()),
    "number with an atom": np.where(GAMMA < 40, 0.0, GAMMA).tolist(),
    "number with an atom and empty cells": with_empty(np.where(GAMMA < 40, 0, GAMMA).tolist()),
    "days": [DAY + datetime.timedelta(days=int(value)) for value in GAMMA],
    "days with empty cells": with_empty([DAY + datetime.timedelta(days=int(v)) for v in GAMMA]),
    "times": [datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=v) for v in GAMMA],
    "constant": ["same"] * ROWS,
    "constant number": [1.5] * ROWS,
    "empty": [None] * ROWS,
}
DATES = [name for name in COLUMNS if name.startswith(("days", "times"))]
GRIDS = [name for name in COLUMNS if name.startswith(("whole", "heaped", "grid", "days"))]
DISCRETE = [name for name in COLUMNS if name.startswith(("category", "yes/no", "few"))]


@cache
def fitted(name):
    frame = read_frame({"x": COLUMNS[name], "other": COLUMNS["number"]})
    return Schema.fit(frame), frame


def cells(column):
    values = column.values if column.levels == () else np.array(column.levels)[column.values]
    return [None if empty else value for value, empty in zip(values, column.empty, strict=True)]


@pytest.mark.parametrize("name", COLUMNS)
def test_cells_come_back_from_a_schema_that_was_stored(name):
    schema, frame = fitted(name)
    stored = Schema.from_dict(json.loads(json.dumps(schema.as_dict())))
    back = stored.decode(schema.encode(frame).rows)["x"]
    if back.holds == "numbers" and not back.empty.all():
        assert_near(back.values, frame["x"].values, share=1e-12)
    else:
        assert cells(back) == cells(frame["x"])
    assert back.type == frame["x"].type


@pytest.mark.parametrize("name", COLUMNS)
def test_a_schema_that_was_stored_encodes_as_before(name):
    schema, frame = fitted(name)
    stored = Schema.from_dict(json.loads(json.dumps(schema.as_dict())))
    for before, after in zip(schema.encode(frame), stored.encode(frame), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)
    assert stored.describe() == schema.describe()


@pytest.mark.parametrize("name", COLUMNS)
def test_codes_stand_for_the_cells_they_were_made_of(name):
    schema, frame = fitted(name)
    again = schema.frame(schema.codes(frame))
    assert cells(again["x"]) == pytest.approx(cells(frame["x"]), nan_ok=True)
    assert again["x"].type == frame["x"].type


@pytest.mark.parametrize("name", COLUMNS)
def test_encoded_rows_are_packed_as_agreed(name):
    schema, frame = fitted(name)
    rows, shift = schema.encode(frame)
    discrete, numbers = len(schema.levels), schema.numbers
    assert rows.shape == (ROWS, discrete + 3 * numbers) == (ROWS, schema.width)
    assert shift.shape == (ROWS, 2)
    levels, below_and_above = rows[:, :discrete], rows[:, discrete + numbers :]
    assert bool(((levels >= 0) & (levels < torch.tensor(schema.levels or [1]))).all())
    assert bool((levels == levels.round()).all())
    assert bool((below_and_above >= 0).all())


@pytest.mark.parametrize("name", COLUMNS)
def test_a_context_has_no_nan_and_is_of_order_one(name):
    schema, frame = fitted(name)
    context = schema.encode_given(frame)
    assert context.shape == (ROWS, len(schema.levels) + schema.given_numbers)
    scores = context[:, len(schema.levels) :]
    assert bool(torch.isfinite(context).all())
    assert scores.abs().max() < 10


@pytest.mark.parametrize("name", GRIDS)
def test_masses_of_all_cells_of_a_grid_sum_to_one(name):
    kind = fitted(name)[0]["x"]
    curve = getattr(kind, "inner", kind).curve
    k = np.arange(max(curve.lowest, curve.edges[0] - 20_000), curve.edges[-1] + 20_000)
    k = np.floor(k)
    middle, below, above = curve.cells(k)
    mass = norm.cdf(middle + above) - norm.cdf(middle - below)
    outside = norm.cdf(middle[0] - below[0]) + norm.sf(middle[-1] + above[-1])
    assert outside < 1e-6
    assert mass.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(mass, np.exp(curve.log_mass(k)), atol=1e-10)


@pytest.mark.parametrize("name", DISCRETE)
def test_masses_of_all_levels_and_of_those_never_seen_sum_to_one(name):
    kind = fitted(name)[0]["x"]
    assert sum(kind.shares) == pytest.approx(1, abs=1e-6)
    assert len({*kind.known, *kind.pooled}) == len(kind.known) + len(kind.pooled)


@pytest.mark.parametrize("name", GRIDS)
def test_draws_snap_to_the_cell_that_holds_them(name):
    schema, _ = fitted(name)
    z = torch.linspace(-4, 4, 501, dtype=torch.float64)
    middle, below, above = schema.snap(0, z)
    assert bool(((middle - below <= z + 1e-9) & (z <= middle + above + 1e-9)).all())
    again = schema.snap(0, middle)
    torch.testing.assert_close(again[0], middle)


def test_draws_of_a_number_stay_where_they_are():
    schema, _ = fitted("number")
    z = torch.linspace(-3, 3, 7, dtype=torch.float64)
    middle, below, above = schema.snap(0, z)
    assert torch.equal(middle, z)
    assert not below.any()
    assert not above.any()


@pytest.mark.parametrize("name", ["grid", "grid of twenty-five", "whole numbers"])
def test_decoded_draws_lie_on_the_grid(name):
    schema, frame = fitted(name)
    rows = torch.zeros(501, schema.width, dtype=torch.float64)
    rows[:, len(schema.levels)] = torch.linspace(-4, 4, 501, dtype=torch.float64)
    values = schema.decode(rows)["x"].values
    width = {"grid": 0.05, "grid of twenty-five": 25, "whole numbers": 1}[name]
    np.testing.assert_allclose(values / width, np.round(values / width), atol=1e-9)
    assert np.isin(frame["x"].values, values).mean() > 0.9


def test_a_density_is_in_the_units_of_the_table():
    schema, _ = fitted("number with an atom")
    kind = schema["x"]
    x = np.array([10.0, 10.0 + 1e-6])
    middle = kind.encode(read_frame({"x": x})["x"]).number.middle
    shift = kind.encode(read_frame({"x": x})["x"]).shift
    assert shift[0] == pytest.approx(np.log(np.diff(middle)[0] / 1e-6), abs=1e-6)


@pytest.mark.parametrize(
    ("bounds", "inside"),
    [((0.0, None), [1e-9, 3.0]), ((None, 9.0), [-80.0, 8.9]), ((-9.0, 9.0), [-8.0, 8.9])],
    ids=["lower", "upper", "both"],
)
@pytest.mark.parametrize("digits", [1, 15], ids=["grid", "number"])
def test_nothing_is_drawn_outside_of_bounds_and_all_there_is_impossible(bounds, inside, digits):
    values = np.round(RANDOM.uniform(0.5, 8, ROWS), digits)
    schema = Schema.fit(read_frame({"x": values}), bounds={"x": bounds})
    rows = torch.zeros(301, 3, dtype=torch.float64)
    rows[:, 0] = torch.linspace(-30, 30, 301, dtype=torch.float64)
    low, high = (-np.inf if bounds[0] is None else bounds[0]), bounds[1] or np.inf
    drawn = schema.decode(rows)["x"].values
    assert drawn.min() >= low
    assert drawn.max() <= high
    beyond = [end + sign for end, sign in zip(bounds, (-1, 1), strict=True) if end is not None]
    assert torch.isinf(schema.encode(read_frame({"x": beyond})).shift).all()
    assert torch.isfinite(schema.encode(read_frame({"x": inside})).shift).all()


def test_bounds_that_rows_lie_outside_of_are_refused():
    frame = read_frame({"x": COLUMNS["number"]})
    with pytest.raises(TableError, match=r"'x': \d+ of 200 values lie outside .* at least 0"):
        Schema.fit(frame, bounds={"x": (0, None)})
    with pytest.raises(TableError, match="the lower below the upper, got 2 and 1 for 'x'"):
        Schema.fit(frame, bounds={"x": (2, 1)})


COMPLETE = [name for name in COLUMNS if "empty" not in name]


@pytest.mark.parametrize("name", COMPLETE)
def test_empty_cells_of_a_column_that_had_none_are_integrated_out(name):
    schema, frame = fitted(name)
    kind = schema["x"]
    gone = replace(frame["x"], empty=np.ones(ROWS, dtype=bool))
    level, number, shift = kind.encode(gone)
    assert level is None or np.isnan(level).all()
    assert number is None or np.isnan(number.middle).all()
    assert not shift.any()


@pytest.mark.parametrize("name", COMPLETE)
def test_empty_cells_that_are_integrated_out_come_back_empty(name):
    schema, frame = fitted(name)
    gone = replace(frame["x"], empty=np.ones(ROWS, dtype=bool))
    if schema["x"].levels or schema["x"].numbers:
        rows = schema.encode(Frame((gone, frame["other"]))).rows
        assert schema.decode(rows)["x"].empty.all()


@pytest.mark.parametrize("name", COMPLETE)
def test_an_empty_cell_where_none_was_makes_a_context_without_nan(name):
    schema, frame = fitted(name)
    gone = Frame((replace(frame["x"], empty=np.ones(ROWS, dtype=bool)), frame["other"]))
    context = schema.encode_given(gone)
    assert context.isfinite().all()
    assert schema.unusual(gone, given=True) == {"x": "200 empty, where none was"}
    assert schema.unusual(gone) == {}


DAMAGES = (None, "?", -1, [], {}, [float("nan")], 1e400, [[]])
HARMLESS = {("digits", -1), ("origin", -1), ("offset", -1), ("low", -1), ("high", -1)}
HARMLESS |= {("name", "?"), ("location", -1), ("atoms", "[]"), ("known", "[]"), ("order", "[]")}


@pytest.mark.parametrize("name", ["category", "heaped", "number with an atom", "days", "constant"])
def test_a_stored_schema_that_was_tampered_with_is_refused(name):
    schema, _ = fitted(name)
    stored = schema.as_dict()
    column, *others = stored["columns"]
    for key in column.keys() - {"value"}:
        for damage in DAMAGES:
            shown = damage if isinstance(damage, int | str) else str(damage)
            if damage == column[key] or (key, shown) in HARMLESS:
                continue
            damaged = {**stored, "columns": [{**column, key: damage}, *others]}
            with pytest.raises(StorageError, match="expects"):
                Schema.from_dict(damaged)


def test_a_stored_schema_has_each_column_once():
    stored = fitted("number")[0].as_dict()
    with pytest.raises(StorageError, match="a name of its own"):
        Schema.from_dict({**stored, "columns": stored["columns"] * 2})


def test_codes_that_no_level_has_are_not_the_constant():
    constant = Constant("kg", "text", "text")
    codes = np.array([0, 1, -1, 9])
    column = Column("unit", "text", codes, np.zeros(4, bool), ("kg", "lb"))
    assert constant.encode(column).shift.tolist() == [0.0, *[-np.inf] * 3]


DECLARED = ["c", "b", "a", "never"]


@pytest.fixture(scope="module", params=[True, False], ids=["ordered", "category"])
def declared(request):
    cells = np.array(["a", "b", "c"])[RANDOM.integers(0, 3, ROWS)]
    frame = read_frame(pd.DataFrame({"x": pd.Categorical(cells, DECLARED, ordered=request.param)}))
    return Schema.fit(frame), frame


@pytest.mark.parametrize("way", ["decode", "codes"])
def test_levels_of_a_category_come_back_in_their_order_with_those_no_row_has(declared, way):
    schema, frame = declared
    stored = Schema.from_dict(json.loads(json.dumps(schema.as_dict())))
    rows = {"decode": lambda: stored.decode(schema.encode(frame).rows)}
    rows["codes"] = lambda: stored.frame(schema.codes(frame))
    pd.testing.assert_frame_equal(rows[way]().to_pandas(), frame.to_pandas())


def test_a_stored_category_without_an_order_is_read_as_before(declared):
    schema, frame = declared
    stored = schema.as_dict()
    stored["columns"][0].pop("order")
    old = Schema.from_dict(stored)
    kind = old["x"]
    assert kind.labels == (*kind.known, *kind.pooled)
    assert cells(old.decode(schema.encode(frame).rows)["x"]) == cells(frame["x"])


@pytest.mark.parametrize("order", [["a", "b"], ["a", "b", "c", "c"], [1, 2, 3]])
def test_an_order_that_is_none_of_the_levels_is_refused(declared, order):
    stored = declared[0].as_dict()
    stored["columns"][0]["order"] = order
    with pytest.raises(StorageError, match="'order'"):
        Schema.from_dict(stored)


def test_a_level_that_was_declared_and_no_row_has_counts_as_never_seen(declared):
    schema, _ = declared
    parts = [
        schema.encode(read_frame(pd.DataFrame({"x": pd.Categorical([level], [level])})))
        for level in ("never", "other")
    ]
    assert torch.equal(parts[0].rows, parts[1].rows)
    assert torch.equal(parts[0].shift, parts[1].shift)


def times_of_day(unit, count):
    ticks = unit * np.random.default_rng(0).integers(0, 86_400_000_000 // unit, count)
    start = datetime.datetime(2024, 1, 1)
    return [(start + datetime.timedelta(microseconds=int(tick))).time() for tick in ticks]


@pytest.mark.parametrize(
    ("unit", "told"),
    [(3_600_000_000, "hour"), (60_000_000, "minute"), (1_000_000, "second"), (1, "microsecond")],
)
@pytest.mark.parametrize("rows", [300, 1500])
def test_times_of_day_are_drawn_on_their_grid_and_within_a_day(unit, told, rows):
    last = datetime.datetime(2024, 1, 2) - datetime.timedelta(microseconds=unit)
    ends = [datetime.time(0), last.time()]
    schema = Schema.fit(read_frame({"x": [*times_of_day(unit, rows), *ends]}))
    assert schema.describe() == {"x": f"times by the {told}"}
    assert schema.levels == ()
    packed = torch.zeros(301, 3, dtype=torch.float64)
    packed[:, 0] = torch.linspace(-30, 30, 301, dtype=torch.float64)
    ticks = schema.decode(packed)["x"].values
    assert (ticks.min(), ticks.max()) == (0, 86_400_000_000 - unit)
    assert not (ticks % unit).any()


def test_midnight_alone_and_empty_cells_are_times_by_the_hour():
    schema = Schema.fit(read_frame({"x": [datetime.time(0), None] * 20}))
    assert schema.describe() == {"x": "times by the hour, 20 empty"}
