"""From the public files of the five tables to rows, as the literature prepares them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bnaf.datasets._pickles import read_pickled_frame
from bnaf.datasets.patches import CHUNK, PATCH_COUNTS, draw_patches, read_pools
from bnaf.errors import TableError

CORRELATION = 0.98  # above which a column of GAS is dropped for another
REPEATS = 5  # of its smallest value, above which a feature of HEPMASS is dropped
GAS_LABELS = ("Meth", "Eth", "Time")
GAS_TEXT = ("Time", "Meth", "Eth", *(f"sensor_{number}" for number in range(1, 17)))
POWER_COLUMNS = ("active_power", "voltage", "meter_1", "meter_2", "meter_3", "minute")
POWER_RAW, MINIBOONE_RAW = 8, 43  # columns of the files
PATCH_PARTS = ("train", "validation", "test")
PATCH_GAUSSIAN = (
    96.67  # nats of the published patches under a Gaussian: Papamakarios et al. (2017)
)


class Parts(NamedTuple):
    """Rows to train on, to choose by and to test with."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


def _array(file: Path, columns: int) -> np.ndarray:
    """Return the rows of an npy file."""
    rows: np.ndarray = np.load(file, allow_pickle=False)
    if rows.ndim != 2 or rows.shape[1] != columns or rows.dtype.kind not in "fiu":
        raise ValueError(f"expected {columns} columns of numbers, got shape {rows.shape}")
    return rows.astype(np.float64)


def load_power(files: Sequence[Path]) -> tuple[Parts, Sequence[str]]:
    """Shuffle, drop two columns, and spread the others over the cells of their grids."""
    draws = np.random.RandomState(42)
    rows = _array(files[0], POWER_RAW)
    rows = rows[draws.permutation(len(rows))]
    rows = np.delete(np.delete(rows, 3, axis=1), 1, axis=1)
    count = len(rows)
    voltage = 0.01 * draws.rand(count, 1)
    active_power = 0.001 * draws.rand(count, 1)
    meters = draws.rand(count, 3)
    rows = rows + np.hstack([active_power, voltage, meters, np.zeros((count, 1))])
    return _standardise_jointly(_cut(rows)), POWER_COLUMNS


def load_gas_frame(files: Sequence[Path]) -> tuple[Parts, Sequence[str]]:
    """Read a pickled frame."""
    return _prepare_gas(*read_pickled_frame(files[0]))


def load_gas_text(files: Sequence[Path]) -> tuple[Parts, Sequence[str]]:
    """Read the text of UCI: a line of names, then columns between blanks."""
    rows = np.loadtxt(files[0], skiprows=1, ndmin=2)
    if rows.shape[1] != len(GAS_TEXT):
        raise ValueError(f"expected {len(GAS_TEXT)} columns, got {rows.shape[1]}")
    return _prepare_gas(rows, list(GAS_TEXT))


def _prepare_gas(rows: np.ndarray, names: list[str]) -> tuple[Parts, Sequence[str]]:
    """Drop labels, then the first column that nearly equals another, until there is none."""
    missing = [label for label in GAS_LABELS if label not in names]
    if missing:
        raise ValueError(f"expected a column {missing[0]!r}, got {', '.join(names)}")
    kept = [index for index, name in enumerate(names) if name not in GAS_LABELS]
    rows, names = rows[:, kept], [names[index] for index in kept]
    correlations = np.atleast_2d(np.corrcoef(rows.T))
    kept = list(range(len(names)))
    while True:
        alike = (correlations[np.ix_(kept, kept)] > CORRELATION).sum(1) > 1
        if not alike.any():
            break
        del kept[int(alike.argmax())]
    rows = rows[:, kept]
    parts = _cut((rows - rows.mean(0)) / rows.std(0, ddof=1))
    return parts, [names[index] for index in kept]


def load_hepmass(files: Sequence[Path]) -> tuple[Parts, Sequence[str]]:
    """Keep signal rows, and features whose smallest value does not repeat."""
    train, test = (_signal_rows(file) for file in files)
    test = test[:, : train.shape[1]]  # its lines end with a column more
    mean, deviation = train.mean(0), train.std(0, ddof=1)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    kept = (train == train.min(0)).sum(0) <= REPEATS
    train, test = train[:, kept], test[:, kept]
    valid = len(train) // 10
    names = [f"f{index}" for index in np.flatnonzero(kept)]
    return Parts(train[: len(train) - valid], train[len(train) - valid :], test), names


def _signal_rows(file: Path) -> np.ndarray:
    """Return the features of the rows of class 1."""
    from pyarrow import csv

    reading = csv.ReadOptions(skip_rows=1, autogenerate_column_names=True)
    table = csv.read_csv(file, read_options=reading)
    rows = np.stack([column.to_numpy().astype(np.float64) for column in table.columns], 1)
    return rows[rows[:, 0] == 1, 1:]


def load_miniboone(files: Sequence[Path]) -> tuple[Parts, Sequence[str]]:
    """Cut rows in their order."""
    return _standardise_jointly(_cut(_array(files[0], MINIBOONE_RAW))), ()


def load_miniboone_parts(files: Sequence[Path]) -> tuple[Parts, Sequence[str]]:
    """Read parts that were cut and standardised beforehand."""
    return Parts(*(_array(file, MINIBOONE_RAW) for file in files)), ()


def load_bsds300(files: Sequence[Path]) -> tuple[Parts, Sequence[str]]:
    """Read patches that were drawn beforehand."""
    try:
        import h5py  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise TableError(
            "bsds300 is an HDF5 file, which needs h5py, got none; pip install 'bnaf[hdf5]'."
        ) from None
    with h5py.File(files[0], "r") as file:
        return Parts(*(np.asarray(file[key]) for key in PATCH_PARTS)), ()


def is_published_bsds300(files: Sequence[Path]) -> bool:
    """Tell the published patches from others, by their numbers and by what a Gaussian scores.

    The file says nothing of its origin, and patches that were drawn anew may be as many; but
    their score varies by tenths of a nat, and that of the published ones has two decimals.
    """
    try:
        import h5py

        with h5py.File(files[0], "r") as file:
            if tuple(len(file[key]) for key in PATCH_PARTS) != PATCH_COUNTS:
                return False
            score = score_gaussian(file["train"], file["test"])
    except (ImportError, OSError, KeyError, TypeError):
        return False
    return abs(score - PATCH_GAUSSIAN) < 0.006


def score_gaussian(train: Any, test: Any) -> float:
    r"""Return the mean log-likelihood of test rows under the Gaussian of training rows.

    .. math:: -\tfrac12 \bigl(\operatorname{tr} C^{-1} S + \log\det C + d \log 2 \pi \bigr)

    where :math:`S` has the mean products of test rows, as they deviate from the training mean.
    """
    mean, covariance = _moments(train)
    other, spread = _moments(test)
    gap = (other - mean)[:, None]
    ratio = np.linalg.solve(covariance, spread + gap * gap.T)
    log_det = np.linalg.slogdet(covariance).logabsdet
    return -0.5 * float(np.trace(ratio) + log_det + len(mean) * np.log(2 * np.pi))


def _moments(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of rows, a chunk of them in memory at a time."""
    places = range(0, len(rows), CHUNK)
    chunks = (np.asarray(rows[place : place + CHUNK], np.float64) for place in places)
    sums = [(chunk.sum(0), chunk.T @ chunk) for chunk in chunks]
    mean, products = (sum(part) / len(rows) for part in zip(*sums, strict=True))
    return mean, products - np.outer(mean, mean)


def load_patches(files: Sequence[Path]) -> tuple[Parts, Sequence[str]]:
    """Draw patches anew."""
    return Parts(*draw_patches(read_pools(pool_place(files)))), ()


def pool_place(files: Sequence[Path]) -> Path:
    """Return the folder of the folders of images, or the one file of all."""
    return files[0].parent if files[0].is_dir() else files[0]


def _cut(rows: np.ndarray) -> Parts:
    """Cut the last tenth off to test with, and the last tenth of the rest to choose by."""
    test = len(rows) // 10
    valid = (len(rows) - test) // 10
    train = len(rows) - test - valid
    return Parts(rows[:train], rows[train : train + valid], rows[train + valid :])


def _standardise_jointly(parts: Parts) -> Parts:
    """Standardise by the moments of all rows but those to test with."""
    seen = np.vstack([parts.train, parts.valid])
    mean, deviation = seen.mean(0), seen.std(0)
    return Parts(*((rows - mean) / deviation for rows in parts))
