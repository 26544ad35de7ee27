"""Small files that claim much: they are refused before they fill the memory."""

import gzip
import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bnaf import TableError, read_table

TOO_MUCH = 20_000_000  # bytes, above what every file may unpack to


def write_gzip(path):
    with gzip.open(path, "wb") as file:
        file.write(b"a\n" + b"0\n" * (TOO_MUCH // 2))


def write_npz(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        content = io.BytesIO()
        np.save(content, np.zeros((TOO_MUCH // 8, 1)))
        archive.writestr("a.npy", content.getvalue())


def write_parquet(path):
    pq.write_table(pa.table({"a": np.zeros(TOO_MUCH // 8)}), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [("t.csv.gz", write_gzip), ("t.npz", write_npz), ("t.parquet", write_parquet)],
)
def test_a_file_that_unpacks_to_far_more_is_refused_unless_that_is_allowed(tmp_path, name, write):
    path = tmp_path / name
    write(path)
    with pytest.raises(
        TableError, match=r"unpacks from [\d,]+ bytes to more than 16,777,216, 100"
    ):
        read_table(path, warn=False)
    assert len(read_table(path, warn=False, most_expansion=1e6)) > 1_000_000


def write_wide_header(path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (0, 1000000000), }"
    header += b" " * (117 - len(header)) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


def test_an_empty_array_of_many_columns_is_refused_at_once(tmp_path):
    write_wide_header(tmp_path / "t.npy")
    assert (tmp_path / "t.npy").stat().st_size == 128
    with pytest.raises(TableError, match=r"t\.npy has no rows: its shape is \(0, 1000000000\)"):
        read_table(tmp_path / "t.npy")


@pytest.mark.parametrize("kind", ["csv", "npy", "parquet"])
def test_too_many_columns_are_refused_unless_they_are_allowed(tmp_path, kind):
    path = tmp_path / f"t.{kind}"
    if kind == "csv":
        path.write_text('a,b,"c\nd",e\n1,2,3,4\n')
    elif kind == "npy":
        np.save(path, np.ones((2, 4)))
    else:
        pq.write_table(pa.table({name: [1.0] for name in "abcd"}), path)
    with pytest.raises(
        TableError, match=r"has 4 columns, expected 3 at most.*most_columns=\.\.\."
    ):
        read_table(path, most_columns=3, warn=False)
    assert read_table(path, most_columns=4, warn=False).features == 4


def test_a_value_of_two_million_lines_in_the_header_is_looked_through_once(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'"a' + b"\n" * 2_000_000)
    with pytest.raises(TableError, match=r"t\.csv"):
        read_table(tmp_path / "t.csv")
