"""Patches of grey images, drawn as those of BSDS300 in the literature.

Zoran and Weiss (2011) and Uria et al. (2013) draw patches of 8 by 8 pixels at random from the
Berkeley images, spread each grey level over its interval, subtract the mean of the patch, and drop
the last pixel, which then follows from the others. Of the 200 images to train on, 20 are kept to
choose by; those to test with are the 100 others.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

SIDE = 8
LEVELS = 256
HELD_IMAGES = 20  # of those to train on, the last, that are kept to choose by
PATCH_COUNTS = (1_000_000, 50_000, 250_000)  # to train on, to choose by and to test with
CHUNK = 50_000
SUFFIXES = (".jpg", ".jpeg", ".png")


class Pool(NamedTuple):
    """Grey images of any sizes, each in the upper left corner of its place.

    Args:
        pixels: Grey levels, images by height by width.
        heights: Height of each image.
        widths: Width of each image.
    """

    pixels: np.ndarray
    heights: np.ndarray
    widths: np.ndarray

    @classmethod
    def of(cls, images: Sequence[np.ndarray]) -> "Pool":
        """Return the pool of some images.

        Raises:
            ValueError: If there are none, or one is smaller than a patch or not of 8 bits.
        """
        shapes = np.array([image.shape for image in images])
        if shapes.ndim != 2 or shapes.shape[1] != 2 or shapes.min() < SIDE:
            raise ValueError(f"expected grey images of at least {SIDE} by {SIDE} pixels")
        if any(image.dtype != np.uint8 for image in images):
            raise ValueError("expected images of 8 bits")
        pixels = np.zeros((len(images), *shapes.max(0)), np.uint8)
        for place, image in zip(pixels, images, strict=True):
            place[: image.shape[0], : image.shape[1]] = image
        return cls(pixels, shapes[:, 0], shapes[:, 1])

    def take(self, images: slice) -> "Pool":
        """Return some of the images."""
        return Pool(*(part[images] for part in self))

    def cut(self, places: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the patches at some places, ready to be modelled.

        Args:
            places: Image, row and column of each, as shares between 0 and 1.
            noise: Where within its interval each grey level lies, between 0 and 1.
        """
        image = (places[:, 0] * len(self.pixels)).astype(np.int64)
        top = (places[:, 1] * (self.heights[image] - SIDE + 1)).astype(np.int64)
        left = (places[:, 2] * (self.widths[image] - SIDE + 1)).astype(np.int64)
        down, across = np.divmod(np.arange(SIDE**2), SIDE)
        levels = self.pixels[image[:, None], top[:, None] + down, left[:, None] + across]
        rows: np.ndarray = (levels + noise) / LEVELS
        rows = rows - rows.mean(1, keepdims=True)
        return rows[:, :-1].astype(np.float32)

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Return fresh patches, as :class:`bnaf.training.FreshRows` asks for them."""
        places = torch.rand(count, 3, generator=generator, dtype=torch.float64)
        noise = torch.rand(count, SIDE**2, generator=generator, dtype=torch.float32)
        return torch.from_numpy(self.cut(places.numpy(), noise.numpy()))


class Pools(NamedTuple):
    """Images to train on, to choose by and to test with."""

    train: Pool
    valid: Pool
    test: Pool


def read_pools(path: Path) -> Pools:
    """Read images to train on and to test with, and keep some of the first to choose by.

    Args:
        path: An npz file of arrays ``train`` and ``test``, images by height by width; or a folder
            with folders of these names that hold image files, which are taken in the order of
            their names.

    Raises:
        ValueError: If it holds something else.
    """
    if path.is_dir():
        parts = [[_grey(file) for file in _image_files(path / name)] for name in ("train", "test")]
    else:
        with np.load(path, allow_pickle=False) as file:
            parts = [list(file[name]) for name in ("train", "test")]
    seen, test = (Pool.of(images) for images in parts)
    held = min(HELD_IMAGES, len(seen.pixels) // 2)
    if held == 0:
        raise ValueError("expected two images to train on at least")
    return Pools(seen.take(slice(None, -held)), seen.take(slice(-held, None)), test)


def draw_patches(pools: Pools, counts: Sequence[int] | None = None) -> list[np.ndarray]:
    """Return patches to train on, to choose by and to test with; the same every time.

    Args:
        pools: Where they are drawn from.
        counts: How many of each; those of the literature by default.
    """
    draws = np.random.RandomState(42)
    wanted = zip(pools, counts or PATCH_COUNTS, strict=True)
    return [_draw(pool, count, draws) for pool, count in wanted]


def _draw(pool: Pool, count: int, draws: np.random.RandomState) -> np.ndarray:
    sizes = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
    chunks = [pool.cut(draws.rand(size, 3), draws.rand(size, SIDE**2)) for size in sizes]
    return np.concatenate(chunks)


def _image_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)


def _grey(file: Path) -> Any:
    from PIL import Image

    with Image.open(file) as image:
        return np.asarray(image.convert("L"))
