"""Images to train on, to choose by and to test with, as sources of batches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from bnaf._random import mix_seed
from bnaf.datasets.images import prepare_images
from bnaf.errors import TableError
from bnaf.studies.vae.plans import ImageSet
from bnaf.training import ArrayRows, Batch, BatchSource

BINARISED = 777  # seed of the bits of grey images to choose by and to test with, as published
EVALUATED = 200  # images at a time


class ImageParts(NamedTuple):
    """Images of one set, a row each, in float32."""

    train: Tensor
    valid: Tensor
    test: Tensor


def read_images(images: ImageSet, folder: Path, *, split: int = 0) -> ImageParts:
    """Read the public files of an image set.

    Grey images to choose by and to test with become bits once, those of van den Berg et al.
    (2018); those to train on stay grey.

    Args:
        images: The image set.
        folder: Folder of the public files.
        split: Which of its published splits.

    Raises:
        TableError: If a file is missing or not what it should be.
    """
    tables = prepare_images(images.data, folder, split=split)
    parts = ImageParts(*(table.rows.float() for table in tables if table is not None))
    if parts.train.shape[1] != images.kind.pixels:
        raise TableError(
            f"{images.name} expects images of {images.kind.pixels} pixels, got "
            f"{parts.train.shape[1]}."
        )
    if not images.rebinarised:
        return parts
    draws = np.random.RandomState(BINARISED)
    valid, test = (draws.binomial(1, part.numpy()) for part in (parts.valid, parts.test))
    return ImageParts(parts.train, torch.from_numpy(valid).float(), torch.from_numpy(test).float())


class Rebinarised(BatchSource):
    """Grey images that are binarised anew in every epoch.

    Args:
        rows: Where grey images come from.
        seed: Seed of the bits; epoch and number of the batch do the rest.
    """

    finite = True

    def __init__(self, rows: ArrayRows, *, seed: int = 0) -> None:
        self.rows, self.seed = rows, seed
        self.batch, self.count = rows.batch, rows.count

    def batches(
        self, epoch: int, *, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[Batch]:
        batches = self.rows.batches(epoch, rank=rank, world_size=world_size, start=start)
        for number, batch in enumerate(batches, start):
            seed = mix_seed(self.seed, epoch, number, rank)
            generator = Generator().manual_seed(seed)
            bits = torch.bernoulli(batch.rows.cpu(), generator=generator).to(batch.rows)
            yield Batch(bits, total=batch.total)

    def batch_count(self, world_size: int = 1) -> int:
        return self.rows.batch_count(world_size)

    def settle(self, like: Tensor, world_size: int) -> None:
        self.rows.settle(like, world_size)

    @property
    def identity(self) -> dict[str, Any]:
        """That of the grey images, and the seed of the bits."""
        return self.rows.identity | {"bits": self.seed}


def training_source(images: ImageSet, rows: Tensor, *, batch: int, seed: int) -> BatchSource:
    """Return where the batches of a run come from."""
    source = ArrayRows(rows, batch=batch, seed=seed)
    return Rebinarised(source, seed=seed) if images.rebinarised else source


def evaluation_source(rows: Tensor) -> BatchSource:
    """Return images that are evaluated some at a time, as convolutions want them."""
    return ArrayRows(rows, batch=EVALUATED, evaluated=EVALUATED)
