"""Where batches come from."""

import json
from itertools import chain

import numpy as np
import pytest
import torch
from fits import quietly, same_start, small_flow, weights_of

from bnaf import BNAF, SettingsError, ShapeError, TableError, fit
from bnaf.training import ArrayRows, Batch, BatchSource, FreshRows, StreamRows, base_draws
from bnaf.training._inputs import as_rows
from bnaf.training.batches import as_weights


def numbers(source, epoch, **options):
    return [batch.rows[:, 0].tolist() for batch in source.batches(epoch, **options)]


@pytest.fixture
def rows():
    return torch.arange(10.0).unsqueeze(1)


def test_an_epoch_takes_each_row_once_in_an_order_of_its_own(rows):
    source = ArrayRows(rows, batch=5, seed=1)
    first, second = numbers(source, 0), numbers(source, 1)
    assert sorted(chain(*first)) == sorted(chain(*second)) == rows[:, 0].tolist()
    assert first != second
    assert first == numbers(ArrayRows(rows, batch=5, seed=1), 0)
    assert first != numbers(ArrayRows(rows, batch=5, seed=2), 0)


@pytest.mark.parametrize("make", [ArrayRows, lambda rows, **how: base_draws(1, **how)])
def test_numbers_of_numpy_are_plain_ones_in_a_checkpoint(rows, make):
    source = make(rows, batch=np.int64(5), seed=np.array(3))
    assert json.loads(json.dumps(source.identity)) == make(rows, batch=5, seed=3).identity


@pytest.mark.parametrize("batch", [-3, 0, True])
@pytest.mark.parametrize("make", [ArrayRows, lambda rows, **how: base_draws(1, **how)])
def test_a_batch_must_be_a_whole_number_of_rows(rows, make, batch):
    with pytest.raises(SettingsError, match="batch must be a whole number of at least 1, got"):
        make(rows, batch=batch)


def test_a_stream_may_tell_its_rows_by_numbers_of_numpy(rows):
    class Stream(list):
        rows, batch_rows = np.int64(10), np.int32(5)

    source = StreamRows(Stream([rows[:5], rows[5:]]))
    assert (source.count, source.batch) == (10, 5)


def test_batches_are_of_equal_size(rows):
    source = ArrayRows(rows, batch=4)
    assert [len(batch) for batch in numbers(source, 0)] == [3, 3, 3]
    assert source.batch_count() == 3


def test_a_position_is_all_it_takes_to_resume(rows):
    for source in (
        ArrayRows(rows, batch=3),
        FreshRows(lambda n, g: torch.randn(n, 1, generator=g)),
    ):
        assert numbers(source, 4, start=2) == numbers(source, 4)[2:]


def test_processes_share_each_batch(rows):
    source = ArrayRows(rows, weights=rows[:, 0] + 1, batch=5)
    whole = list(source.batches(3))
    shares = [list(source.batches(3, rank=rank, world_size=2)) for rank in (0, 1)]
    for batch, one, two in zip(whole, *shares, strict=True):
        assert sorted(one.rows[:, 0].tolist() + two.rows[:, 0].tolist()) == sorted(
            batch.rows[:, 0].tolist()
        )
        torch.testing.assert_close(one.weights.sum() + two.weights.sum(), one.total)
        assert len(one.rows) + len(two.rows) == 5


def test_a_batch_of_all_rows_does_not_depend_on_their_order(rows):
    order = torch.randperm(10)
    context = rows.sin()
    one = next(ArrayRows(rows, context).batches(0))
    two = next(ArrayRows(rows[order], context[order]).batches(0))
    assert torch.equal(one.rows, two.rows)
    assert torch.equal(one.context, two.context)
    assert torch.equal(two.context, two.rows.sin())


def test_all_rows_are_evaluated_once_whatever_the_batch():
    rows = torch.arange(10_001.0).unsqueeze(1)
    source = ArrayRows(rows, batch=4000)
    shares = [
        batch.rows[:, 0].tolist()
        for rank in (0, 1)
        for batch in source.all_batches(rank=rank, world_size=2)
    ]
    assert len(shares) > 2
    assert sorted(chain(*shares)) == rows[:, 0].tolist()


def test_whatever_a_batch_holds_goes_with_its_rows(rows):
    source = ArrayRows(rows, batch=4, more={"code": torch.arange(10)})
    for batch in source.batches(2, rank=1, world_size=2):
        assert batch.more["code"].tolist() == batch.rows[:, 0].tolist()
        assert batch.to(torch.zeros(1, dtype=torch.float64)).more["code"].dtype == torch.int64


def test_rows_that_stand_for_cells_get_no_noise(rows):
    cells = torch.ones(10, 2)
    batches = [
        next(iter(ArrayRows(rows, rows.clone(), noise=0.5, more=more).batches(0)))
        for more in ({}, {"cells": cells})
    ]
    assert [torch.equal(batch.rows, rows) for batch in batches] == [False, True]
    assert not any(torch.equal(batch.context, rows) for batch in batches)


def test_whatever_a_batch_holds_loses_the_rows_that_weigh_nothing():
    weights = torch.tensor([1.0, 0.0] * 5)
    rows, numbers = torch.randn(10, 1), torch.arange(10.0)
    seen = []

    class Watching(BNAF):
        def losses(self, rows, context=None, fold=None, cells=None):
            seen.append((rows, cells))
            return super().losses(rows)

    batch = Batch(rows, weights=weights, more={"cells": numbers})
    quietly(Watching(1, width=2), batch, valid=batch)
    for found, cells in seen:
        torch.testing.assert_close(found[:, 0], rows[cells.long(), 0])
        assert len(found) == 5


def test_draws_leave_torchs_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    batch = next(base_draws(3, batch=7, seed=2).batches(0))
    assert batch.rows.shape == (7, 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(batch.rows, next(base_draws(3, batch=7, seed=3).batches(0)).rows)


def test_sources_are_what_the_loop_asks_for(rows):
    for source in (ArrayRows(rows), base_draws(2), StreamRows([rows])):
        assert isinstance(source, BatchSource)
    assert not isinstance([rows], BatchSource)


def test_a_stream_shares_its_batches(rows):
    source = StreamRows([rows[:5], Batch(rows[5:], context=rows[5:])])
    assert numbers(source, 0, rank=1, world_size=2) == [[1, 3], [6, 8]]
    assert numbers(source, 0, start=1) == [[5, 6, 7, 8, 9]]
    assert source.batch_count() == 2


def test_a_stream_that_knows_epochs_and_processes_is_left_to_itself(rows):
    class Sharded:
        rank, world_size, epoch = 1, 2, None

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            yield rows + 100 * self.epoch

    source = StreamRows(Sharded())
    assert numbers(source, 3, rank=1, world_size=2) == [(rows[:, 0] + 300).tolist()]
    with pytest.raises(SettingsError, match=r"process 0 of 1, got one with rank=1 and world_s"):
        next(source.batches(0))


def test_an_iterable_may_have_rows_of_its_own(rows):
    class Data:
        def __init__(self):
            self.rows = rows

        def __iter__(self):
            return iter([self.rows])

    assert StreamRows(Data()).count is None


def test_a_batch_is_taken_for_rows():
    rows = torch.randn(30, 2)
    one, two = same_start(small_flow, 2)
    quietly(one, rows, weights=torch.arange(30.0))
    quietly(two, Batch(rows, weights=torch.arange(30.0)))
    assert torch.equal(weights_of(one), weights_of(two))


LIKE = torch.zeros(1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: as_rows(np.zeros((4, 3)), 2, LIKE, "rows"),
            ShapeError,
            r"rows must have at least one row and 2 columns, got shape \(4, 3\)",
        ),
        (lambda: as_rows(np.zeros((0, 2)), 2, LIKE, "rows"), ShapeError, r"shape \(0, 2\)"),
        (
            lambda: as_rows(np.array([[0, np.nan], [1, np.inf], [2, 3]]), 2, LIKE, "valid"),
            TableError,
            r"valid must hold finite .* by column, counted from 0: 1 \(2\)",
        ),
        (lambda: as_rows(np.array([["a"]]), 1, LIKE, "rows"), TableError, r"numbers only"),
        (lambda: as_weights([1, 2], 3, LIKE, "weights"), ShapeError, r"shape \(3,\).*\(2,\)"),
        (lambda: as_weights([1, -2], 2, LIKE, "weights"), SettingsError, r"from -2.0 to 1.0"),
        (lambda: as_weights([0, 0], 2, LIKE, "weights"), SettingsError, r"some positive"),
        (lambda: StreamRows(iter([LIKE])), SettingsError, r"one-way list_iterator"),
        (lambda: fit(BNAF(2)), SettingsError, r"rows must be given for .* MaximumLikelihood"),
        (lambda: fit(BNAF(2), 3), SettingsError, r"a stream of batches, got int"),
        (
            lambda: fit(BNAF(2), np.zeros((3, 2)), context=np.zeros((3, 1))),
            SettingsError,
            r"context was given, but the flow has context_features=0",
        ),
        (
            lambda: fit(BNAF(2, 1), np.zeros((3, 2))),
            SettingsError,
            r"context must be given for a flow with context_features=1",
        ),
        (
            lambda: fit(BNAF(2, 1), np.zeros((3, 2)), context=np.zeros((2, 1))),
            SettingsError,
            r"context must have one line per row, 3, got 2",
        ),
        (
            lambda: fit(BNAF(2), [LIKE], weights=[1.0]),
            SettingsError,
            r"A stream of rows brings its own context and weights",
        ),
        (lambda: fit(BNAF(2), np.zeros((3, 2)), loggers=["html"]), SettingsError, r"got 'html'"),
    ],
)
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()
