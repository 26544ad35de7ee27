"""A fit beside busy loops, with threads that spin and threads that sleep while they wait.

``python benchmarks/busy.py --out results/busy.json`` fits the same small table in fresh processes:
alone, beside one loop, and beside one on each core.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from shared import Record, write_report

FIT = """
import time, torch, bnaf
torch.manual_seed(0)
flow, rows = bnaf.BNAF(8), torch.randn(20_000, 8)
settings = bnaf.TrainingSettings(steps={steps}, evaluate_every=10**6)
bnaf.fit(flow, rows, settings=bnaf.TrainingSettings(steps=20), progress=False)
start = time.perf_counter()
bnaf.fit(flow, rows, settings=settings, progress=False)
print(time.perf_counter() - start)
"""
LOOP = [sys.executable, "-c", "while True: pass"]


def measure(policy: str, loops: int, steps: int) -> float:
    """Return the seconds that a fit takes beside so many loops."""
    busy = [subprocess.Popen(LOOP) for _ in range(loops)]
    try:
        environment = os.environ | {"OMP_WAIT_POLICY": policy}
        code = FIT.format(steps=steps)
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=True
        )
        return float(done.stdout)
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()


def main() -> None:
    """Measure, print and write the seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: list[Record] = []
    for loops in sorted({0, 1, os.cpu_count() or 1}):
        for policy in ("active", "passive"):
            seconds = measure(policy, loops, options.steps)
            found.append({"loops": loops, "waiting": policy, "seconds": seconds})
            print(f"{loops} loops, {policy} waiting: {seconds:.2f} s", flush=True)
    if options.out is not None:
        write_report(options.out, found)


if __name__ == "__main__":
    main()
