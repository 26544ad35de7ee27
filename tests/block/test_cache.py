"""The cache of compiled libraries: nothing is run that others may have put there."""

import os
import stat
import subprocess
import sys

import pytest

from bnaf.block.kernels import _cache

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")


@pytest.fixture
def library(tmp_path):
    """A library in a folder of its own, kept as the compiler's are."""
    folder = tmp_path / "cache"
    assert _cache.make_folder(folder) is None
    unfinished = folder / "unfinished"
    unfinished.write_bytes(b"machine code")
    _cache.keep(unfinished, folder / "kernels-1.so")
    return folder / "kernels-1.so"


def test_a_library_that_was_kept_is_trusted(library):
    assert _cache.distrust(library) is None


def test_folder_and_library_are_the_users_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        folder = tmp_path / "a" / "b" / "cache"
        _cache.make_folder(folder)
        (folder / "unfinished").write_bytes(b"machine code")
        _cache.keep(folder / "unfinished", folder / "kernels-1.so")
    finally:
        os.umask(before)
    for path in (folder, *folder.iterdir()):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077
    for parent in (folder.parent, folder.parent.parent):
        assert not stat.S_IMODE(parent.stat().st_mode) & 0o022


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o702])
def test_what_others_may_write_is_not_trusted(library, mode):
    library.chmod(mode)
    assert f"others may write to {library}" == _cache.distrust(library)
    library.chmod(0o600)
    library.parent.chmod(mode)
    assert f"others may write to {library.parent}" == _cache.distrust(library)
    assert "others may write to" in _cache.make_folder(library.parent)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_what_belongs_to_another_user_is_not_trusted(library):
    os.chown(library, 12345, 12345)
    assert f"{library} belongs to another user" == _cache.distrust(library)


def test_a_truncated_or_altered_library_is_not_trusted(library):
    for content in (b"machine", b"machine c0de", b""):
        library.write_bytes(content)
        assert "its digest is not that of the library" in _cache.distrust(library)
    library.with_suffix(".sha256").unlink()
    assert "kernels-1.sha256, which tells its digest, is not there" in _cache.distrust(library)


def test_a_link_is_not_trusted(library):
    elsewhere = library.with_name("elsewhere")
    library.rename(elsewhere)
    library.symlink_to(elsewhere)
    assert _cache.distrust(library) is not None


def test_a_process_tells_that_it_leaves_a_library_alone(tmp_path):
    code = (
        "from bnaf.block import kernels; path = kernels.library_path(); "
        "path.parent.mkdir(exist_ok=True); path.write_bytes(b'of somebody else'); "
        "print(kernels.available())"
    )
    environment = os.environ | {"BNAF_CACHE": str(tmp_path / "cache")}
    environment.pop("BNAF_NATIVE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
    assert "are not loaded, so bnaf runs as plain torch: kernels-" in done.stderr
