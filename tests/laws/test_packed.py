"""Rows of levels and cells in one tensor."""

import math

import pytest
import torch

from bnaf.laws.packed import row_layout

nan = math.nan
LAYOUT = row_layout([3, 2], 2, [1, -1])  # the second part says whether there is a first number


def row(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_rows_are_what_their_pieces_pack():
    rows = torch.randn(4, LAYOUT.width)
    pieces = LAYOUT.split(rows)
    assert [piece.shape[-1] for piece in pieces] == [2, 2, 2, 2]
    assert torch.equal(pieces.pack(), rows)


def test_a_number_is_absent_where_its_status_has_another_level_than_the_first():
    levels = torch.tensor([[0, 0], [2, 1], [1, nan]])
    assert LAYOUT.absent(levels).tolist() == [[False, False], [True, False], [False, False]]


def test_a_status_that_is_not_told_follows_from_the_number():
    told = LAYOUT.complete(row(nan, nan, 0.5, nan, 0, 0, 0, 0))
    assert torch.equal(told[1], row(0.0)[0])
    assert told[0].isnan()
    untold = LAYOUT.complete(row(nan, nan, nan, 0.5, 0, 0, 0, 0))
    assert untold[:2].isnan().all()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0, 0.5, 0.5], [False, False, False, False]),
        ([nan, 0, 0.5, 0.5], [True, True, True, True]),
        ([0, 0, nan, 0.5], [False, False, True, True]),
        ([0, 1, nan, 0.5], [False, False, False, False]),  # known not to be there
    ],
)
def test_parts_that_come_after_a_free_one_are_told(values, expected):
    rows = row(*values, 0, 0, 0, 0)
    known = LAYOUT.known(rows)
    assert LAYOUT.after_free(known, rows[:2]).tolist() == expected


def test_parts_of_one_kind_alone_have_a_layout():
    assert row_layout([], 3).width == 9
    assert row_layout([2, 2], 0).width == 2
    assert row_layout([2, 2], 0).impossible(row(1, 2)).tolist() == [False, True]
