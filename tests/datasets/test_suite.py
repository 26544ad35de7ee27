"""The five tables of the literature, from small files of their formats."""

import sys

import numpy as np
import pandas as pd
import pytest

from bnaf import SettingsError, TableError
from bnaf.datasets.known import known_data
from bnaf.datasets.suite import SUITE_FILES, prepare_table


def place(folder, name, index=0):
    path = folder / SUITE_FILES[name][index]
    path.parent.mkdir(exist_ok=True)
    return path


def draw(rows, columns, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def test_power_is_shuffled_spread_and_standardised_without_the_test_rows(tmp_path):
    raw = draw(200, 8).round(1)
    np.save(place(tmp_path, "power"), raw)
    train, valid, test = prepare_table("power", tmp_path)
    assert [len(part) for part in (train, valid, test)] == [162, 18, 20]
    assert train.columns[0] == "active_power"
    seen = np.vstack([train.rows, valid.rows])
    np.testing.assert_allclose(seen.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(seen.std(0), 1)
    order = np.random.RandomState(42).permutation(200)
    minutes = raw[order, 7]
    expected = (minutes - minutes[:180].mean()) / minutes[:180].std()
    np.testing.assert_allclose(np.concatenate([seen, test.rows])[:, 5], expected)


def test_gas_drops_labels_and_columns_that_nearly_equal_another(tmp_path):
    frame = pd.DataFrame(draw(100, 5), columns=["Time", "Meth", "Eth", "a", "b"])
    frame["c"] = frame["a"] + 1e-3 * frame["b"]
    frame.to_pickle(place(tmp_path, "gas"))
    train, valid, test = prepare_table("gas", tmp_path)
    assert train.columns == ("b", "c")
    assert [len(part) for part in (train, valid, test)] == [81, 9, 10]
    rows = np.vstack([train.rows, valid.rows, test.rows])
    np.testing.assert_allclose(rows.std(0, ddof=1), 1)


def test_hepmass_keeps_signal_rows_and_features_that_do_not_repeat(tmp_path):
    for index, extra in enumerate((0, 1)):
        rows = draw(120, 5 + extra, seed=index)
        rows[:, 0] = np.arange(120) % 2
        rows[:, 2] = rows[:, 2].clip(min=0)
        header = ",".join(f"f{column}" for column in range(5 + extra))
        path = place(tmp_path, "hepmass", index)
        np.savetxt(path, rows, delimiter=",", header=header, comments="# ")
    train, valid, test = prepare_table("hepmass", tmp_path)
    assert train.columns == ("f0", "f2", "f3")
    assert [len(part) for part in (train, valid, test)] == [54, 6, 60]
    np.testing.assert_allclose(np.vstack([train.rows, valid.rows]).mean(0), 0, atol=1e-12)


def test_miniboone_is_cut_in_order(tmp_path):
    rows = draw(100, 43)
    np.save(place(tmp_path, "miniboone"), rows)
    parts = prepare_table("miniboone", tmp_path)
    expected = (rows - rows[:90].mean(0)) / rows[:90].std(0)
    np.testing.assert_allclose(np.vstack([part.rows for part in parts]), expected)


def test_bsds300_is_taken_as_it_is(tmp_path):
    h5py = pytest.importorskip("h5py", reason="BSDS300 is an HDF5 file")
    with h5py.File(place(tmp_path, "bsds300"), "w") as file:
        for key, rows in (("train", 9), ("validation", 3), ("test", 2)):
            file[key] = draw(rows, 63)
    assert [len(part) for part in prepare_table("bsds300", tmp_path)] == [9, 3, 2]


def test_bsds300_names_the_extra_that_it_needs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    place(tmp_path, "bsds300").write_bytes(b"HDF")
    with pytest.raises(TableError, match=r"needs h5py, got none; pip install 'bnaf\[hdf5\]'\.$"):
        prepare_table("bsds300", tmp_path)


def test_files_that_are_missing_or_something_else_are_told(tmp_path):
    with pytest.raises(SettingsError, match=r"must be one of power, gas, .* got 'iris'"):
        prepare_table("iris", tmp_path)
    with pytest.raises(
        TableError, match=r"power expects a file at .*data\.npy, got nothing; fetch"
    ):
        prepare_table("power", tmp_path)
    place(tmp_path, "power").write_text("no array")
    with pytest.raises(TableError, match="is not the public file of power"):
        prepare_table("power", tmp_path)


def test_every_table_of_the_suite_is_known():
    known = {entry.name: entry for entry in known_data()}
    assert all(known[name].files == files for name, files in SUITE_FILES.items())
