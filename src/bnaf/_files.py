"""Files that are either whole or not there."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from bnaf.errors import BnafError, StorageError


@contextmanager
def atomic_file(path: Path, *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes its name only once it is written and on the disk.

    It is written beside its place under a name of its own, and renamed at the end. Whoever looks
    meanwhile, or after a crash, finds the file that was there before, or none.

    Args:
        path: Where the file will be.
        overwrite: Whether it may replace one that exists.

    Raises:
        FileExistsError: If it exists and may not be replaced.
    """
    if not overwrite and path.exists():
        raise FileExistsError(str(path))
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not overwrite and path.exists():  # another process may have been faster
            raise FileExistsError(str(path))
        part.replace(path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until a folder's new entries are on the disk, where it can be opened."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


@contextmanager
def stored_file(
    path: Path, *, overwrite: bool = True, error: type[BnafError] = StorageError
) -> Iterator[BinaryIO]:
    """Open an atomic file that tells a user what is in its way.

    Args:
        path: Where the file will be.
        overwrite: Whether it may replace one that exists.
        error: What to raise.

    Raises:
        StorageError: If it exists and may not be replaced, or cannot be written.
    """
    try:
        with atomic_file(path, overwrite=overwrite) as file:
            yield file
    except FileExistsError:
        raise error(
            f"{path} exists, expected a new file; give another name, or overwrite=True."
        ) from None
    except OSError as reason:
        raise error(f"{path} cannot be written: {reason}; check its folder.") from None
