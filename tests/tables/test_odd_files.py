"""Odd files and options: each is read as it is meant, or refused or warned of in words."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import only_line, run

from bnaf import TableError, TableWarning, read_table
from bnaf.tables.frames import read_frame
from bnaf.tables.writing import write_table


@pytest.mark.parametrize("mark", ["ab", "", "é", "\n", '"'])
@pytest.mark.parametrize("setting", ["delimiter", "decimal"])
def test_a_mark_is_one_character_of_ascii(tmp_path, setting, mark):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(TableError, match=f"{setting} must be one character of ASCII, got"):
        read_table(tmp_path / "t.csv", **{setting: mark})
    words = ["fit", tmp_path / "t.csv", "--out", tmp_path / "m.safetensors", f"--{setting}", mark]
    refused = run(*words)
    assert refused.exit_code == 1
    assert f"{setting} must be one character" in only_line(refused.stderr)


@pytest.mark.parametrize("mark", ["ab", "", "é", "\n", '"'])
def test_a_table_is_written_with_one_character_of_ascii_between_values(tmp_path, mark):
    table = read_table(np.ones((2, 2)), warn=False)
    with pytest.raises(TableError, match="delimiter must be one character of ASCII, got"):
        write_table(table, tmp_path / "t.csv", delimiter=mark)
    assert not list(tmp_path.iterdir())


def test_delimiter_and_decimal_must_differ(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(TableError, match=r"delimiter and decimal must differ, got ',' for both"):
        read_table(tmp_path / "t.csv", decimal=",")


def test_a_parquet_file_whose_texts_are_no_utf8_is_refused(tmp_path):
    odd = pa.array([b"ab", b"\xc3("], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"a": odd}), tmp_path / "t.parquet")
    for read in (read_table, read_frame):
        with pytest.raises(TableError, match=r"t\.parquet .*Invalid UTF8"):
            read(tmp_path / "t.parquet")


def test_a_parquet_file_whose_names_are_no_utf8_is_refused(tmp_path):
    pq.write_table(pa.table({"abcd": [1.0, 2.0]}), tmp_path / "t.parquet", store_schema=False)
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content.replace(b"abcd", b"a\xc3(d"))
    with pytest.raises(TableError, match=r"t\.parquet is truncated or no Parquet file"):
        read_table(tmp_path / "t.parquet")


def test_an_archive_read_as_an_array_is_told(tmp_path):
    np.savez(tmp_path / "t.npz", np.ones((2, 2)))
    with pytest.raises(TableError, match=r"t\.npz is an npz file; give format='npz'"):
        read_table(tmp_path / "t.npz", format="npy")


def test_an_array_read_as_an_archive_is_told(tmp_path):
    np.save(tmp_path / "t.npy", np.ones((2, 2)))
    with pytest.raises(TableError, match=r"t\.npy is an npy file; give format='npy'"):
        read_table(tmp_path / "t.npy", format="npz")


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_text_read_as_an_array_is_told_without_advice_to_run_it(tmp_path, kind):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TableError, match=rf"t\.csv is no \.{kind} file: .* format=") as told:
        read_table(tmp_path / "t.csv", format=kind)
    assert "pickle" not in str(told.value)


@pytest.mark.parametrize("step", [-1.0, 0.0, float("nan")])
def test_noise_of_no_width_is_refused(step):
    with pytest.raises(TableError, match=r"steps above 0, got .* for column 'x0'"):
        read_table(np.ones((2, 1)), dequantise={"x0": step}, warn=False)


def test_a_blank_line_in_a_single_column_is_a_missing_value(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n\n3\n4\n\n\n")
    with pytest.raises(TableError, match=r"'a' \(1 missing\).* 1 of 4 rows"):
        read_table(tmp_path / "t.csv")
    assert len(read_table(tmp_path / "t.csv", drop_missing=True, warn=False)) == 3
    (tmp_path / "t.csv").write_text("\n\na,b\n1,2\n\n3,4\n")
    assert len(read_table(tmp_path / "t.csv", warn=False)) == 2


@pytest.mark.parametrize(
    "source",
    [
        np.array([[2**53 + 1], [2**53 + 2]]),
        np.array([[-(2**60)], [1]]),
        pa.table({"x0": pa.array([2**63 + 5, 7], pa.uint64())}),
    ],
    ids=["int64", "negative", "uint64"],
)
def test_whole_numbers_that_are_rounded_are_warned_of(source):
    with pytest.warns(TableWarning, match=r"Column 'x0': whole numbers above 2\^53"):
        read_table(source)


def test_whole_numbers_that_are_exact_are_not_warned_of():
    assert len(read_table(np.array([[2**53], [-(2**53)]]))) == 2


def test_noise_never_leads_out_of_the_range_of_numbers():
    rows = np.array([[1.5e308], [-1.5e308]] * 20)
    with pytest.raises(TableError, match=r"Column 'x0': noise .* would make values infinite"):
        read_table(rows, dequantise=True, warn=False)


def test_a_column_of_text_is_blamed_on_what_is_no_number(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\nNA\n?\n")
    with pytest.raises(TableError, match=r"'a' \(text, such as '\?'\)"):
        read_table(tmp_path / "t.csv")
