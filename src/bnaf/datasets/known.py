"""Data sets that this library knows by name, and where each comes from."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bnaf.datasets.energies import ENERGIES
from bnaf.datasets.images import IMAGE_FILES, prepare_images
from bnaf.datasets.suite import SUITE, prepare_table
from bnaf.datasets.toy import TOY_DATA
from bnaf.errors import Argument, SettingsError
from bnaf.tables.table import Table, TableSplit

TABLES = "the preprocessed tables of Papamakarios et al. (2017): zenodo.org/records/1161203"


class KnownData(NamedTuple):
    """One data set.

    Args:
        name: What it is called.
        kind: "table", "images", "toy" or "energy".
        rows: Number of rows as published, all parts together; none where they are drawn.
        columns: Number of columns as they are modelled.
        source: Where it comes from.
        files: What it is read from, within a folder of data; none where it needs none.
        others: Other files that do as well, of rows other than published.
    """

    name: str
    kind: str
    rows: int | None
    columns: int
    source: str
    files: tuple[str, ...] = ()
    others: tuple[tuple[str, ...], ...] = ()

    def found(self, folder: Path | None) -> bool:
        """Return whether all of its files are in a folder, if it needs any."""
        return not self.missing(folder)

    def stand_in(self, folder: Path) -> tuple[str, ...]:
        """Return the other files that a folder has in place of those that were published."""
        there = [
            files
            for files in (self.files, *self.others)
            if all((folder / file).exists() for file in files)
        ]
        return there[0] if there and there[0] != self.files else ()

    def missing(self, folder: Path | None) -> tuple[str, ...]:
        """Return the files that a folder lacks; none where it has others that do as well."""
        lacks = [
            tuple(file for file in files if folder is None or not (folder / file).exists())
            for files in (self.files, *self.others)
        ]
        return () if () in lacks else lacks[0]


_TABLES = tuple(
    KnownData(
        name,
        "table",
        sum(SUITE[name].rows),
        SUITE[name].columns,
        f"{source}; {TABLES}",
        *(SUITE[name].editions[0].files, tuple(one.files for one in SUITE[name].editions[1:])),
    )
    for name, source in (
        ("power", "UCI household power consumption"),
        ("gas", "UCI gas sensors, dynamic mixtures, whose ethylene_CO.txt stands in"),
        ("hepmass", "UCI HEPMASS"),
        ("miniboone", "UCI MiniBooNE"),
        ("bsds300", "patches of the Berkeley images, or BSDS300-images.tgz to draw them from"),
    )
)
_BUNDLED = tuple(
    KnownData(name, "table", rows, columns, f"comes with scikit-learn: sklearn.datasets.{loader}")
    for name, rows, columns, loader in (
        ("iris", 150, 4, "load_iris"),
        ("wine", 178, 13, "load_wine"),
        ("breast_cancer", 569, 30, "load_breast_cancer"),
        ("diabetes", 442, 10, "load_diabetes"),
        ("digits", 1_797, 64, "load_digits"),
        ("linnerud", 20, 6, "load_linnerud"),
    )
)
_IMAGES = tuple(
    KnownData(name, "images", rows, columns, source, IMAGE_FILES[name])
    for name, rows, columns, source in (
        ("mnist", 70_000, 784, "binary MNIST of Larochelle and Murray (2011)"),
        ("omniglot", 32_415, 784, "chardata.mat of Burda et al. (2016)"),
        ("freyfaces", 1_965, 560, "Frey Faces of S. Roweis"),
        ("caltech", 8_671, 784, "Caltech 101 Silhouettes of Marlin et al. (2010)"),
    )
)


def known_data() -> tuple[KnownData, ...]:
    """Return all data sets that are known by name.

    Example:
        >>> [known.name for known in known_data() if known.kind == "energy"]
        ['u1', 'u2', 'u3', 'u4']
    """
    toys = (
        KnownData(name, "toy", None, 2, f"drawn: bnaf.datasets.toy.toy_named({name!r})")
        for name in TOY_DATA
    )
    energies = (
        KnownData(
            name,
            "energy",
            None,
            2,
            f"Rezende and Mohamed (2015): bnaf.datasets.energies, {name!r}",
        )
        for name in ENERGIES
    )
    return (*_TABLES, *_BUNDLED, *_IMAGES, *toys, *energies)


def prepare_known(name: str, folder: str | Path | None = None) -> TableSplit:
    """Return a known table or image set, prepared to be modelled.

    The five tables of the literature and the images come in the parts it uses, tables that come
    with scikit-learn as they are.

    Args:
        name: Name of a table, or of images, of :func:`known_data`.
        folder: Folder of the public files, for those that are read from some.

    Raises:
        SettingsError: If no table has that name, or it needs a folder.
        TableError: If a file is missing or not what it should be.
    """
    tables = {known.name: known for known in (*_TABLES, *_BUNDLED, *_IMAGES)}
    if name not in tables:
        raise SettingsError(f"name must be that of a table ({', '.join(tables)}), got {name!r}.")
    known = tables[name]
    if not known.files:
        return TableSplit(_bundled(name))
    if folder is None:
        raise SettingsError(
            f"{name} is read from public files, {' and '.join(known.files)}, got no folder; "
            f"fetch them ({known.source}) and give ",
            Argument("folder"),
            ".",
        )
    return prepare_table(name, folder) if name in SUITE else prepare_images(name, folder)


def _bundled(name: str) -> Table:
    """Return a table that comes with scikit-learn; of linnerud, targets too."""
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    rows, names = bunch.data, [str(column) for column in bunch.feature_names]
    if name == "linnerud":
        rows, names = np.hstack([rows, bunch.target]), names + list(bunch.target_names)
    return Table(torch.from_numpy(np.asarray(rows, np.float64)), tuple(names))
