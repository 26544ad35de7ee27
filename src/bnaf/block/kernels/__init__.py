"""Compiled kernels: the same numbers as the torch code, in a fraction of the time.

The kernels are C++ beside this file. Nothing is compiled unasked: :func:`build`, or
``python -m bnaf.block.kernels``, compiles them once per machine and version of torch (under a
minute) and keeps the library in the user's cache, where every later process finds it. Without it,
on other devices, with more than four hidden layers, for second derivatives, and under
torch.compile and torch.func, the flow runs as plain torch. Large buffers are kept for the next
call, up to half a gigabyte in all. A library is loaded only from a folder that its user alone can
write to, and only if its digest is that of the one that was compiled.

The environment variable ``BNAF_NATIVE=0`` leaves a library that is there unused; ``BNAF_CACHE``
names another folder for it; ``BNAF_MARCH`` names the processor it is compiled for, as the
compiler calls it (``x86-64-v3``), in place of the one at hand; ``BNAF_CXXFLAGS`` adds flags.
"""

from bnaf.block.kernels.build import BuildError, available, build, library_path
from bnaf.block.kernels.functions import (
    disabled,
    invert,
    log_shares,
    normalise,
    propagate,
    score,
    score_shares,
    serve,
)

__all__ = [
    "BuildError",
    "available",
    "build",
    "disabled",
    "invert",
    "library_path",
    "log_shares",
    "normalise",
    "propagate",
    "score",
    "score_shares",
    "serve",
]
