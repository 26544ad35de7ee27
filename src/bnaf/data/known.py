"""Data sets that this library knows by name, and where each comes from."""

from typing import NamedTuple

from bnaf.data.energies import ENERGIES
from bnaf.data.toy import TOY_DATA

TABLES = "the preprocessed tables of Papamakarios et al. (2017): zenodo.org/records/1161203"


class KnownData(NamedTuple):
    """One data set.

    Args:
        name: What it is called.
        kind: "table", "images", "toy" or "energy".
        rows: Number of rows, all parts together; none where they are drawn.
        columns: Number of columns as they are modelled.
        source: Where it comes from.
    """

    name: str
    kind: str
    rows: int | None
    columns: int
    source: str


_TABLES = (
    KnownData("power", "table", 2_049_280, 6, f"UCI household power consumption; {TABLES}"),
    KnownData("gas", "table", 1_052_065, 8, f"UCI gas sensors, dynamic mixtures; {TABLES}"),
    KnownData("hepmass", "table", 525_123, 21, f"UCI HEPMASS; {TABLES}"),
    KnownData("miniboone", "table", 36_488, 43, f"UCI MiniBooNE; {TABLES}"),
    KnownData("bsds300", "table", 1_300_000, 63, f"patches of the Berkeley images; {TABLES}"),
)
_BUNDLED = tuple(
    KnownData(name, "table", rows, columns, f"comes with scikit-learn: sklearn.datasets.{loader}")
    for name, rows, columns, loader in (
        ("iris", 150, 4, "load_iris"),
        ("wine", 178, 13, "load_wine"),
        ("breast_cancer", 569, 30, "load_breast_cancer"),
        ("diabetes", 442, 10, "load_diabetes"),
        ("digits", 1_797, 64, "load_digits"),
    )
)
_IMAGES = (
    KnownData("mnist", "images", 70_000, 784, "binary MNIST of Larochelle and Murray (2011)"),
    KnownData("omniglot", "images", 32_415, 784, "chardata.mat of Burda et al. (2016)"),
    KnownData("freyfaces", "images", 1_965, 560, "Frey Faces of S. Roweis"),
    KnownData("caltech", "images", 8_671, 784, "Caltech 101 Silhouettes of Marlin et al. (2010)"),
)


def known_data() -> tuple[KnownData, ...]:
    """Return all data sets that are known by name.

    Example:
        >>> [known.name for known in known_data() if known.kind == "energy"]
        ['u1', 'u2', 'u3', 'u4']
    """
    toys = (
        KnownData(name, "toy", None, 2, f"drawn: bnaf.data.toy.toy_named({name!r})")
        for name in TOY_DATA
    )
    energies = (
        KnownData(
            name, "energy", None, 2, f"Rezende and Mohamed (2015): bnaf.data.energies, {name!r}"
        )
        for name in ENERGIES
    )
    return (*_TABLES, *_BUNDLED, *_IMAGES, *toys, *energies)
