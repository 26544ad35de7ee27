"""Files that are whole or not there: what they replace, what they leave, who writes them."""

import os
import stat
import subprocess
import sys

import pytest

from bnaf import StorageError
from bnaf._files import atomic_file, check_place, sole_writer, stored_file

posix = pytest.mark.skipif(os.name != "posix", reason="modes, links and pipes of POSIX")


def write(path, content=b"new"):
    with stored_file(path) as file:
        file.write(content)


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    path.chmod(mode)
    write(path)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@posix
def test_nobody_else_may_read_what_will_replace_a_private_file(tmp_path):
    path = tmp_path / "private"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with atomic_file(path):
        modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {0o600}


@posix
def test_a_link_stays_one_and_the_file_behind_it_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["target"]


@posix
def test_what_is_no_regular_file_is_never_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(StorageError, match=r"cannot be written: it is a device, a pipe"):
            write(path)
        with pytest.raises(StorageError, match=r"expected a regular file"):
            check_place(path, overwrite=True)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_a_killed_run_left_unfinished_is_removed(tmp_path):
    left, others = tmp_path / ".run.0a1b2c3d.part", tmp_path / ".other.0a1b2c3d.part"
    for path in (left, others):
        path.write_bytes(b"half")
        os.utime(path, (0, 0))
    write(tmp_path / "run")
    assert {path.name for path in tmp_path.iterdir()} == {"run", others.name}


@posix
def test_what_another_is_still_writing_is_left_alone(tmp_path):
    with atomic_file(tmp_path / "run") as first:
        first.write(b"first")
        first.flush()
        (part,) = tmp_path.iterdir()
        os.utime(part, (0, 0))
        write(tmp_path / "run", b"second")
        assert part.exists()
    assert (tmp_path / "run").read_bytes() == b"first"


@posix
def test_a_second_writer_is_refused_and_the_next_is_not(tmp_path):
    path = tmp_path / "run"
    with (
        sole_writer(path),
        pytest.raises(StorageError, match=r"run is being written by another run; wait"),
        sole_writer(path),
    ):
        pass
    with sole_writer(path):
        pass
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_killed_writer_is_in_nobodys_way(tmp_path):
    path = tmp_path / "run"
    code = "import os, sys; from pathlib import Path; from bnaf._files import sole_writer\n"
    code += "with sole_writer(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -9
    with sole_writer(path):
        pass
