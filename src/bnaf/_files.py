"""Files that are either whole or not there."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from bnaf.errors import Argument, BnafError, StorageError


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
    part = _beside(path)
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


def _beside(path: Path) -> Path:
    """Return a name of its own for a file that is not finished."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def sync_folder(folder: Path) -> None:
    """Wait until a folder's new entries are on the disk, where it can be opened."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def check_place(path: Path, *, overwrite: bool, make_folder: bool = False) -> None:
    """Check, before the work is done, that its result can be written.

    Args:
        path: Where the file will be.
        overwrite: Whether it may replace one that exists.
        make_folder: Whether to make its folder.

    Raises:
        StorageError: If the file exists and may not be replaced, or cannot be written.
    """
    if path.is_dir():
        raise StorageError(f"{path} is a folder, expected a file; add a name to it.")
    if path.exists() and not overwrite:
        raise _exists(path, StorageError)
    if not make_folder and not path.parent.is_dir():
        raise StorageError(f"{path} cannot be written: its folder does not exist; make it first.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        trial = _beside(path)
        trial.open("xb").close()
        trial.unlink()
    except OSError as reason:
        raise StorageError(f"{path} cannot be written: {reason}; check its folder.") from None


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
        raise _exists(path, error) from None
    except OSError as reason:
        raise error(f"{path} cannot be written: {reason}; check its folder.") from None


def _exists(path: Path, error: type[BnafError]) -> BnafError:
    return error(
        f"{path} exists, expected a new file; give another name, or ",
        Argument("overwrite", True),
        ".",
    )
