"""Trimming: the rows that stay are those of most rows, by their weights."""

import numpy as np
import pytest

from bnaf.estimators._fitting import DistinctRows, merge_rows
from bnaf.estimators._trimming import trim_rows

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
