"""Trimming: the rows that stay are those of most rows, by their weights."""

import numpy as np
import pandas as pd
import pytest
from kinds import knotted_frame

from bnaf.estimators._frames import WeighedFrame
from bnaf.estimators._rows import DistinctRows, merge_rows
from bnaf.estimators._trimming import trim_rows
from bnaf.tables.frames import read_frame

ROWS = np.random.default_rng(0).normal(size=(200, 3))
KNOT = np.array([5.0, -5.0, 5.0])


@pytest.fixture
def contaminated():
    """Rows of which a fifth lie close to each other, far from the others."""
    rows = ROWS.copy()
    rows[:40] = KNOT + 0.05 * rows[:40]
    return merge_rows(rows)


def test_a_knot_of_outliers_does_not_stay(contaminated):
    kept = trim_rows(contaminated, 0.25).rows
    assert len(kept) == 150
    assert np.linalg.norm(kept - KNOT, axis=1).min() > 3


def test_nothing_is_trimmed_where_nothing_is_asked_for(contaminated):
    assert trim_rows(contaminated, 0.0) is contaminated


def test_few_rows_stay():
    few = DistinctRows(ROWS[:19], np.ones(19))
    assert trim_rows(few, 0.5) is few


def test_the_share_is_one_of_the_weight():
    weights = np.where(np.arange(200) < 100, 9.0, 1.0)
    trimmed = trim_rows(DistinctRows(ROWS, weights), 0.2)
    assert trimmed.weights.sum() == pytest.approx(800, abs=9)


def test_a_column_of_mostly_one_value_has_a_scale():
    rows = np.c_[ROWS[:, :2], np.where(np.arange(200) < 150, 0.0, ROWS[:, 2])]
    assert len(trim_rows(merge_rows(rows), 0.1).rows) == 180


def weighed_frame(frame):
    return WeighedFrame(read_frame(frame), np.ones(len(frame)))


def test_a_knot_among_rows_of_every_kind_does_not_stay():
    kept = trim_rows(weighed_frame(knotted_frame()), 0.15)
    assert len(kept.rows) == len(kept.weights) == 170
    assert kept.rows.numbers.min() >= 20


def test_a_knot_of_levels_alone_does_not_stay():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{part}": random.choice(["a", "b"], 200) for part in range(5)})
    frame.loc[:19] = "z"
    assert trim_rows(weighed_frame(frame), 0.1).rows.numbers.min() == 20


def test_rows_that_are_as_likely_stay_together():
    frame = pd.DataFrame({"level": ["a"] * 60 + ["b"] * 40})
    assert len(trim_rows(weighed_frame(frame), 0.1).rows) == 100


def test_nothing_of_a_frame_is_trimmed_where_nothing_is_asked_for():
    weighed = weighed_frame(knotted_frame())
    assert trim_rows(weighed, 0.0) is weighed


def test_a_number_that_is_often_empty_is_no_outlier_where_it_is_there():
    frame = knotted_frame()
    frame.loc[frame.index % 10 < 6, "visits"] = np.nan
    kept = trim_rows(weighed_frame(frame), 0.15).rows["visits"]
    assert (~kept.empty).sum() > 55  # of 80
