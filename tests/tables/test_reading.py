"""Tables: what can be read, what is refused and why, and what is written."""

import io
import json
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bnaf import ShapeError, TableError
from bnaf._files import atomic_file
from bnaf.errors import TableWarning
from bnaf.model.standardisation import RunningMoments, Standardisation
from bnaf.tables.reading import read_table
from bnaf.tables.splits import RowSplit, split_table
from bnaf.tables.streams import ParquetStream
from bnaf.tables.table import Table, align_tables
from bnaf.tables.ties import grid_step
from bnaf.tables.writing import write_table

FRAME = pd.DataFrame(
    {
        "whole": np.array([3, 1, 2], np.int32),
        "real": [0.1, 2.5, -1e-300],
        "flag": [True, False, True],
    }
)
ROWS = torch.tensor([[3, 0.1, 1], [1, 2.5, 0], [2, -1e-300, 1]], dtype=torch.float64)
TYPES = ("int32", "float64", "bool")


def csv(text: str | bytes, **options) -> Table:
    return read_table(io.BytesIO(text if isinstance(text, bytes) else text.encode()), **options)


def write_csv(path):
    FRAME.to_csv(path, index=False)


def write_gzip(path):
    FRAME.to_csv(path, index=False, compression="gzip")


def write_tsv(path):
    FRAME.to_csv(path, index=False, sep="\t")


def write_parquet(path):
    FRAME.set_index(pd.Index([5, 6, 7])).to_parquet(path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("t.csv", write_csv),
        ("t.csv.gz", write_gzip),
        ("t.TXT", write_csv),
        ("t.tsv", write_tsv),
        ("t.parquet", write_parquet),
        ("t.pq", write_parquet),
    ],
)
def test_files_keep_names_values_and_types(tmp_path, name, write):
    write(tmp_path / name)
    table = read_table(tmp_path / name)
    assert table.columns == ("whole", "real", "flag")
    assert table.types[1:] == TYPES[1:]
    torch.testing.assert_close(table.rows, ROWS, rtol=0, atol=0)
    chosen = read_table(str(tmp_path / name), columns=["flag", "whole"])
    assert chosen.columns == ("flag", "whole")
    assert torch.equal(chosen.rows, ROWS[:, [2, 0]])


@pytest.mark.parametrize(
    "frame",
    [FRAME, pl.DataFrame(FRAME.to_dict("list")), pl.LazyFrame(FRAME), pa.table(FRAME)],
    ids=["pandas", "polars", "lazy", "arrow"],
)
def test_frames_keep_names_values_and_types(frame):
    table = read_table(frame)
    assert table.columns == ("whole", "real", "flag")
    assert table.types[1:] == TYPES[1:]
    assert torch.equal(table.rows, ROWS)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(3, 2),
        np.arange(6, dtype=">f4").reshape(3, 2),
        np.array([[0, 2, 4], [1, 3, 5]], np.float16).T,
        torch.arange(6.0).reshape(3, 2).requires_grad_(),
        torch.arange(6.0).reshape(3, 2).bfloat16(),
        [[0, 1], [2, 3], [4, 5]],
    ],
    ids=["int16", "big-endian", "strided", "tensor", "bfloat16", "lists"],
)
def test_arrays_and_tensors_become_float64(array):
    table = read_table(array)
    assert table.columns == ("x0", "x1")
    assert torch.equal(table.rows, torch.arange(6, dtype=torch.float64).reshape(3, 2))
    assert read_table(array, names=["a", "b"], columns=["b"]).columns == ("b",)


def test_numpy_files(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "one.npz", array)
    np.savez(tmp_path / "two.npz", train=array, valid=array[:1])
    for name in ("a.npy", "one.npz"):
        table = read_table(tmp_path / name)
        assert torch.equal(table.rows, torch.from_numpy(array).double())
        assert table.types == ("float32", "float32")
    assert len(read_table(tmp_path / "two.npz", key="valid", warn=False)) == 1
    structured = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")])
    assert read_table(structured).columns == ("a", "b")


def test_standard_streams(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"a,b\n1,2\n3,4.5\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    table = read_table("-")
    assert table.columns == ("a", "b")
    stdout = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", stdout)
    write_table(table, "-")
    assert stdout.buffer.getvalue() == b"a,b\n1,2\n3,4.5\n"
    assert read_table(io.StringIO("a,b\n1,2\n3,4.5\n")).columns == ("a", "b")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("\ufeffa,b\n1,2.5\n3,4\n", {}),
        ("a;b\n1;2,5\n3;4\n", {"delimiter": ";", "decimal": ","}),
        ("a, b\r\n1, 2.5\r\n3, 4\r\n", {}),
        ("a,b,when\n1,2.5,2020-01-01\n3,4,2020-01-02\n", {"columns": ["a", "b"]}),
        ('a,b,note\n1,2.5,"two\nlines"\n3,4,x\n', {"columns": ["a", "b"]}),
        ("1,2.5\n3,4", {"header": False, "names": ["a", "b"]}),
        ("a,b\n1,2.5\n,7\n8,NA\n9,inf\n3,4\n", {"drop_missing": True}),
    ],
)
def test_dialects_of_csv(text, options):
    table = csv(text, **options)
    assert table.columns == ("a", "b")
    assert table.rows.tolist() == [[1, 2.5], [3, 4]]


def test_types_are_guessed_from_the_whole_file():
    lines = ["a,b"] + ["1,2"] * 400_000 + ["1.5,2"]
    table = csv("\n".join(lines), warn=False)
    assert table.types == ("float64", "int64")
    assert table.rows[-1, 0] == 1.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"is empty, expected lines of values; write it again"),
        (" \n\n", r"is empty"),
        ("a,b\n", r"no rows, only the 2 columns 'a', 'b'; expected one row"),
        ("a,b", r"no rows"),
        (
            "a;b\n1;2\n",
            r"one column when split at a comma.*a semicolon: got 'a;b'. Give delim.*';'",
        ),
        ("a;b\n1,5;2\n", r"Give delimiter=';' and decimal=','"),
        ("a\tb\n1\t2\n", r"a tab: got 'a\\tb'. Give delimiter='\\t'"),
        ("a b\n1 2\n", r"a space: got 'a b'. Give delimiter=' '"),
        ("a,a,b\n1,2,3\n", r"a name of its own, got 'a' 2 times; rename them"),
        ("a,,b\n1,2,3\n", r"needs a name, got none for column 2 of 3; .* index=False"),
        ("1,2\n3,4\n", r"begins with numbers .* got 1, 2. Add a line of names, or give header=F"),
        (
            "a,b\n1,2\n3\n",
            r"Expected 2 columns, got 1: 3. .* if values stand between others, give delimiter=",
        ),
        ("a,b\n1,x\n2,3\n", r"Column 'b' \(text, such as 'x'\) holds text .* columns="),
        (
            "a,b,c\n1,2020-01-01,q\n",
            r"'b' \(date32.*'c' \(text, .* hold text or dates, expected",
        ),
        (
            "a,b,c\n1,,inf\n2,,3\n,NaN,4\n5,6,7\n",
            r"'a' \(1 missing\), 'b' \(3 missing\), 'c' \(1 infinite\).*3 of 4 rows.*drop_missing",
        ),
        ("a,é\n1,2\n".encode("latin1"), r"not written in UTF-8, as expected; save it so"),
    ],
)
def test_messages_of_csv(text, message):
    with pytest.raises(TableError, match=message):
        csv(text)


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_a_first_column_without_a_name_is_left_out_as_an_index_and_told(name):
    with pytest.warns(TableWarning, match="taken for an index"):
        table = read_table(io.StringIO(f"{name},b,c\n0,2.5,3\n1,4.5,1\n"))
    assert table.columns == ("b", "c")


def test_an_index_is_read_where_it_is_asked_for():
    text = io.StringIO("Unnamed: 0,b\n0,2.5\n1,4.5\n")
    assert read_table(text, columns=["Unnamed: 0"], warn=False).rows.flatten().tolist() == [0, 1]


def test_a_parquet_file_may_have_an_index_without_a_name(tmp_path):
    pq.write_table(pa.table({"": [1, 2], "b": [2.5, 4.5]}), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", warn=False).columns == ("b",)
    assert ParquetStream(tmp_path / "t.parquet", 2, warn=False).columns == ("b",)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (
            lambda: csv("a,b\n1,2\n", columns=["b", "z"]),
            r"'z' not found; the table has columns 'a'",
        ),
        (lambda: csv("a,b\n1,2\n", columns=["b", "b"]), r"'b' 2 times"),
        (lambda: csv("ab,c\n1,2\n", columns="ab"), r"a list of names, got 'ab'; write \['ab'\]"),
        (lambda: csv("a,b\n1,2\n", columns=[]), r"no columns, expected one at least"),
        (
            lambda: csv("a\n1\n", delimiter="ab"),
            r"delimiter must be one character of ASCII, got 'ab'",
        ),
        (lambda: csv("a\n1\n", format="npy"), "Streams are read as CSV, got npy"),
        (lambda: read_table(io.BytesIO(b"PAR1\0\1")), "Streams are read as CSV, got parquet"),
        (lambda: csv("a,b\n,1\n2,\n", drop_missing=True), r"no rows left: each has a missing"),
        (lambda: read_table("nowhere.csv"), r"Expected a file at nowhere.csv, got nothing"),
        (lambda: read_table("t.xlsx"), r"ends in .csv, .tsv, .*, got 't.xlsx'; .*format='csv'"),
        (lambda: read_table("t", format="xml"), r"format must be one of csv, npy, .* got 'xml'"),
        (lambda: read_table(np.zeros(3)), r"two dimensions.* shape \(3,\); .* reshape\(-1, 1\)"),
        (lambda: read_table(np.zeros((0, 2))), r"no rows"),
        (lambda: read_table(np.zeros((2, 0))), r"no columns"),
        (lambda: read_table([[1, 2], [3]]), r"rows of equal length"),
        (lambda: read_table([["a"]]), r"'x0' \(<U1\) holds text"),
        (lambda: read_table(np.ones((2, 2), complex)), r"Columns 'x0' \(complex128\), 'x1'"),
        (lambda: read_table({1, 2}), r"a path, a file, a pandas .* got set; convert it"),
        (lambda: read_table([[1, 2]], names=["a"]), r"each of the 2 columns, got 1 names"),
        (
            lambda: read_table(pd.DataFrame({"a": [1, "x"], "b": ["u", "v"]})),
            r"Columns 'a' \(object\), 'b' \(.*such as 'u'\) hold text",
        ),
        (lambda: read_table(pl.DataFrame({"a": [1, None]})), r"'a' \(1 missing\)"),
        (lambda: read_table(pd.DataFrame([[1, 2]], columns=["a", "a"])), r"'a' 2 times"),
        (lambda: Table(torch.zeros(2, 3), ("a",)), r"1 named columns expects .* shape \(2, 3\)"),
        (lambda: Table(torch.zeros(2, 1), ("a",), ("int8", "bool")), r"one type per column"),
        (lambda: Table(torch.zeros(2, 1), ("a",), cells={"b": torch.arange(3.0)}), r"b"),
        (
            lambda: Table(torch.zeros(2, 1), ("a",), cells={"a": torch.tensor([1.0, 1.0])}),
            r"cells of a must be finite and rise, two of them at least, got \[1.0, 1.0\]",
        ),
        (
            lambda: Table(torch.zeros(2, 1), ("a",), cells={"a": torch.tensor([1.0, torch.inf])}),
            r"cells of a must be finite .* got \[1.0, inf\]",
        ),
    ],
)
def test_messages(read, message):
    with pytest.raises(TableError, match=message):
        read()


def test_many_columns_are_not_all_listed():
    with pytest.raises(TableError, match=r"'c39' \(text.*\) and 60 more hold text"):
        read_table(pd.DataFrame({f"c{index}": ["x"] for index in range(100)}))


def test_broken_files(tmp_path):
    write_parquet(tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    for length in (0, 3, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "t.parquet").write_bytes(whole[:length])
        message = "is empty" if not length else "truncated or no Parquet file.*write it again"
        with pytest.raises(TableError, match=message):
            read_table(tmp_path / "t.parquet")
    np.savez(tmp_path / "t.npz", a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    with pytest.raises(TableError, match=r"holds the arrays 'a', 'b', expected one; .* key="):
        read_table(tmp_path / "t.npz")
    np.save(tmp_path / "t.npy", np.zeros((1000, 2)))
    for name in ("t.npy", "t.npz"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(TableError, match=r"is no whole .np. file of numbers"):
            read_table(tmp_path / name, key="a")
    np.save(tmp_path / "t.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(TableError, match=r"no whole \.npy"):
        read_table(tmp_path / "t.npy")
    with pytest.raises(TableError, match="got a folder"):
        read_table(tmp_path, format="csv")


def test_constant_columns_are_warned_of_and_left_out_on_request():
    text = "a,b,c\n1,2,5\n1,3,5\n1,4,5\n"
    with pytest.warns(TableWarning, match=r"Columns 'a', 'c': one value in all 3 .*drop_constant"):
        assert csv(text).columns == ("a", "b", "c")
    assert csv(text, drop_constant=True).columns == ("b",)
    assert csv(text, warn=False).columns == ("a", "b", "c")
    with pytest.raises(TableError, match="leaves nothing; expected a column that varies"):
        csv(text, columns=["a", "c"], drop_constant=True)


def test_fewer_rows_than_columns_are_warned_of():
    with pytest.warns(TableWarning, match=r"fewer rows \(2\) than columns \(3\)"):
        read_table(torch.randn(2, 3))


def test_one_row_and_one_column():
    assert csv("a\n5\n").rows.tolist() == [[5]]
    with pytest.warns(TableWarning, match="fewer rows"):
        row = csv("a,b\n5,6\n", drop_constant=True)
    assert row.rows.tolist() == [[5, 6]]
    split = split_table(row)
    assert (len(split.train), split.valid, split.test) == (1, None, None)
    standardisation = Standardisation.from_rows(row.rows)
    assert standardisation.apply(row.rows).tolist() == [[0, 0]]
    assert standardisation.log_det == 0
    assert csv("a\n1\n2\n3\n").features == 1


def test_ties_are_found_named_and_spread_over_their_grid():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "normal": generator.normal(size=1000),
            "grade": generator.integers(3, 9, 1000),
            "tenth": generator.integers(0, 40, 1000) / 10,
            "rain": np.where(generator.random(1000) < 0.5, 0, generator.exponential(size=1000)),
        }
    )
    with pytest.warns(TableWarning) as caught:
        plain = read_table(frame)
    (said,) = [str(warning.message) for warning in caught]
    assert "'grade' (6 distinct values in 1,000 rows), 'tenth' (40 distinct" in said
    assert "'rain' (5" in said
    assert "% of the rows are 0)" in said
    assert "grows without bound" in said
    assert "dequantise=True" in said
    assert "'normal'" not in said
    spread = read_table(frame, dequantise=True, seed=3)
    noise = spread.rows - plain.rows
    assert torch.equal(spread.rows[:, 0], plain.rows[:, 0])
    assert 0.45 < noise[:, 1].abs().max() <= 0.5
    assert 0.045 < noise[:, 2].abs().max() <= 0.05 + 1e-12
    assert 0 < noise[:, 3].abs().max() < 0.01
    assert all(len(column.unique()) == 1000 for column in spread.rows.T)
    assert torch.equal(spread.rows, read_table(frame, dequantise=True, seed=3).rows)
    assert not torch.equal(spread.rows, read_table(frame, dequantise=True, seed=4).rows)
    with pytest.warns(TableWarning, match=r"'tenth' .*, 'rain'") as caught:
        named = read_table(frame, dequantise=["grade"])
    assert "'grade'" not in str(caught[0].message)
    assert torch.equal(named.rows[:, 1].round(), plain.rows[:, 1])
    with pytest.raises(TableError, match="'z' not found"):
        read_table(frame, dequantise=["z"])
    with pytest.raises(TableError, match=r"expects columns with a grid.*got one in column 'a'"):
        csv("a\n1\n1\n", dequantise=["a"])


@given(step=st.floats(1e-12, 1e6), start=st.floats(-1e3, 1e3), seed=st.integers(0, 99))
def test_the_step_of_a_grid_is_found(step, start, seed):
    places = np.random.default_rng(seed).choice(60, 30, replace=False)
    assert any(np.diff(np.sort(places)) == 1)
    assert grid_step((start + places) * step) == pytest.approx(step, rel=1e-6)
    assert grid_step(np.array([start, start])) == 0
    assert grid_step(np.array([2**24, 2**24 + 1], float), "float32") == 1


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "npy"])
def test_what_is_written_is_read_again(tmp_path, suffix):
    table = read_table(FRAME)
    path = tmp_path / f"out.{suffix}"
    write_table(table, path)
    again = read_table(path)
    assert torch.equal(again.rows, table.rows)
    if suffix != "npy":
        assert again.columns == table.columns
    if suffix == "parquet":
        assert again.types == TYPES
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with pytest.raises(TableError, match=r"exists, expected a new file; .* overwrite=True"):
        write_table(table, path)
    write_table(table.take(torch.tensor([0])), path, overwrite=True)
    assert len(read_table(path, warn=False)) == 1


def test_samples_are_written_in_the_types_of_the_table(tmp_path):
    rows = torch.tensor([[2.6, 300.0, 0.4, 1e30], [-1.4, -7, 0.6, -1e30]])
    table = Table(rows, ("i", "byte", "flag", "long"), ("int32", "uint8", "bool", "int64"))
    write_table(table, tmp_path / "t.parquet")
    written = pq.read_table(tmp_path / "t.parquet")
    assert [str(kind) for kind in written.schema.types] == ["int32", "uint8", "bool", "int64"]
    assert written["i"].to_pylist() == [3, -1]
    assert written["byte"].to_pylist() == [255, 0]
    assert written["flag"].to_pylist() == [False, True]
    assert written["long"].to_pylist() == [2**63 - 1024, -(2**63)]


def test_a_table_that_cannot_be_written_leaves_nothing(tmp_path):
    table = read_table(FRAME)
    with pytest.raises(TableError, match=r"cannot be written.*check its folder"):
        write_table(table, tmp_path / "no" / "t.csv")
    with pytest.raises(TableError, match=r"csv, parquet, npy, got the file name 't\.npz'"):
        write_table(table, tmp_path / "t.npz")
    path = tmp_path / "t.bin"
    path.write_bytes(b"before")

    def fail():
        with atomic_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_plan_of_a_split_is_ready_for_json_with_numbers_of_numpy():
    split = RowSplit.plan(np.int64(100), np.float64(0.25), np.array(5), seed=np.int64(1))
    assert RowSplit.from_dict(json.loads(json.dumps(split.as_dict()))) == split


def test_a_split_is_seeded_and_keeps_every_row():
    table = read_table(torch.arange(200.0).reshape(100, 2))
    split = split_table(table, valid=0.25, test=10, seed=1)
    assert [len(part) for part in split] == [65, 25, 10]
    together = torch.cat([part.rows for part in split])
    assert torch.equal(together[together[:, 0].argsort()], table.rows)
    assert torch.equal(split.test.rows, split_table(table, 0.25, 10, seed=1).test.rows)
    assert not torch.equal(split.test.rows, split_table(table, 0.25, 10, seed=2).test.rows)
    assert split_table(table, 0, 0).valid is None
    with pytest.raises(TableError, match=r"100 rows into 50 .* and 50 .* leaves none to train"):
        split_table(table, 0.5, 50)
    with pytest.raises(TableError, match="valid must be a share below 1 or a number of rows"):
        split_table(table, valid=-0.1)


def test_explicit_parts_get_the_columns_of_the_first():
    train, valid = csv("a,b\n1,2\n3,4\n"), csv("b,c,a\n1,2,3\n4,5,6\n", warn=False)
    split = align_tables(train, valid)
    assert split.valid.columns == ("a", "b")
    assert split.valid.rows.tolist() == [[3, 1], [6, 4]]
    assert split.test is None
    with pytest.raises(TableError, match="'b' not found"):
        align_tables(train, test=csv("a\n1\n2\n"))


@given(
    seed=st.integers(0, 99),
    columns=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 50), max_size=3),
    offset=st.floats(-1e9, 1e9),
)
def test_moments_of_chunks_are_those_of_the_whole(seed, columns, cuts, offset):
    rows = offset + torch.randn(
        50, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    moments = RunningMoments(columns)
    edges = [0, *sorted(cuts), 50]
    for start, stop in pairwise(edges):
        moments.update(rows[start:stop])
    torch.testing.assert_close(moments.centre, rows.mean(0))
    torch.testing.assert_close(moments.deviation, rows.std(0, correction=0), rtol=1e-6, atol=0)


@given(seed=st.integers(0, 99), cut=st.integers(0, 20), offset=st.sampled_from([0.0, 1e6]))
def test_a_weight_counts_as_so_many_rows(seed, cut, offset):
    generator = torch.Generator().manual_seed(seed)
    rows = offset + torch.randn(20, 2, dtype=torch.float64, generator=generator)
    weights = torch.randint(0, 4, (20,), generator=generator)
    weights[0] = 1
    weighed, repeated = RunningMoments(2), RunningMoments(2)
    for part in (slice(None, cut), slice(cut, None)):
        weighed.update(rows[part], weights[part].double())
    repeated.update(rows.repeat_interleave(weights, 0))
    torch.testing.assert_close(weighed.centre, repeated.centre)
    torch.testing.assert_close(weighed.deviation, repeated.deviation, rtol=1e-6, atol=0)


def test_standardisation_inverts_and_has_the_log_jacobian_of_autograd():
    rows = torch.randn(50, 3, dtype=torch.float64) * torch.tensor([0.01, 1, 100]) + 7
    standardisation = Standardisation.from_rows(rows)
    z = standardisation.apply(rows)
    torch.testing.assert_close(z.mean(0), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(z.std(0, correction=0), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(standardisation.invert(z), rows)
    jacobian = torch.func.jacrev(standardisation.apply)(rows[0])
    assert standardisation.log_det == pytest.approx(jacobian.logdet().item())
    assert standardisation.apply(rows.float()).dtype == torch.float64
    assert Standardisation.identity(3).log_det == 0


@pytest.mark.parametrize(
    ("location", "scale", "error"),
    [
        ([0.0, 0.0], [1.0], ShapeError),
        ([0.0], [0.0], TableError),
        ([float("nan")], [1.0], TableError),
        ([0.0], [float("inf")], TableError),
    ],
)
def test_a_standardisation_is_checked(location, scale, error):
    with pytest.raises(error, match="Standardisation expects"):
        Standardisation(torch.tensor(location), torch.tensor(scale))


def read_or_refuse(source) -> Table | None:
    try:
        return read_table(source, warn=False)
    except TableError:
        return None


@given(text=st.text("0123456789.,;|\t\n\r\"' -+eEnaifbT\ufeffé\x00", max_size=60))
def test_any_text_is_a_table_or_refused(text):
    table = read_or_refuse(io.BytesIO(text.encode()))
    assert table is None or (len(table) and table.rows.isfinite().all())


@given(content=st.binary(max_size=80), suffix=st.sampled_from(["csv", "npy", "npz", "parquet"]))
def test_any_bytes_are_a_table_or_refused(tmp_path_factory, content, suffix):
    path = tmp_path_factory.mktemp("any") / f"any.{suffix}"
    path.write_bytes(content)
    table = read_or_refuse(path)
    assert table is None or (len(table) and table.rows.isfinite().all())


def test_ties_of_columns_to_condition_on_are_left_alone():
    rows = torch.randn(60, 2, dtype=torch.float64)
    rows[:, 1] = (rows[:, 1] > 0).double()
    table = read_table(rows, names=["a", "g"], given=["g"], dequantise=True)
    torch.testing.assert_close(table.rows, rows, rtol=0, atol=0)
