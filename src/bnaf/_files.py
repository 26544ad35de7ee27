"""Files that are either whole or not there, and that one run at a time writes."""

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from bnaf.errors import Argument, BnafError, StorageError

try:
    import fcntl
except ImportError:  # no such locks on this system: files go without
    fcntl = None  # type: ignore[assignment]

ABANDONED = 10.0  # seconds after which an unfinished file that nobody writes is a leftover


@contextmanager
def atomic_file(path: Path, *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes its name only once it is written and on the disk.

    It is written beside its place under a name of its own, and renamed at the end. Whoever looks
    meanwhile, or after a crash, finds the file that was there before, or none. A link stays one:
    the file that it points to is written. One that is replaced hands on its mode and its owner.
    What runs that were killed left unfinished under this name is removed.

    Args:
        path: Where the file will be.
        overwrite: Whether it may replace one that exists.

    Raises:
        FileExistsError: If it exists and may not be replaced.
        OSError: If it cannot be written, or what exists is no regular file.
    """
    place = regular_place(path)
    if not overwrite and place.exists():
        raise FileExistsError(str(path))
    _remove_leftovers(place)
    part = _beside(place)
    try:
        with part.open("xb") as file:
            _lock(file.fileno())
            _inherit(place, file.fileno())  # before there is anything in it to be read
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not overwrite and place.exists():  # another process may have been faster
            raise FileExistsError(str(path))
        part.replace(place)
        sync_folder(place.parent)
    finally:
        part.unlink(missing_ok=True)


def regular_place(path: Path) -> Path:
    """Return where a file is: what a link points to, else the path itself.

    Raises:
        OSError: If something is there that is no regular file, such as a device.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        what = "a folder" if place.is_dir() else "a device, a pipe or a socket"
        raise OSError(f"it is {what}, expected a regular file")
    return place


def _beside(path: Path) -> Path:
    """Return a name of its own for a file that is not finished."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _inherit(place: Path, part: int) -> None:
    """Give an open file mode and owner of the one that it is going to replace."""
    if not place.exists():
        return
    before = place.stat()
    if hasattr(os, "fchown"):
        with suppress(OSError):
            os.fchown(part, before.st_uid, before.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(part, stat.S_IMODE(before.st_mode))


def _lock(file: int) -> bool:
    """Lock an open file, and tell whether nobody else has; a system without locks has none."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _remove_leftovers(place: Path) -> None:
    """Remove what runs that were killed left unfinished beside a file."""
    with suppress(OSError):
        for entry in list(os.scandir(place.parent)):
            if not (entry.name.startswith(f".{place.name}.") and entry.name.endswith(".part")):
                continue
            with suppress(OSError), Path(entry.path).open("rb") as file:
                old = time.time() - os.fstat(file.fileno()).st_mtime > ABANDONED
                if old and _lock(file.fileno()):
                    Path(entry.path).unlink()


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Be the only one to write a file, for as long as this lasts or the process lives.

    Args:
        path: The file, which need not exist.

    Raises:
        StorageError: If another run is writing it.
    """
    lock = regular_place(path)
    lock = lock.with_name(f".{lock.name}.lock")
    file = _open_lock(lock)
    if file is None:
        raise StorageError(
            f"{path} is being written by another run; wait for its end, or give another file."
        )
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        os.close(file)


def _open_lock(lock: Path) -> int | None:
    """Return a lock file that is open and ours, or none if it is another's."""
    while True:
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        if not _lock(file):
            os.close(file)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), lock.stat()):
                return file
        os.close(file)  # whoever had it has removed it meanwhile: make it anew


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
        trial = _beside(regular_place(path))
        trial.open("xb").close()
        trial.unlink()
    except OSError as reason:
        raise _unwritable(path, reason, StorageError) from None


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
        raise _unwritable(path, reason, error) from None


def _exists(path: Path, error: type[BnafError]) -> BnafError:
    return error(
        f"{path} exists, expected a new file; give another name, or ",
        Argument("overwrite", True),
        ".",
    )


def _unwritable(path: Path, reason: OSError, error: type[BnafError]) -> BnafError:
    return error(f"{path} cannot be written: {reason}; check its folder.")
