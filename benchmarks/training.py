"""Time our training step beside a dense MLP of the same layer widths, the floor.

Before that the kernels are compiled once from nothing, and how long that took is reported.

python benchmarks/training.py --out results/training.json
"""

import os
from functools import partial
from tempfile import TemporaryDirectory
from time import perf_counter

from steps import build_bnaf, build_mlp, run

from bnaf.block import kernels

CONTESTANTS = {
    "mlp": build_mlp,
    "bnaf": partial(build_bnaf, mode="native"),
    "bnaf plain": build_bnaf,
    "bnaf compiled": partial(build_bnaf, mode="compiled"),
}

if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        os.environ["BNAF_CACHE"] = folder
        start = perf_counter()
        kernels.build()
        seconds = perf_counter() - start
        print(f"kernels compiled in {seconds:.0f} s")
        run(CONTESTANTS, compile_seconds=seconds)
