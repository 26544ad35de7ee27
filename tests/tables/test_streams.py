"""Parquet files that stream: every row once, in any share, from any position, in flat memory."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kinds import kinds_frame

from bnaf import SettingsError, TableError
from bnaf.errors import TableWarning
from bnaf.model.standardisation import Standardisation
from bnaf.tables.opening import is_large
from bnaf.tables.streams import ParquetStream
from bnaf.tables.survey import survey_parquet
from bnaf.training import StreamRows

ROWS = 1003


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file of unequal row groups whose first column counts the rows."""
    path = tmp_path_factory.mktemp("streams") / "rows.parquet"
    columns = {
        "row": np.arange(ROWS),
        "normal": np.random.default_rng(0).normal(5, 2, ROWS).astype(np.float32),
        "grade": np.random.default_rng(1).integers(0, 5, ROWS),
    }
    write_groups(path, pa.table(columns), 130)
    return path


def write_groups(path, table, size):
    pq.write_table(table, path, row_group_size=size)


def numbers(batches) -> list[int]:
    return torch.cat([*batches, torch.empty(0, 3)])[:, 0].int().tolist()


def open_stream(path, batch_rows=32, **options) -> ParquetStream:
    options = {"buffer_rows": 100, "warn": False, **options}
    return ParquetStream(path, batch_rows, **options)


def test_an_epoch_without_shuffling_is_the_file(path):
    stream = open_stream(path, shuffle=False, drop_last=False)
    batches = list(stream)
    assert stream.columns == ("row", "normal", "grade")
    assert stream.types == ("int64", "float32", "int64")
    assert len(batches) == len(stream) == 32
    assert all(batch.dtype == torch.float64 for batch in batches)
    assert numbers(batches) == list(range(ROWS))
    values = pq.read_table(path)["normal"].to_numpy()
    assert torch.equal(torch.cat(batches)[:, 1], torch.from_numpy(values).double())


def test_a_shuffled_epoch_has_every_row_once_in_an_order_of_its_own(path):
    stream = open_stream(path, drop_last=False)
    first, second = numbers(stream), numbers(stream)
    assert stream.epoch == 2
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    assert numbers(open_stream(path, drop_last=False)) == first
    assert numbers(open_stream(path, drop_last=False, seed=1)) != first
    again = open_stream(path, drop_last=False)
    again.set_epoch(1)
    assert numbers(again) == second


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    world_size=st.integers(1, 5),
    batch_rows=st.integers(1, 70),
    buffer_rows=st.integers(1, 400),
    drop_last=st.booleans(),
)
def test_processes_share_the_rows(path, world_size, batch_rows, buffer_rows, drop_last):
    options = {"buffer_rows": buffer_rows, "world_size": world_size, "drop_last": drop_last}
    shares = [open_stream(path, batch_rows, rank=rank, **options) for rank in range(world_size)]
    batches = [list(share) for share in shares]
    seen = [number for share in batches for number in numbers(share)]
    assert len(set(seen)) == len(seen)
    assert [len(share) for share in batches] == [len(share) for share in shares]
    if drop_last:
        assert {len(share) for share in batches} == {ROWS // (world_size * batch_rows)}
        assert all(len(batch) == batch_rows for share in batches for batch in share)
    else:
        assert sorted(seen) == list(range(ROWS))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stop=st.integers(0, 70),
    drop_last=st.booleans(),
    buffer_rows=st.sampled_from([10, 100, 5000]),
)
def test_a_stream_goes_on_from_any_position(path, stop, drop_last, buffer_rows):
    options = {"drop_last": drop_last, "buffer_rows": buffer_rows, "dequantise": ["grade"]}
    whole = open_stream(path, **options)
    expected = [*whole, *whole, *whole]
    stream, seen = open_stream(path, **options), []
    while len(seen) < stop:
        for batch in stream:
            seen.append(batch)
            if len(seen) == stop:
                break
    position = stream.state_dict()
    assert all(isinstance(value, int) for value in position.values())
    resumed = open_stream(path, **options)
    resumed.load_state_dict(position)
    while len(seen) < len(expected):
        seen.extend(resumed)
    assert torch.equal(torch.cat(seen), torch.cat(expected))


@pytest.mark.parametrize("drop_missing", [False, True])
@pytest.mark.parametrize("batch", [0, 1, 7, 30])
def test_a_stream_goes_to_any_batch_of_an_epoch(path, batch, drop_missing):
    stream = open_stream(path, seed=4, drop_missing=drop_missing)
    stream.set_epoch(2)
    expected = numbers(stream)[32 * batch :]
    again = open_stream(path, seed=4, drop_missing=drop_missing)
    again.go_to(2, batch)
    assert numbers(again) == expected


def test_going_to_a_batch_reads_nothing_before_it(tmp_path):
    path = tmp_path / "t.parquet"
    noise = np.random.default_rng(0).normal(size=40_000)
    pq.write_table(pa.table({"a": noise}), path, row_group_size=10_000, compression="none")
    content = bytearray(path.read_bytes())
    content[4:40_000] = bytes(39_996)  # the first row group is no more
    path.write_bytes(content)
    stream = open_stream(path, 1000, buffer_rows=1000, shuffle=False)
    stream.go_to(0, 20)
    assert torch.cat(list(stream)).flatten().tolist() == pytest.approx(noise[20_000:].tolist())
    with pytest.raises(TableError, match="truncated or no Parquet"):
        next(iter(open_stream(path, 1000, buffer_rows=1000, shuffle=False)))


def test_a_fingerprint_tells_streams_apart(path, tmp_path):
    same = {open_stream(path, seed=1).fingerprint for _ in range(2)}
    others = [
        open_stream(path),
        open_stream(path, seed=1, columns=["row"]),
        open_stream(path, seed=1).view(chosen=np.arange(ROWS) % 2 == 0),
        open_stream(path, seed=1, batch_rows=16),
    ]
    write_groups(tmp_path / "t.parquet", pq.read_table(path).slice(1), 130)
    others.append(open_stream(tmp_path / "t.parquet", seed=1))
    assert len(same) == 1
    assert len(same | {stream.fingerprint for stream in others}) == 6


def test_a_fingerprint_is_the_same_in_all_processes(path):
    shares = [open_stream(path, world_size=2, rank=rank, drop_missing=True) for rank in (0, 1)]
    assert shares[0].fingerprint == shares[1].fingerprint


def test_a_stream_for_one_process_is_shared_by_several(path):
    shared = StreamRows(open_stream(path, seed=2))
    for rank in (0, 1):
        made = open_stream(path, seed=2, world_size=2, rank=rank)
        batches = [batch.rows for batch in shared.batches(0, rank=rank, world_size=2)]
        assert torch.equal(torch.cat(batches), torch.cat(list(made)))
    assert shared.batch_count(2) == len(made) == shared.batch_count() // 2
    with pytest.raises(SettingsError, match="made for process 0 of 3, got one with rank=1"):
        next(StreamRows(made).batches(0, rank=0, world_size=3))


@pytest.mark.parametrize("drop_missing", [False, True])
def test_nothing_is_left_after_the_last_batch(path, drop_missing):
    stream = StreamRows(open_stream(path, drop_last=False, drop_missing=drop_missing))
    count = len([*stream.batches(0)])
    assert len([*stream.batches(0, start=count - 1)]) == 1
    assert [*stream.batches(0, start=count)] == []


def test_large_files_are_told_from_small_ones(path, tmp_path):
    assert not is_large(path)
    assert not is_large(tmp_path / "none.parquet")
    assert is_large(path, most=2 * ROWS)
    assert not is_large(path, ["row"], most=2 * ROWS)


def test_processes_share_their_position_too(path):
    first, second = (open_stream(path, world_size=2, rank=rank) for rank in (0, 1))
    expected = list(second)
    first_batches = iter(first)
    for _ in range(5):
        next(first_batches)
    resumed = open_stream(path, world_size=2, rank=1)
    resumed.load_state_dict(first.state_dict())
    assert torch.equal(torch.cat(list(resumed)), torch.cat(expected[5:]))


def test_a_position_of_another_order_is_refused(path):
    position = open_stream(path).state_dict()
    with pytest.raises(SettingsError, match=r"with batch_rows=32, this one has 16; open the same"):
        open_stream(path, 16).load_state_dict(position)


def test_a_view_has_the_rows_and_columns_that_are_chosen(path):
    chosen = np.random.default_rng(3).random(ROWS) < 0.3
    view = open_stream(path, drop_last=False).view(
        chosen=chosen, columns=["grade", "row"], numbered=True
    )
    batches = list(view)
    seen = np.concatenate([batch.numbers for batch in batches])
    assert sorted(seen.tolist()) == np.flatnonzero(chosen).tolist()
    rows = torch.cat([batch.rows for batch in batches])
    assert rows[:, 1].tolist() == seen.tolist()
    assert view.rows == chosen.sum()
    assert view.types == ("int64", "int64")


def test_moments_are_those_of_the_rows_that_are_chosen(path):
    table = pq.read_table(path)
    rows = torch.from_numpy(np.stack([column.to_numpy() for column in table.columns], 1))
    chosen = np.random.default_rng(3).random(ROWS) < 0.3
    weights = torch.rand(ROWS, dtype=torch.float64)
    found = open_stream(path).view(chosen=chosen).moments(["grade", "normal"], weights)
    expected = Standardisation.from_rows(rows[chosen][:, [2, 1]], weights[chosen])
    torch.testing.assert_close(found.centre, expected.location)
    torch.testing.assert_close(found.deviation, expected.scale)


def test_a_survey_finds_what_reading_the_table_finds(tmp_path):
    generator = np.random.default_rng(0)
    columns = {
        "grade": generator.integers(0, 5, 5000),
        "still": np.full(5000, 2.5),
        "normal": generator.normal(1e8, 1e-3, 5000),
    }
    path = tmp_path / "t.parquet"
    write_groups(path, pa.table(columns), 700)
    found = survey_parquet(path)
    assert found.constant == ("still",)
    assert list(found.ties) == ["grade"]
    assert found.ties["grade"].step == 1
    deviation = ParquetStream(path, warn=False).moments().deviation
    assert deviation[2].item() == pytest.approx(1e-3, rel=0.05)
    with pytest.warns(TableWarning) as caught:
        assert ParquetStream(path).survey.rows == 5000
    said = " ".join(str(warning.message) for warning in caught)
    assert "Column 'still': one value in all 5,000 rows" in said
    assert "'grade' (5 distinct values" in said
    quiet = ParquetStream(path, drop_constant=True, dequantise=True, columns=["still", "grade"])
    assert quiet.columns == ("grade",)
    assert quiet.survey.columns == ("grade",)
    batch = next(iter(quiet))
    assert len(batch.unique()) > 500
    assert torch.equal(batch.round().unique(), torch.arange(5.0).double())
    assert not torch.equal(batch, next(iter(quiet)))
    with pytest.raises(TableError, match="leaves nothing"):
        ParquetStream(path, drop_constant=True, columns=["still"])


def test_missing_values_are_counted_or_dropped(tmp_path):
    values = [None if row % 10 == 3 else float(row) for row in range(1000)]
    infinite = [float("inf") if row == 500 else float(row) for row in range(1000)]
    path = tmp_path / "t.parquet"
    write_groups(path, pa.table({"a": values, "b": infinite}), 100)
    message = r"'a' \(100 missing\), 'b' \(1 infinite\); .* 101 of 1,000 rows with drop_missing"
    with pytest.raises(TableError, match=message):
        survey_parquet(path)
    with pytest.raises(TableError, match=message):
        list(ParquetStream(path, 10))
    stream = ParquetStream(path, 10, drop_missing=True, drop_last=False, world_size=1)
    assert len(torch.cat(list(stream))) == 899
    assert len(stream) == 90
    shares = [
        ParquetStream(path, 10, drop_missing=True, world_size=2, rank=rank) for rank in (0, 1)
    ]
    assert [len(list(share)) for share in shares] == [44, 44]
    assert all(torch.cat(list(share)).isfinite().all() for share in shares)


def test_broken_and_unsuitable_files(tmp_path, path):
    broken = tmp_path / "t.parquet"
    broken.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TableError, match="truncated or no Parquet"):
        ParquetStream(broken)
    whole = bytearray(path.read_bytes())
    whole[4:2000] = bytes(1996)
    broken.write_bytes(whole)
    with pytest.raises(TableError, match="truncated or no Parquet"):
        list(ParquetStream(broken, 10))
    pq.write_table(pa.table({"a": ["x"], "b": [1.0]}), broken)
    with pytest.raises(TableError, match=r"Column 'a' \(text\) holds text or dates"):
        ParquetStream(broken)
    assert len(ParquetStream(broken, 1, columns=["b"])) == 1
    with pytest.raises(TableError, match="'z' not found"):
        ParquetStream(broken, columns=["z"])
    with pytest.raises(TableError, match="no columns to read"):
        ParquetStream(broken, columns=[])
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), broken)
    with pytest.raises(TableError, match="no rows"):
        ParquetStream(broken)
    with pytest.raises(TableError, match=r"1,003 rows, expected a batch of 600 for each of 2 pro"):
        ParquetStream(path, 600, world_size=2)
    with pytest.raises(SettingsError, match=r"a rank below world_size, got rank 2 of 2"):
        ParquetStream(path, rank=2, world_size=2)
    with pytest.raises(TableError, match="got nothing"):
        ParquetStream(tmp_path / "none.parquet")


def test_a_reader_says_what_rows_of_any_columns_are(tmp_path):
    pq.write_table(
        pa.table({"a": ["x", "yy", None], "b": [1.0, 2.0, 3.0]}), tmp_path / "t.parquet"
    )

    def lengths(batch):
        sizes = [len(text or "") for text in batch.column("a").to_pylist()]
        return np.array(sizes, dtype=np.float64)[:, None]

    stream = ParquetStream(tmp_path / "t.parquet", 3, columns=["a"], shuffle=False, reader=lengths)
    assert next(iter(stream)).tolist() == [[1.0], [2.0], [0.0]]
    with pytest.raises(SettingsError, match="keeps its columns, a; make another"):
        stream.view(columns=["b"])
    with pytest.raises(SettingsError, match="are for columns of numbers, got a reader"):
        ParquetStream(tmp_path / "t.parquet", 3, reader=lengths, drop_missing=True)


READ = """
    stream = ParquetStream(path, 512, buffer_rows=2**15)
    rows = sum(len(batch) for batch in stream)
    assert rows == len(stream) * 512
"""
TRAIN = """
    stream = ParquetStream(path, 512)
    settings = bnaf.TrainingSettings(steps=STEPS)
    model = bnaf.Model.fit(stream, settings=settings, progress=False)
    assert model.record["steps"] == STEPS
    assert model.log_prob(torch.zeros(5, 6)).isfinite().all()
"""


TRAIN_KINDS = """
    settings = bnaf.TrainingSettings(steps=100)
    model = bnaf.Model.fit(FrameStream(path), settings=settings, progress=False)
    assert model.columns == ("city", "visits", "weight")
"""


def peak_memory(work, *paths, loads="bnaf") -> list[float]:
    """Return the largest memory above the imports so far after work on each file, in MB."""
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from /proc")
    code = f"""
from pathlib import Path
import pyarrow.parquet, torch
import bnaf, {loads}
from bnaf.tables.frame_streams import FrameStream
from bnaf.tables.streams import ParquetStream

def memory(name):
    return int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0]) / 1000

torch.set_num_threads(1)
pyarrow.set_cpu_count(1)  # every thread has buffers of its own, whatever the file
before = memory("VmRSS")
for path in {[str(path) for path in paths]}:
{textwrap.indent(textwrap.dedent(work), "    ")}
    print(memory("VmHWM") - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.splitlines()]


LOOP = "bnaf.training._run.job"  # loads Fabric, which takes some memory


def write_large(path, rows, group):
    generator = np.random.default_rng(0)
    schema = pa.schema([(f"x{index}", pa.float64()) for index in range(6)])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, group):
            size = min(group, rows - start)
            columns = {name: generator.normal(size=size) for name in schema.names}
            writer.write_table(pa.table(columns, schema), row_group_size=group)


def write_both(folder, group):
    """Write a small and a large file."""
    paths = [folder / "small.parquet", folder / "large.parquet"]
    for path, rows in zip(paths, (300_000, 1_000_000), strict=True):
        write_large(path, rows, group)
    return paths


@pytest.mark.parametrize("group", [50_000, 1_000_000], ids=["many_groups", "one_group"])
def test_memory_stays_flat_as_the_file_grows(tmp_path, group):
    small, large = peak_memory(READ, *write_both(tmp_path, group))
    assert large - small < 22  # the rows themselves grow by 34 MB
    assert large < 200


def test_memory_stays_flat_while_training(tmp_path):
    work, paths = TRAIN.replace("STEPS", "100"), write_both(tmp_path, 50_000)
    small, large = peak_memory(work, *paths, loads=LOOP)
    assert large - small < 30  # some bytes per row say which are set aside
    assert large < 400


def test_memory_stays_flat_while_training_on_columns_of_every_kind(tmp_path):
    piece = pa.Table.from_pandas(kinds_frame(100_000)[["city", "visits", "weight"]])
    paths = [tmp_path / "small.parquet", tmp_path / "large.parquet"]
    for path, pieces in zip(paths, (3, 12), strict=True):
        with pq.ParquetWriter(path, piece.schema) as writer:
            for _ in range(pieces):
                writer.write_table(piece, row_group_size=50_000)
    small, large = peak_memory(TRAIN_KINDS, *paths, loads=LOOP)
    assert large - small < 30  # some bytes per row; those of their cells grow by 29 MB
    assert large < 400


@pytest.mark.slow
def test_ten_million_rows_take_no_more(tmp_path):
    write_large(tmp_path / "t.parquet", 10_000_000, 1_000_000)
    assert peak_memory(READ, tmp_path / "t.parquet")[0] < 300
    work = TRAIN.replace("STEPS", "400")
    assert peak_memory(work, tmp_path / "t.parquet", loads=LOOP)[0] < 600  # of 1,500


@pytest.mark.slow
def test_the_command_line_trains_on_ten_million_rows(tmp_path):
    write_large(tmp_path / "t.parquet", 10_000_000, 1_000_000)
    command = [
        *("fit", str(tmp_path / "t.parquet"), "--out", str(tmp_path / "m.safetensors")),
        *("--steps", "300", "--quiet"),
    ]
    work = f"""
    import sys
    sys.argv = ["bnaf", *{command!r}]
    sys.stdout, shown = sys.stderr, sys.stdout
    try:
        bnaf.cli.app.main()
    except SystemExit as end:
        assert not end.code
    sys.stdout = shown
    """
    assert peak_memory(work, tmp_path / "t.parquet", loads="bnaf.cli.app")[0] < 1500
