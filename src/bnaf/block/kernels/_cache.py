"""The folder of compiled libraries: what lies in it is run, so it must be the user's alone."""

import hashlib
import os
import stat
from pathlib import Path


def make_folder(folder: Path) -> str | None:
    """Make a folder that nobody else can write, and return why it cannot be used, if it cannot."""
    for parent in reversed(folder.parents):
        parent.mkdir(mode=0o755, exist_ok=True)  # each: of several at once, the last has the mode
    folder.mkdir(mode=0o700, exist_ok=True)
    return _shared(folder)


def keep(unfinished: Path, library: Path) -> None:
    """Give a library its place, and write down the digest that it is found again by."""
    digest = unfinished.with_name("digest")
    digest.write_text(_digest(unfinished))
    for part, place in ((unfinished, library), (digest, _digest_path(library))):
        part.chmod(0o600)
        part.replace(place)


def distrust(library: Path) -> str | None:
    """Return why a library must not be loaded; none where it is the user's, and whole."""
    reason = _shared(library.parent) or _shared(library)
    if reason is not None:
        return reason
    known = _digest_path(library)
    if not known.is_file():
        return f"{known.name}, which tells its digest, is not there"
    if known.read_text() != _digest(library):
        return "its digest is not that of the library that was compiled"
    return None


def _shared(path: Path) -> str | None:
    """Return what makes a file or folder one that others can write; none if they cannot."""
    if not hasattr(os, "geteuid"):
        return None
    facts = path.stat() if path.is_dir() else path.lstat()
    if facts.st_uid != os.geteuid():
        return f"{path} belongs to another user"
    if stat.S_IMODE(facts.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to {path}"
    if not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
        return f"{path} is no regular file"
    return None


def _digest_path(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()
