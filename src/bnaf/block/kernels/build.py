"""Compiling the kernels, once per machine, and finding them again."""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

import torch

from bnaf.block.kernels._cache import distrust, keep, make_folder
from bnaf.errors import BnafError

_SOURCE = Path(__file__).parent / "kernels.cpp"


def _flags() -> list[str]:
    """Return what the compiler is told; ``BNAF_MARCH`` names a processor other than this one."""
    march, extra = os.environ.get("BNAF_MARCH") or "native", os.environ.get("BNAF_CXXFLAGS", "")
    flags = f"-std=c++20 -O3 -march={march} -fno-math-errno -fno-trapping-math -fopenmp -fPIC"
    wide = " -mprefer-vector-width=512" * (platform.machine() == "x86_64")
    return [*f"{flags} -shared{wide}".split(), *shlex.split(extra)]


class BuildError(BnafError, RuntimeError):
    """The kernels could not be compiled."""


def library_path() -> Path:
    """Return where the library of this machine, torch and source is, or would be."""
    digest = hashlib.sha256()
    for part in (*_flags(), torch.__version__, platform.machine(), _processor()):
        digest.update(part.encode())
    for source in [*sorted(_SOURCE.parent.glob("*.h")), _SOURCE]:
        digest.update(source.read_bytes())
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bnaf"
    return Path(os.environ.get("BNAF_CACHE") or default) / f"kernels-{digest.hexdigest()[:16]}.so"


def build() -> Path:
    """Compile the kernels unless that was done before, and return the library.

    Raises:
        BuildError: If there is no C++ compiler, or it fails, or others may write to the folder.
    """
    target = library_path()
    shared = make_folder(target.parent)
    if shared is not None:
        raise BuildError(
            f"The kernels are kept in a folder that only their user may write to: {shared}; "
            "change its rights, or name another by BNAF_CACHE."
        )
    if target.exists() and distrust(target) is None:
        available.cache_clear()
        return target
    compiler = shlex.split(os.environ.get("CXX") or "")
    compiler = compiler or [name for name in ("g++", "clang++") if shutil.which(name)][:1]
    if not compiler:
        raise BuildError(
            "The kernels need a C++ compiler, and neither g++ nor clang++ was found; install one "
            "or set CXX. Without them bnaf runs as plain torch."
        )
    headers = Path(torch.__file__).parent / "include"
    libraries = headers.with_name("lib")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        unfinished = Path(folder) / target.name
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
        command = [*compiler, *_flags(), abi]
        command += [f"-I{headers}", f"-I{headers / 'torch/csrc/api/include'}", str(_SOURCE)]
        command += ["-o", str(unfinished), f"-L{libraries}", "-ltorch_cpu", "-lc10"]
        _run(command, f"{compiler[0]} could not compile the kernels")
        # in a process of its own: a library can be loaded only once
        load = f"import torch; torch.ops.load_library({str(unfinished)!r})"
        _run([sys.executable, "-c", load], "The compiled kernels cannot be loaded")
        keep(unfinished, target)
    available.cache_clear()
    return target


def _run(command: list[str], complaint: str) -> None:
    """Run a command, and raise a BuildError with the line that says why it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{complaint}: {error}") from None
    if done.returncode:
        lines = done.stderr.splitlines()
        telling = [line for line in lines if "rror:" in line] or lines[-1:] or ["no message"]
        raise BuildError(f"{complaint}: {telling[0]}")


@cache
def available() -> bool:
    """Tell whether the kernels are there and wanted, loading them the first time."""
    if os.environ.get("BNAF_NATIVE", "1") == "0":
        return False
    path = library_path()
    if not path.exists():
        return False
    reason = distrust(path)
    if reason is None:
        try:
            torch.ops.load_library(str(path))
        except OSError as error:
            reason = str(error)
    if reason is not None:
        warnings.warn(
            f"The compiled kernels at {path} are not loaded, so bnaf runs as plain torch: "
            f"{reason}. Run python -m bnaf.block.kernels, with a folder of your own as BNAF_CACHE "
            "if this one is not.",
            RuntimeWarning,
            stacklevel=2,
        )
    return reason is None


def _processor() -> str:
    """Return what the processor can do, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else [platform.processor()]
    return next((line for line in lines if line.startswith(("flags", "Features"))), lines[0])
