"""Compiling the kernels, once per machine, and finding them again."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

from bnaf.errors import BnafError

_SOURCE = Path(__file__).parent / "kernels.cpp"
_FLAGS = (
    "-std=c++20 -O3 -march=native -fno-math-errno -fno-trapping-math -fopenmp -fPIC -shared"
    + " -mprefer-vector-width=512" * (platform.machine() == "x86_64")
).split()


class BuildError(BnafError, RuntimeError):
    """The kernels could not be compiled."""


def library_path() -> Path:
    """Return where the library of this machine, torch and source is, or would be."""
    digest = hashlib.sha256()
    for part in (*_FLAGS, torch.__version__, platform.machine(), _processor()):
        digest.update(part.encode())
    for source in [*sorted(_SOURCE.parent.glob("*.h")), _SOURCE]:
        digest.update(source.read_bytes())
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bnaf"
    return Path(os.environ.get("BNAF_CACHE") or default) / f"kernels-{digest.hexdigest()[:16]}.so"


def build() -> Path:
    """Compile the kernels unless that was done before, and return the library.

    Raises:
        BuildError: If there is no C++ compiler, or it fails.
    """
    target = library_path()
    if target.exists():
        return target
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise BuildError(
            "The kernels need a C++ compiler, and neither g++ nor clang++ was found; install one "
            "or set CXX. Without them bnaf runs as plain torch."
        )
    headers = Path(torch.__file__).parent / "include"
    libraries = headers.with_name("lib")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        unfinished = Path(folder) / target.name
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
        command = [compiler, *_FLAGS, abi]
        command += [f"-I{headers}", f"-I{headers / 'torch/csrc/api/include'}", str(_SOURCE)]
        command += ["-o", str(unfinished), f"-L{libraries}", "-ltorch_cpu", "-lc10"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line]
            reason = (lines or done.stderr.splitlines() or ["no message"])[0]
            raise BuildError(f"{compiler} could not compile the kernels: {reason}")
        try:
            ctypes.CDLL(str(unfinished))
        except OSError as error:
            raise BuildError(f"The compiled kernels cannot be loaded: {error}") from None
        unfinished.replace(target)
    available.cache_clear()
    return target


@cache
def available() -> bool:
    """Tell whether the kernels are there and wanted, loading them the first time."""
    if os.environ.get("BNAF_NATIVE", "1") == "0":
        return False
    path = library_path()
    if not path.exists():
        return False
    torch.ops.load_library(str(path))
    return True


def _processor() -> str:
    """Return what the processor can do, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else [platform.processor()]
    return next((line for line in lines if line.startswith(("flags", "Features"))), lines[0])
