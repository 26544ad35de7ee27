"""The five tables of the literature, read from their public files and prepared as it does."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bnaf.datasets._loaders import (
    is_published_bsds300,
    load_bsds300,
    load_gas_frame,
    load_gas_text,
    load_hepmass,
    load_miniboone,
    load_miniboone_parts,
    load_patches,
    load_power,
    pool_place,
)
from bnaf.datasets._public import public_files
from bnaf.datasets.patches import Pools, read_pools
from bnaf.errors import SettingsError, TableError, TableWarning
from bnaf.tables.table import Table, TableSplit

AS_PUBLISHED = "rows as published"
REDRAWN = "patches redrawn from the images, validation from the last of those to train on"


class SuiteTable(NamedTuple):
    """One of the five tables, and how it stands to that of the literature.

    Args:
        parts: Rows to train on, to choose by and to test with.
        exact: Whether there are as many rows in each part as published, and none drawn anew.
        exactness: The same in words.
    """

    parts: TableSplit
    exact: bool
    exactness: str


class Edition(NamedTuple):
    """Files that a table can be read from.

    Args:
        files: Where they are within a folder of data.
        load: From files to the rows of each part, and the names of columns where they have some.
        redrawn: Whether the rows are drawn anew, so that they are others than published.
        is_published: Tells published rows from others in such files; none where there are none.
        differs: In what its rows differ from those published, in words, if they do.
    """

    files: tuple[str, ...]
    load: Callable[[Sequence[Path]], tuple[tuple[np.ndarray, ...], Sequence[str]]]
    redrawn: bool = False
    is_published: Callable[[Sequence[Path]], bool] | None = None
    differs: str | None = None


class Published(NamedTuple):
    """A table as the literature has it.

    Args:
        rows: Rows to train on, to choose by and to test with.
        columns: Columns that are modelled.
        editions: Files it is read from: the first that are there.
    """

    rows: tuple[int, int, int]
    columns: int
    editions: tuple[Edition, ...]


def read_suite(name: str, folder: str | Path) -> SuiteTable:
    """Return one of the five tables as Papamakarios et al. (2017) prepare it.

    What follows from the files is the same to the bit every time. Pickles are read without running
    what they hold.

    Args:
        name: "power", "gas", "hepmass", "miniboone" or "bsds300".
        folder: Where the public files are, those of one of the editions in :data:`SUITE`.

    Raises:
        TableError: If a file is missing or not what it should be.
        SettingsError: If there is no table of that name.
    """
    edition = find_edition(name, folder)
    published = SUITE[name]
    with public_files(name, folder, edition.files) as files:
        parts, columns = edition.load(files)
        _check(parts, published.columns)
        stands_in = edition.is_published is not None and not edition.is_published(files)
    names = tuple(columns or [f"x{index}" for index in range(published.columns)])
    split = TableSplit(*(Table(torch.from_numpy(np.array(rows)), names) for rows in parts))
    rows = tuple(len(part) for part in parts)
    if edition.redrawn:
        return SuiteTable(split, False, f"{REDRAWN}, {sum(rows):,} rows")
    total = sum(published.rows)
    if edition.differs is not None:
        return SuiteTable(split, False, f"{sum(rows):,} rows {edition.differs}")
    if stands_in:
        unknown = f"{sum(rows):,} rows of unknown origin, where the literature has {total:,}"
        return SuiteTable(split, False, unknown)
    if rows == published.rows:
        return SuiteTable(split, True, AS_PUBLISHED)
    return SuiteTable(split, False, f"{sum(rows):,} rows of {total:,} in the literature")


def prepare_table(name: str, folder: str | Path) -> TableSplit:
    """Return the parts of one of the five tables, with a warning where they are not as published.

    Args:
        name: As in :func:`read_suite`.
        folder: As there.

    Raises:
        TableError: If a file is missing or not what it should be.
        SettingsError: If there is no table of that name.
    """
    parts, exact, exactness = read_suite(name, folder)
    if not exact:
        warnings.warn(
            TableWarning(
                f"{name} is not the table of the literature here ({exactness}); compare models "
                "with each other, not with published numbers."
            ),
            stacklevel=2,
        )
    return parts


def find_edition(name: str, folder: str | Path) -> Edition:
    """Return the edition of a table that is in a folder; the first where none is.

    Where there are several, files whose rows are others than published come last.

    Raises:
        SettingsError: If there is no table of that name.
    """
    if name not in SUITE:
        raise SettingsError(f"name must be one of {', '.join(SUITE)}, got {name!r}.")
    there = _present(name, folder)
    if len(there) < 2:
        return there[0] if there else SUITE[name].editions[0]
    for one in there:
        files = [Path(folder) / file for file in one.files]
        if one.is_published is None or one.is_published(files):
            return one
    return there[0]


def _present(name: str, folder: str | Path) -> list[Edition]:
    """Return the editions of a table whose files are in a folder."""
    return [
        one
        for one in SUITE[name].editions
        if all((Path(folder) / file).exists() for file in one.files)
    ]


def patch_pools(folder: str | Path) -> Pools:
    """Return the images that patches of BSDS300 are drawn from.

    Raises:
        TableError: If they are not there, or not what they should be.
    """
    drawn = [one for one in _present("bsds300", folder) if one.redrawn]
    if not drawn:
        files = " or ".join(one.files[0] for one in SUITE["bsds300"].editions if one.redrawn)
        raise TableError(
            f"Fresh patches of bsds300 are drawn from its images, expected at {files} in "
            f"{folder}, got none; fetch them from the source that bnaf data lists."
        )
    with public_files("bsds300", folder, drawn[0].files) as files_there:
        return read_pools(pool_place(files_there))


def _check(parts: Sequence[np.ndarray], columns: int) -> None:
    for rows in parts:
        if rows.ndim != 2 or rows.shape[1] != columns or not len(rows):
            raise ValueError(f"expected rows of {columns} columns, got shape {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError("expected finite numbers alone")


SUITE = {
    "power": Published(
        (1_659_917, 184_435, 204_928), 6, (Edition(("power/data.npy",), load_power),)
    ),
    "gas": Published(
        (852_174, 94_685, 105_206),
        8,
        (
            Edition(("gas/ethylene_CO.pickle",), load_gas_frame),
            Edition(
                ("gas/ethylene_CO.txt",),
                load_gas_text,
                differs="in order of time, of which the literature has about a quarter, shuffled",
            ),
        ),
    ),
    "hepmass": Published(
        (315_123, 35_013, 174_987),
        21,
        (Edition(("hepmass/1000_train.csv", "hepmass/1000_test.csv"), load_hepmass),),
    ),
    "miniboone": Published(
        (29_556, 3_284, 3_648),
        43,
        (
            Edition(("miniboone/data.npy",), load_miniboone),
            Edition(
                tuple(f"miniboone_partial/{part}.npy" for part in ("train", "valid", "test")),
                load_miniboone_parts,
            ),
        ),
    ),
    "bsds300": Published(
        (1_000_000, 50_000, 250_000),
        63,
        (
            Edition(("BSDS300/BSDS300.hdf5",), load_bsds300, is_published=is_published_bsds300),
            Edition(("BSDS300/images/train", "BSDS300/images/test"), load_patches, redrawn=True),
            Edition(("BSDS300/bsds300_images.npz",), load_patches, redrawn=True),
        ),
    ),
}
"""The tables by name: sizes in the literature, and the files they are read from."""
