"""The five tables of the literature, read from their public files and prepared as it does."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bnaf.datasets._public import public_files
from bnaf.errors import SettingsError, TableError
from bnaf.tables.table import Table, TableSplit

CORRELATION = 0.98  # above which a column of GAS is dropped for another
REPEATS = 5  # of its smallest value, above which a feature of HEPMASS is dropped
GAS_LABELS = ("Meth", "Eth", "Time")
POWER_COLUMNS = ("active_power", "voltage", "meter_1", "meter_2", "meter_3", "minute")


class _Parts(NamedTuple):
    """Rows to train on, to choose by and to test with."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


def prepare_table(name: str, folder: str | Path) -> TableSplit:
    """Return one of the five tables as Papamakarios et al. (2017) prepare it.

    Args:
        name: "power", "gas", "hepmass", "miniboone" or "bsds300".
        folder: Where the public files are, each at the path of :data:`SUITE_FILES`. That of GAS is
            a pickle, which runs code when it is read: take it from where you trust.

    Raises:
        TableError: If a file is missing or not what it should be.
        SettingsError: If there is no table of that name.
    """
    if name not in _LOADERS:
        raise SettingsError(f"name must be one of {', '.join(_LOADERS)}, got {name!r}.")
    with public_files(name, folder, SUITE_FILES[name]) as files:
        parts, columns = _LOADERS[name](files)
    names = columns or [f"x{index}" for index in range(parts.train.shape[1])]
    return TableSplit(*(Table(torch.from_numpy(np.array(rows)), tuple(names)) for rows in parts))


def _load_power(files: Sequence[Path]) -> tuple[_Parts, Sequence[str]]:
    """Shuffle, drop two columns, and spread the others over the cells of their grids."""
    draws = np.random.RandomState(42)
    rows = np.load(files[0], allow_pickle=False)
    draws.shuffle(rows)
    rows = np.delete(np.delete(rows, 3, axis=1), 1, axis=1)
    count = len(rows)
    voltage = 0.01 * draws.rand(count, 1)
    active_power = 0.001 * draws.rand(count, 1)
    meters = draws.rand(count, 3)
    rows = rows + np.hstack([active_power, voltage, meters, np.zeros((count, 1))])
    return _standardise_jointly(_cut(rows)), POWER_COLUMNS


def _load_gas(files: Sequence[Path]) -> tuple[_Parts, Sequence[str]]:
    """Drop labels, then the first column that nearly equals another, until there is none."""
    import pandas as pd

    frame: Any = pd.read_pickle(files[0]).drop(columns=list(GAS_LABELS))
    rows, names = frame.to_numpy(np.float64), [str(name) for name in frame.columns]
    while True:
        alike = (np.corrcoef(rows.T) > CORRELATION).sum(1) > 1
        if not alike.any():
            break
        first = int(alike.argmax())
        rows = np.delete(rows, first, axis=1)
        del names[first]
    return _cut((rows - rows.mean(0)) / rows.std(0, ddof=1)), names


def _load_hepmass(files: Sequence[Path]) -> tuple[_Parts, Sequence[str]]:
    """Keep signal rows, and features whose smallest value does not repeat."""
    train, test = (_signal_rows(file) for file in files)
    test = test[:, : train.shape[1]]  # its lines end with a column more
    mean, deviation = train.mean(0), train.std(0, ddof=1)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    kept = (train == train.min(0)).sum(0) <= REPEATS
    train, test = train[:, kept], test[:, kept]
    valid = len(train) // 10
    names = [f"f{index}" for index in np.flatnonzero(kept)]
    return _Parts(train[: len(train) - valid], train[len(train) - valid :], test), names


def _signal_rows(file: Path) -> np.ndarray:
    """Return the features of the rows of class 1."""
    from pyarrow import csv

    reading = csv.ReadOptions(skip_rows=1, autogenerate_column_names=True)
    table = csv.read_csv(file, read_options=reading)
    rows = np.stack([column.to_numpy().astype(np.float64) for column in table.columns], 1)
    return rows[rows[:, 0] == 1, 1:]


def _load_miniboone(files: Sequence[Path]) -> tuple[_Parts, Sequence[str]]:
    return _standardise_jointly(_cut(np.load(files[0], allow_pickle=False))), ()


def _load_bsds300(files: Sequence[Path]) -> tuple[_Parts, Sequence[str]]:
    try:
        import h5py  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise TableError(
            "bsds300 is an HDF5 file, which needs h5py, got none; pip install 'bnaf[hdf5]'."
        ) from None
    with h5py.File(files[0], "r") as file:
        return _Parts(*(np.asarray(file[key]) for key in ("train", "validation", "test"))), ()


def _cut(rows: np.ndarray) -> _Parts:
    """Cut the last tenth off to test with, and the last tenth of the rest to choose by."""
    test = len(rows) // 10
    valid = (len(rows) - test) // 10
    train = len(rows) - test - valid
    return _Parts(rows[:train], rows[train : train + valid], rows[train + valid :])


def _standardise_jointly(parts: _Parts) -> _Parts:
    """Standardise by the moments of all rows but those to test with."""
    seen = np.vstack([parts.train, parts.valid])
    mean, deviation = seen.mean(0), seen.std(0)
    return _Parts(*((rows - mean) / deviation for rows in parts))


_LOADERS: dict[str, Callable[[Sequence[Path]], tuple[_Parts, Sequence[str]]]] = {
    "power": _load_power,
    "gas": _load_gas,
    "hepmass": _load_hepmass,
    "miniboone": _load_miniboone,
    "bsds300": _load_bsds300,
}
SUITE_FILES = {
    "power": ("power/data.npy",),
    "gas": ("gas/ethylene_CO.pickle",),
    "hepmass": ("hepmass/1000_train.csv", "hepmass/1000_test.csv"),
    "miniboone": ("miniboone/data.npy",),
    "bsds300": ("BSDS300/BSDS300.hdf5",),
}
"""Files of each table, within a folder of data."""
