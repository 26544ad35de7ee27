"""Numbers and dates as people write them, and what is said of columns that hold them."""

import re

import numpy as np
import pandas as pd
import pytest

from bnaf import TableError
from bnaf.columns.schema import Schema
from bnaf.tables.cells import as_dates
from bnaf.tables.frames import read_frame
from bnaf.tables.marks import read_days, read_number

RANDOM = np.random.default_rng(0)
AMOUNTS = RANDOM.lognormal(8, 1, 200)
DAYS = pd.Timestamp("2023-01-05") + pd.to_timedelta(RANDOM.integers(0, 300, 200), "D")


def column(cells):
    return read_frame({"x": list(cells)})["x"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234", 1234),
        ("-1,234,567.5", -1234567.5),
        ("$3.50", 3.5),
        ("€ 12", 12),
        ("+16%", 16),
        ("2.5 %", 2.5),
        ("1e3", 1000),
        ("12,34", None),
        ("1,5", None),
        ("1,2345", None),
        ("$", None),
        ("%", None),
        ("3 apples", None),
        ("10-20", None),
        ("", None),
    ],
)
def test_numbers_are_read_with_their_marks(text, number):
    assert read_number(text) == number


@pytest.mark.parametrize(
    ("texts", "orders"),
    [
        (["12/31/2024", "01/02/2024"], ["month/day/year"]),
        (["31/12/2024"], ["day/month/year"]),
        (["5.1.2023"], ["day.month.year"]),
        (["31-12-2024"], ["day-month-year"]),
        (["2024/12/31"], ["year/month/day"]),
        (["01/02/2024"], ["month/day/year", "day/month/year"]),
        (["02/31/2024"], []),
        (["12/31/24"], []),
        (["12/31/2024", "31/12/2024"], []),
        (["12/31/2024", "soon"], []),
        (["1.2.3"], []),
        ([], []),
    ],
)
def test_dates_are_read_by_every_order_that_fits_all(texts, orders):
    assert [*read_days(texts)] == orders


def test_dates_of_another_order_are_the_days_they_stand_for():
    found = as_dates(column([*DAYS.strftime("%m/%d/%Y"), None]))
    assert found.type == "date32[day]"
    expected = (DAYS - pd.Timestamp("1970-01-01")).days
    np.testing.assert_array_equal(found.present, expected)


def test_dates_that_can_be_read_in_two_ways_are_refused():
    with pytest.raises(TableError, match=r"day and month cannot be told apart .*; write them as"):
        as_dates(column(["01/02/2024", "03/04/2024"]))


def test_amounts_of_two_currencies_are_no_numbers():
    with pytest.raises(TableError, match=r"several currencies \(\$, €\), expected one"):
        column(["$3", "€4"]).as_numbers()


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([f"{x:,.0f}" for x in AMOUNTS], r"left out.* such as '.*': to read them, --as x=whole"),
        (
            [f"${x:,.2f}" for x in AMOUNTS],
            r"such as '\$.*': to read them, --as x=number \(in Pyth",
        ),
        ([f"{x % 9:.0f}%" for x in AMOUNTS], r"category of .* such as '.%': to read them, --as x"),
        (DAYS.strftime("%m/%d/%Y"), "dates, month/day/year: to read them, --as x=date"),
        (["01/02/2024", "03/04/2024"] * 30, "dates, but which is the day.* write 2024-12-31"),
    ],
)
def test_texts_that_look_like_numbers_or_dates_are_told_with_what_to_do(cells, said):
    frame = read_frame({"x": list(cells), "y": np.arange(len(cells)) % 2})
    told = Schema.fit(frame).describe()["x"]
    assert re.search(said, told)


@pytest.mark.parametrize(
    "cells", [["basic", "plus"], ["1", "2"], ["10-20", "20-30"], ["a,b", "c"]]
)
def test_other_texts_are_told_as_they_are(cells):
    assert "looks like" not in Schema.fit(read_frame({"x": cells * 40})).describe()["x"]


def test_what_is_told_to_be_a_number_is_read_and_scored_with_its_marks():
    cells = [f"${x:,.2f}" for x in AMOUNTS]
    frame = read_frame({"x": cells})
    schema = Schema.fit(frame, kinds={"x": "number"})
    np.testing.assert_allclose(schema.codes(frame).flatten(), AMOUNTS.round(2))
