"""Parquet files with columns of every kind that stream: samples, pieces and batches."""

import numpy as np
import pandas as pd
import pytest
import torch
from kinds import kinds_frame

from bnaf import TableError
from bnaf.tables.frame_streams import FrameStream
from bnaf.tables.frames import read_frame
from bnaf.tables.opening import open_stream
from bnaf.tables.streams import ParquetStream

ROWS = 1003


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file of unequal row groups with texts, dates, empty cells and a column of row numbers."""
    path = tmp_path_factory.mktemp("frames") / "rows.parquet"
    kinds_frame(ROWS).assign(row=np.arange(ROWS)).to_parquet(path, row_group_size=130)
    return path


def shown(frame):
    return frame.to_pandas().reset_index(drop=True)


def test_pieces_are_the_rows_of_the_file(path):
    stream = FrameStream(path)
    pieces = list(stream.frames())
    assert stream.rows == ROWS
    assert np.concatenate([piece.numbers for piece in pieces]).tolist() == list(range(ROWS))
    joined = pd.concat([shown(piece) for piece in pieces], ignore_index=True)
    pd.testing.assert_frame_equal(joined, shown(read_frame(path)))


def test_reading_at_once_is_reading_the_file(path):
    pd.testing.assert_frame_equal(shown(FrameStream(path).read()), shown(read_frame(path)))


def test_a_sample_has_rows_of_the_file_by_their_numbers(path):
    sample = FrameStream(path).sample(100)
    assert len(sample) == 100
    pd.testing.assert_frame_equal(shown(sample), shown(read_frame(path).take(sample.numbers)))
    assert (np.diff(sample.numbers) > 0).all()


def test_a_sample_is_that_of_its_seed(path):
    first, again, other = (FrameStream(path, seed=seed).sample(100) for seed in (0, 0, 1))
    assert first.numbers.tolist() == again.numbers.tolist() != other.numbers.tolist()


def test_a_sample_is_drawn_from_all_of_the_file(path):
    counts = sum(
        np.bincount(FrameStream(path, seed=seed).sample(500).numbers // 100, minlength=11)
        for seed in range(20)
    )
    assert counts[:10].min() > 900  # of 1,000 on average, with a deviation of 22


def test_a_sample_is_drawn_from_the_rows_that_are_told(path):
    assert FrameStream(path).sample(2, among=np.array([3, 999])).numbers.tolist() == [3, 999]


def test_incomplete_rows_are_left_out_where_that_is_asked_for(path):
    stream, whole = FrameStream(path, drop_missing=True), read_frame(path)
    assert stream.rows == whole.complete.sum() < ROWS
    assert stream.read().numbers.tolist() == np.flatnonzero(whole.complete).tolist()


def test_constant_columns_are_left_out_where_that_is_asked_for(path):
    left = [name for name in FrameStream(path).columns if name != "unit"]
    assert list(FrameStream(path, drop_constant=True).columns) == left


def test_a_file_without_a_column_that_varies_is_refused(path):
    with pytest.raises(TableError, match="unit"):
        FrameStream(path, columns=["unit"], drop_constant=True)


def test_numbers_that_stand_for_rows_come_once_each(path):
    def letters(frame):
        cells = frame["city"]
        return np.stack([cells.empty, frame["row"].values], 1).astype(np.float64)

    stream = FrameStream(path, 64, buffer_rows=200).encoded(["city", "row"], letters, 2)
    batches = torch.cat(list(stream))
    assert sorted(batches[:, 1].int().tolist()) == list(range(ROWS))
    assert batches[:, 1].int().tolist() != list(range(ROWS))
    empty = read_frame(path)["city"].empty
    assert (batches[:, 0].numpy() == empty[batches[:, 1].long().numpy()]).all()


@pytest.mark.parametrize(
    ("columns", "options", "kind"),
    [
        (["visits", "price"], {}, ParquetStream),
        (["visits", "city"], {}, FrameStream),
        (["visits", "day"], {}, FrameStream),
        (["visits", "weight"], {}, FrameStream),
        (["visits", "weight"], {"drop_missing": True}, ParquetStream),
    ],
)
@pytest.mark.filterwarnings("ignore::bnaf.errors.TableWarning")
def test_a_stream_is_of_every_kind_where_numbers_do_not_do(path, columns, options, kind):
    assert type(open_stream(path, columns=columns, kinds=None, **options)) is kind


def test_files_that_cannot_be_streamed_are_refused(tmp_path, path):
    with pytest.raises(TableError, match="'z' not found"):
        FrameStream(path, columns=["z"])
    empty = tmp_path / "t.parquet"
    kinds_frame(0).to_parquet(empty)
    with pytest.raises(TableError, match="no rows"):
        FrameStream(empty)
