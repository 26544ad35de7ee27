"""How columns are read by what they hold, and what a user may say instead."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from near import assert_near

from bnaf import SettingsError, TableError
from bnaf.columns.schema import Schema
from bnaf.tables.frames import read_frame

ROWS = 300
RANDOM = np.random.default_rng(3)
WHOLE = RANDOM.poisson(40, ROWS)
NORMAL = RANDOM.normal(size=ROWS)


def read(values, **options):
    return Schema.fit(read_frame({"x": values, "y": NORMAL}), **options).describe()["x"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array(["no", "yes"])[WHOLE % 2], "yes/no: no or yes"),
        (WHOLE % 2 == 0, "yes/no: false or true"),
        (WHOLE % 2, "yes/no: 0 or 1"),
        (np.array(["a", "b", "c"])[WHOLE % 3], "category of 3 levels"),
        (WHOLE % 5, "ordered category of 5 values"),
        (WHOLE, f"whole numbers, {WHOLE.min()} to {WHOLE.max()}"),
        (WHOLE / 4, f"numbers on a grid of 0.25, {WHOLE.min() / 4:g} to {WHOLE.max() / 4:g}"),
        ((WHOLE / 10).astype(np.float32).astype(float), "numbers on a grid of 0.1"),
        (NORMAL, f"numbers, {NORMAL.min():.6g} to {NORMAL.max():.6g}"),
        (np.abs(NORMAL), "at least 0"),
        (np.maximum(NORMAL, 0), "at least 0, often 0"),
        (
            [datetime.date(2024, 1, 1) + datetime.timedelta(int(d)) for d in WHOLE],
            "dates by the day",
        ),
        (
            [f"2024-01-{1 + d % 28:02d}" for d in WHOLE],
            "dates by the day, 2024-01-01 to 2024-01-28",
        ),
        ([datetime.datetime(2024, 1, 1, d % 24) for d in WHOLE], "dates by the hour"),
        ([datetime.time(d % 24, 30) for d in WHOLE], "times by the minute"),
        (["same"] * ROWS, "constant: same"),
        ([None] * ROWS, "empty throughout"),
        ([f"row {i}" for i in range(ROWS)], "left out: identifier or free text: 300 different"),
        (np.arange(ROWS) + 7, "left out: identifier: it counts the rows"),
        ([[1]] * ROWS, "left out: list"),
    ],
)
def test_a_column_is_read_by_what_it_holds(values, words):
    assert words in read(values)


def test_a_column_that_counts_the_rows_is_found_in_some_of_them():
    frame = read_frame({"count": np.arange(ROWS) + 7, "x": WHOLE}).take(np.arange(0, ROWS, 3))
    told = Schema.fit(frame).describe()["count"]
    assert told == "left out: identifier: it counts the rows"


def test_numbers_that_are_hardly_ever_the_same_are_an_identifier_by_their_name():
    values = RANDOM.permutation(10**6)[:ROWS]
    frame = read_frame({"customer_id": values, "paid": values})
    told = Schema.fit(frame).describe()
    assert told["customer_id"] == "left out: identifier: 300 different in 300 rows"
    assert told["paid"].startswith("numbers, ")


def test_empty_cells_are_counted():
    assert read([None, *WHOLE[1:].tolist()]).endswith(", 1 empty")
    assert read([None, *["a", "b"] * 149, "a"]) == "yes/no: a or b, 1 empty"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("category", "ordered category of"),
        ("whole", "whole numbers"),
        ("grid", "whole numbers"),
        ("number", "numbers, "),
        ("text", "left out as told"),
    ],
)
def test_what_a_column_is_can_be_told(kind, words):
    assert words in read(WHOLE, kinds={"x": kind})


def test_a_kind_that_cannot_be_is_refused():
    with pytest.raises(SettingsError, match=r"kinds must be among category, .* got 'colour'"):
        read(WHOLE, kinds={"x": "colour"})
    with pytest.raises(TableError, match=r"'x' expects whole numbers, got others; give kinds="):
        read(NORMAL, kinds={"x": "whole"})
    with pytest.raises(TableError, match=r"'x' holds text such as '[ab]', expected numbers"):
        read(np.array(["a", "b"])[WHOLE % 2], kinds={"x": "number"})
    with pytest.raises(TableError, match=r"'z' not found"):
        read(WHOLE, kinds={"z": "number"})


def test_bounds_are_of_numbers():
    assert read(WHOLE % 5, bounds={"x": (0, 9)}) == "whole numbers, 0 to 4, from 0 to 9"
    with pytest.raises(TableError, match=r"'x' holds text, which has no bounds"):
        read(np.array(["a", "b"])[WHOLE % 2], bounds={"x": (0, None)})


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1e9, 1e120])
def test_numbers_of_any_size_come_back(scale):
    frame = read_frame({"x": NORMAL * scale})
    schema = Schema.fit(frame)
    back = schema.decode(schema.encode(frame).rows)
    assert_near(back["x"].values, NORMAL * scale, share=1e-9)


def test_a_table_of_which_nothing_is_left_is_refused():
    with pytest.raises(TableError, match="No column is left to model"):
        Schema.fit(read_frame({"x": [f"row {i}" for i in range(99)]}))


HOSTILE = {
    "empty strings": ["", "a"] * 50,
    "text like nan": ["nan", "NaN", "None", "null"] * 25,
    "unicode": ["é", "e\u0301", "𝔸", "a\u202eb", "\x00"] * 20,
    "one level": ["a"] * 100,
    "one level and empty": ["a", None] * 50,
    "quotes and lines": ['"', "\n", ",", "';--"] * 25,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_levels_come_back_as_they_are(name):
    frame = read_frame(
        pd.DataFrame({"x": pd.Series(HOSTILE[name], dtype=object), "y": NORMAL[:100]})
    )
    schema = Schema.fit(frame)
    back = schema.decode(schema.encode(frame).rows)["x"]
    found = [
        None if gone else back.levels[k] for k, gone in zip(back.values, back.empty, strict=True)
    ]
    assert found == HOSTILE[name]


def test_many_levels_are_pooled_but_for_the_common_ones():
    common = ["common", "frequent"] * 5001
    frame = read_frame(
        {"x": [f"level {i}" for i in range(9998)] + common, "y": np.arange(20000) % 7}
    )
    schema = Schema.fit(frame)
    assert schema.describe()["x"] == "category of 10,000 levels, 9,998 rare ones pooled"
    assert schema.levels[0] == 3
    back = schema.decode(schema.encode(frame).rows)["x"]
    assert len(np.unique(back.values)) > 5000


def test_levels_never_seen_have_a_mass_and_are_told():
    schema = Schema.fit(read_frame({"x": ["a", "b", "b"] * 50, "y": NORMAL[:150]}))
    new = read_frame({"x": ["c", "a"], "y": [0.0, 0.0]})
    rows, shift = schema.encode(new)
    assert rows[0, 0] == rows[1, 0] == 1  # pooled with the rarest
    assert shift[:, 0].exp().sum().item() == pytest.approx(1, abs=1e-6)
    assert shift[0, 0] < shift[1, 0] < 0
    assert schema.unusual(new) == {"x": "1 of levels never seen, such as 'c'"}


def test_numbers_far_outside_of_those_seen_are_told():
    schema = Schema.fit(read_frame({"x": WHOLE, "y": NORMAL}))
    told = schema.unusual(read_frame({"x": [40, 4000], "y": [0.0, -99.0]}))
    assert told["x"] == f"1 far outside of {WHOLE.min()} to {WHOLE.max()}, such as 4000"
    assert told["y"].startswith("1 far outside of -")
    assert schema.unusual(read_frame({"x": WHOLE, "y": NORMAL})) == {}


def test_infinite_numbers_are_refused():
    with pytest.raises(TableError, match=r"'x' holds 1 infinite values, expected finite"):
        read([np.inf, *NORMAL[1:]])


def test_rows_count_by_their_weights():
    values = np.array([0.0, 1.0] * 150)
    weights = np.array([3.0, 1.0] * 150)
    frame = read_frame({"x": values, "y": NORMAL})
    kind = Schema.fit(frame, weights=weights, kinds={"x": "grid"})["x"]
    log_mass = kind.curve.log_mass(np.array([0.0, 1.0]))
    assert np.exp(log_mass[0] - log_mass[1]) == pytest.approx(3, rel=0.1)
    with pytest.raises(TableError, match=r"one weight per row \(300\), got shape \(2,\)"):
        Schema.fit(frame, weights=[1.0, 2.0])


def test_shares_of_parts_add_up_by_column():
    schema = Schema.fit(read_frame({"x": [None, *WHOLE[1:].tolist()], "y": ["a", "b"] * 150}))
    assert schema.statuses == (0,)
    shares = torch.tensor([[1.0, 10.0, 100.0]], dtype=torch.float64)  # status, level, number
    assert schema.by_column(shares).tolist() == [[101.0, 10.0]]


def test_dates_far_from_all_that_were_seen_and_finer_ones_are_counted():
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=day) for day in range(60)]
    schema = Schema.fit(read_frame({"x": days}))
    new = ["1999-01-01 00:00:00", "2024-01-03 10:00:00", "2024-01-04 00:00:00"]
    told = "1 far from all dates that were seen and 1 not by the day, taken as the nearest"
    assert schema.unusual(read_frame({"x": new})) == {"x": told}
