"""Frames: text, dates, categories and empty cells, from wherever they come, and written again."""

import datetime
import gzip
import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.sparse import dok_array

from bnaf import TableError, read_table
from bnaf.columns.schema import Schema
from bnaf.tables.cells import arrow_cells
from bnaf.tables.column import Column
from bnaf.tables.frames import read_frame
from bnaf.tables.writing import write_table

TEXT = (
    "name,born,seen,size,ok,age\n"
    'Ann,1990-02-03,2024-01-02 10:00:00,1.5,true,"3"\n'
    ",1991-12-31,2024-01-03 11:30:00,NA,false,\n"
    '"Bo, jr",,2024-01-04 12:00:00,?,,5\n'
)
TYPES = {
    "name": "text",
    "born": "date32[day]",
    "seen": "timestamp[s]",
    "size": "float64",
    "ok": "bool",
    "age": "int64",
}
GONE = {"name": [1], "born": [2], "seen": [], "size": [1, 2], "ok": [2], "age": [1]}


def write_csv(path):
    path.write_text(TEXT)


def write_packed(path):
    path.write_bytes(gzip.compress(TEXT.encode()))


def write_parquet(path):
    pq.write_table(read_frame(io.StringIO(TEXT)).to_arrow(), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [("t.csv", write_csv), ("t.csv.gz", write_packed), ("t.parquet", write_parquet)],
)
def test_a_file_is_read_with_types_and_empty_cells(tmp_path, name, write):
    write(tmp_path / name)
    frame = read_frame(tmp_path / name)
    found = {
        column.name: column.type.replace("timestamp[ms]", "timestamp[s]")
        for column in frame.columns
    }
    assert found == TYPES
    assert {column.name: np.flatnonzero(column.empty).tolist() for column in frame.columns} == GONE
    assert frame["name"].levels[frame["name"].values[2]] == "Bo, jr"


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_frame_goes_to_a_library_and_back(library):
    frame = read_frame(io.StringIO(TEXT))
    there = {"pandas": frame.to_pandas, "polars": frame.to_polars, "arrow": frame.to_arrow}[
        library
    ]()
    back = read_frame(there)
    assert back.names == frame.names
    for column in back.columns:
        assert np.flatnonzero(column.empty).tolist() == GONE[column.name]


@pytest.mark.parametrize("name", ["o.csv", "o.parquet"])
def test_a_frame_that_is_written_is_read_as_it_was(tmp_path, name):
    frame = read_frame(io.StringIO(TEXT))
    write_table(frame, tmp_path / name)
    back = read_frame(tmp_path / name)
    assert back.to_arrow().to_pylist() == frame.to_arrow().to_pylist()


def test_types_of_pandas_are_kept():
    frame = read_frame(
        pd.DataFrame(
            {
                "size": pd.Categorical(["lo", "hi", None], ["lo", "hi"], ordered=True),
                "code": pd.Categorical([3, 1, 3]),
                "count": pd.array([1, None, 3], dtype="Int64"),
                "flag": pd.array([True, None, False], dtype="boolean"),
                "day": pd.to_datetime(["2024-01-01", None, "2024-01-03"], utc=True),
                "mixed": ["a", None, 3],
            }
        )
    )
    assert [column.type for column in frame.columns] == [
        *("ordered", "category", "int64", "bool", "timestamp[us, tz=UTC]", "text"),
    ]
    assert frame["size"].levels == ("lo", "hi")
    assert frame["code"].of == "int64"
    assert frame["mixed"].levels == ("a", "3")
    kinds = frame.to_arrow().schema.types
    assert kinds[1] == pa.dictionary(pa.int32(), pa.int64())
    assert [int(column.empty.sum()) for column in frame.columns] == [1, 0, 1, 1, 1, 1]


def test_types_of_polars_are_kept():
    frame = read_frame(
        pl.DataFrame(
            {
                "cut": pl.Series(["a", "b"], dtype=pl.Categorical),
                "size": pl.Series(["lo", None], dtype=pl.Enum(["lo", "hi"])),
                "day": [datetime.date(2024, 1, 1), None],
            }
        ).lazy()
    )
    assert [column.type for column in frame.columns] == ["category", "ordered", "date32[day]"]


@pytest.mark.parametrize(
    ("first", "index"), [("", ""), ("Unnamed: 0", "Unnamed: 0"), ("id", None)]
)
def test_a_first_column_without_a_name_is_an_index(first, index):
    frame = read_frame(io.StringIO(f'"{first}",a\n"1",x\n"2",y\n'))
    assert frame.index == index
    assert frame.names == (("a",) if index is not None else ("id", "a"))


def test_a_later_column_without_a_name_is_refused():
    with pytest.raises(TableError, match="needs a name, got none for column 2 of 2"):
        read_frame(io.StringIO("a,\n1,2\n"))


def test_other_marks_of_empty_cells_can_be_told():
    text = "a,b\n1,x\n-999,none\n"
    assert not read_frame(io.StringIO(text))["a"].empty.any()
    frame = read_frame(io.StringIO(text), missing=["-999", "none"])
    assert frame["a"].empty.tolist() == frame["b"].empty.tolist() == [False, True]


def test_delimiter_and_decimal_are_heeded():
    frame = read_frame(io.StringIO("a;b\n1,5;x\n"), delimiter=";", decimal=",")
    assert frame["a"].values.tolist() == [1.5]


def test_rows_know_their_numbers():
    frame = read_frame({"a": [5, 6, 7]}).take(np.array([False, True, True]))
    assert frame.numbers.tolist() == [1, 2]
    assert frame.select(["a"]).numbers.tolist() == [1, 2]


def test_one_row_by_name_is_a_frame():
    frame = read_frame({"cut": "Ideal", "carat": 0.3})
    assert frame.to_arrow().to_pylist() == [{"cut": "Ideal", "carat": 0.3}]


def test_arrays_of_objects_tensors_and_tables_are_frames():
    rows = np.array([["a", 1.5], ["b", None]], dtype=object)
    assert [column.type for column in read_frame(rows).columns] == ["text", "float64"]
    assert read_frame(torch.ones(2, 3)).names == ("x0", "x1", "x2")
    table = read_table([[1.0, 2.0]], names=["a", "b"], warn=False)
    assert read_frame(table, columns=["b"]).to_arrow().to_pylist() == [{"b": 2.0}]


def test_a_column_of_lists_is_known_and_has_no_values():
    frame = read_frame(pa.table({"a": [[1], [2]], "b": [1, 2]}))
    assert frame["a"].holds == "objects"
    assert frame["a"].empty.all()


def test_a_frame_honours_the_limits_of_reading(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a\n" + b"x\n" * 10_000_000))
    with pytest.raises(TableError, match="unpacks from"):
        read_frame(path)
    with pytest.raises(TableError, match="has 3 columns, expected 2 at most"):
        read_frame(_csv(tmp_path, "a,b,c\n1,2,3\n"), most_columns=2)


def test_a_frame_without_rows_or_columns_of_one_length_is_refused(tmp_path):
    with pytest.raises(TableError, match="no rows"):
        read_frame(_csv(tmp_path, "a,b\n"))
    with pytest.raises(TableError, match="columns of one length, got 1, 2 cells"):
        read_frame({"a": [1], "b": [1, 2]})


@pytest.mark.parametrize(
    ("kind", "least", "largest"),
    [
        ("date32[day]", -(2**31), 2**31 - 1),
        ("time32[s]", 0, 86_399),
        ("time64[us]", 0, 86_400_000_000 - 1),
        ("timestamp[us]", -(2**62), 2**62),
    ],
)
def test_dates_beyond_their_type_are_its_first_or_last(kind, least, largest):
    empty = np.array([False, False, True])
    cells = arrow_cells(Column("d", kind, np.array([-(2**62), 2**62, 2**62]), empty))
    plain = cells.cast(pa.int32() if "32" in kind else pa.int64())
    assert plain.to_pylist() == [least, largest, None]


def test_names_and_texts_that_look_like_formulas_are_written_as_they_are(tmp_path):
    write_table(read_frame({"=1+1": ["@a", "+b", "-c", "=d"]}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().replace('"', "") == "=1+1\n@a\n+b\n-c\n=d\n"


def test_an_array_file_takes_no_text(tmp_path):
    with pytest.raises(TableError, match=r"An npy file expects numbers alone"):
        write_table(read_frame({"a": ["x"]}), tmp_path / "o.npy")


def test_text_where_numbers_are_expected_is_told():
    column = read_frame({"a": ["1", "2.5", "x"]})["a"]
    with pytest.raises(TableError, match=r"'a' holds text such as 'x', expected numbers"):
        column.as_numbers()
    assert column.take([0, 1]).as_numbers().values.tolist() == [1.0, 2.5]


def _csv(folder, text):
    path = folder / "t.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("pattern", ["%d.%m.%Y", "%Y/%m/%d", "%Y-%m-%d"])
def test_days_of_a_file_are_days(pattern):
    days = pd.date_range("2023-01-05", periods=40).strftime(pattern)
    frame = read_frame(io.StringIO("day\n" + "\n".join(days)))
    assert frame["day"].type == "date32[day]"
    assert str(frame.to_pandas()["day"][0]) == "2023-01-05"


def test_times_of_a_file_are_times():
    times = pd.date_range("2023-01-05", periods=40, freq="12h").strftime("%Y-%m-%d %H:%M:%S")
    frame = read_frame(io.StringIO("at\n" + "\n".join(times)))
    assert frame["at"].type == "timestamp[s]"


def test_dates_of_a_time_zone_are_told_in_utc():
    times = pd.date_range("2023-01-05 10:30", periods=40, tz="Asia/Tokyo")
    told = Schema.fit(read_frame(pd.DataFrame({"at": times}))).describe()["at"]
    assert told == "dates by the minute, 2023-01-05T01:30:00 to 2023-02-13T01:30:00 UTC"


CODES = "zip,flag,since\n01,True,2024-01-01\n02,,2024-02-01\n"


def test_columns_told_to_be_text_are_read_as_they_stand():
    frame = read_frame(io.StringIO(CODES), texts=["zip", "flag", "since"])
    assert [frame[name].type for name in frame.names] == ["text"] * 3
    assert frame["zip"].levels == ("01", "02")
    assert frame["flag"].empty.tolist() == [False, True]


@pytest.mark.parametrize("names", [["a", "b", "c"], None], ids=["named", "by place"])
def test_columns_without_a_header_are_told_to_be_text_by_the_names_they_get(names):
    source = io.StringIO(CODES.partition("\n")[2])
    texts = ["a"] if names else ["x0"]
    assert read_frame(source, header=False, names=names, texts=texts).texts == tuple(texts)


@pytest.mark.parametrize("quote", ["", '"'], ids=["bare", "quoted"])
@pytest.mark.parametrize("delimiter", [",", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_whole_numbers_that_begin_with_a_zero_are_codes(quote, delimiter, end):
    cells = [["zip", "count", "share"], ["10001", "0", "0.05"], ["07030", "10", "00.5"]]
    cells += [["", "3", "1"]]
    lines = [delimiter.join(f"{quote}{cell}{quote}" for cell in line) for line in cells]
    for order in (slice(None), slice(None, None, -1)):  # in the last column, too
        text = end.join(delimiter.join(line.split(delimiter)[order]) for line in lines)
        frame = read_frame(io.StringIO(text), delimiter=delimiter)
        assert frame.texts == ("zip",)
        assert {*frame["zip"].levels} == {"07030", "10001"}
        assert frame["count"].present.tolist() == [0, 10, 3]


def test_codes_are_numbers_where_they_are_told_to_be():
    frame = read_frame(io.StringIO("x\n" + "\n".join(f"{x:03d}" for x in range(200))))
    schema = Schema.fit(frame, kinds={"x": "whole"})
    assert schema.codes(frame).flatten().tolist() == [*range(200)]
    unpadded = read_frame(io.StringIO("x\n7\n"), texts=schema.texts)
    assert schema.codes(unpadded).tolist() == [[7]]


def test_numbers_are_scored_however_they_are_spelled():
    numbers = "\n".join(str(x * x % 97) for x in range(200))
    schema = Schema.fit(read_frame(io.StringIO(f"x\n{numbers}\n")))
    assert schema.codes(read_frame(io.StringIO("x\n007\n"))).tolist() == [[7]]


def test_a_list_of_rows_by_name_is_a_table():
    frame = read_frame([{"a": "x", "b": 1}, {"a": "y"}])
    assert frame.names == ("a", "b")
    assert frame["b"].empty.tolist() == [False, True]


def test_numbers_are_read_from_columns_and_rows_by_name():
    rows = {"a": [1.0, 2.0], "b": [3.0, 4.5]}
    records = [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 4.5}]
    for source in (rows, records):
        assert read_table(source, warn=False).rows.tolist() == [[1.0, 3.0], [2.0, 4.5]]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (pd.Series([1.0, 2.0]), "got a Series of pandas; .*for a column or .* for a row"),
        (pd.Index([1, 2]), "got a Index of pandas"),
        (pl.Series([1.0, 2.0]), r"got a Series of polars; give \.to_frame\(\) for a column\."),
        (pa.chunked_array([[1, 2]]), "got a ChunkedArray that Arrow reads as no table"),
    ],
)
@pytest.mark.parametrize("read", [read_frame, read_table])
def test_a_single_column_is_refused_with_a_remedy(read, source, words):
    with pytest.raises(TableError, match=words):
        read(source)


def test_a_sparse_array_is_no_dict_of_columns():
    with pytest.raises(TableError, match="got dok_array; convert it"):
        read_frame(dok_array(np.eye(3)))
