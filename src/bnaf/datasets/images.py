"""The four image sets of the paper, read from their public files: one image per row."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bnaf.datasets._pickles import read_pickled_array
from bnaf.datasets._public import public_files
from bnaf.errors import SettingsError
from bnaf.tables.table import Table, TableSplit

SIDE = 28
OMNIGLOT_VALID = 1_345  # images of Omniglot, the last to train on, that Burda et al. choose by
FREY_PIXELS, FREY_HELD = 28 * 20, 200  # of a face; faces to choose by, and as many to test with
FREY_SEEDS = 123, 321, 231  # of the shuffles of the three runs of van den Berg et al. (2018)

Images = tuple[np.ndarray, ...]  # to train on, to choose by and to test with


def prepare_images(name: str, folder: str | Path, *, split: int = 0) -> TableSplit:
    """Return one of the four image sets, a row per image and a column per pixel, row by row.

    Args:
        name: "mnist", "omniglot", "freyfaces" or "caltech".
        folder: Where the public files are, each at the path of :data:`IMAGE_FILES`.
        split: Which of the three published splits of Frey Faces: 0, 1 or 2. Others have one.

    Raises:
        TableError: If a file is missing or not what it should be.
        SettingsError: If there are no images of that name, or no such split.
    """
    if name not in _LOADERS:
        raise SettingsError(f"name must be one of {', '.join(_LOADERS)}, got {name!r}.")
    splits = len(FREY_SEEDS) if name == "freyfaces" else 1
    if split not in range(splits):
        raise SettingsError(f"split must be below {splits} for {name}, got {split!r}.")
    with public_files(name, folder, IMAGE_FILES[name]) as files:
        parts = _LOADERS[name](files, split)
    pixels = parts[0].shape[1]
    names = tuple(f"x{index}" for index in range(pixels))
    types = (str(parts[0].dtype),) * pixels
    return TableSplit(
        *(Table(torch.from_numpy(part.astype(np.float64)), names, types) for part in parts)
    )


def _load_mnist(files: Sequence[Path], split: int) -> Images:
    """Read text files of zeros and ones."""
    return tuple(_bits(file) for file in files)


def _bits(file: Path) -> np.ndarray:
    text = np.frombuffer(file.read_bytes(), np.uint8)
    bits = text[text > ord(" ")] - np.uint8(ord("0"))
    if bits.max(initial=0) > 1:
        raise ValueError("expected zeros and ones")
    return bits.reshape(-1, SIDE * SIDE)


def _load_omniglot(files: Sequence[Path], split: int) -> Images:
    """Read grey images, stored column by column."""
    arrays = _matlab(files[0])
    seen, test = (_upright(arrays[key].T) for key in ("data", "testdata"))
    return seen[:-OMNIGLOT_VALID], seen[-OMNIGLOT_VALID:], test


def _load_caltech(files: Sequence[Path], split: int) -> Images:
    """Read silhouettes, stored column by column and with 0 for the object."""
    arrays = _matlab(files[0])
    return tuple(1 - _upright(arrays[f"{part}_data"]) for part in ("train", "val", "test"))


def _load_freyfaces(files: Sequence[Path], split: int) -> Images:
    """Shuffle grey faces, and hold the last out."""
    faces = read_pickled_array(files[0])
    shuffle = np.random.RandomState(FREY_SEEDS[split])
    faces = shuffle.permutation(faces.reshape(-1, FREY_PIXELS))
    return tuple(np.split(faces, [-2 * FREY_HELD, -FREY_HELD]))


def _matlab(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        arrays: dict[str, Any] = loadmat(file)
    except MatReadError as error:  # an Exception of its own, related to none
        raise ValueError(str(error)) from None
    return arrays


def _upright(images: np.ndarray) -> np.ndarray:
    """Return images that were stored by columns row by row."""
    return images.reshape(-1, SIDE, SIDE).transpose(0, 2, 1).reshape(-1, SIDE * SIDE)


_LOADERS: dict[str, Callable[[Sequence[Path], int], Images]] = {
    "mnist": _load_mnist,
    "omniglot": _load_omniglot,
    "freyfaces": _load_freyfaces,
    "caltech": _load_caltech,
}
IMAGE_FILES = {
    "mnist": tuple(
        f"MNIST_static/binarized_mnist_{part}.amat" for part in ("train", "valid", "test")
    ),
    "omniglot": ("OMNIGLOT/chardata.mat",),
    "freyfaces": ("Freyfaces/freyfaces.pkl",),
    "caltech": ("Caltech101Silhouettes/caltech101_silhouettes_28_split1.mat",),
}
"""Files of each image set, within a folder of data."""
