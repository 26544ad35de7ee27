"""How the cost of a row grows with features and width, and the peak memory of a training step.

Costs are of the default flow with one transform and two hidden layers: a training step at batch
200, `log_prob` without gradients and `sample` of 2,000 rows. Memory is what a process holds at its
peak above what it held before the model was built, in processes of their own, for the networks of
the paper beside the dense MLP.

    python benchmarks/growth.py --out results/growth.json
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from shared import NETWORKS, Network, Record, draw_rows, use_two_threads, write_report
from steps import build_bnaf, build_mlp, torch_step

SCORED = 2_000  # rows of log_prob and of sample
FEATURES = [Network(features, 10, 2, 1) for features in (2, 4, 8, 16, 32, 64, 128, 256)]
WIDTHS = [Network(8, width, 2, 1) for width in (5, 10, 20, 40, 80, 160)]


def time_best(call: Callable[[], Any], seconds: float) -> float:
    """Return the least seconds of a call, over a while and at least three calls."""
    call()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def measure_costs(network: Network, seconds: float) -> Record:
    """Return microseconds per row of a step, of scoring and of sampling."""
    import torch

    from bnaf import BNAF
    from bnaf.block import kernels

    kernels.build()
    flow = BNAF(
        network.features,
        transforms=network.transforms,
        hidden_layers=network.hidden_layers,
        width=network.width,
    )
    batch = torch.from_numpy(draw_rows(200, network.features))
    rows = torch.from_numpy(draw_rows(SCORED, network.features))
    step = torch_step(lambda: -flow().log_prob(batch).mean(), flow.parameters())
    record: Record = {"features": network.features, "width": network.width}
    record["step"] = 1e6 * time_best(step, seconds) / len(batch)
    with torch.no_grad():
        law = flow()
        record["log_prob"] = 1e6 * time_best(lambda: law.log_prob(rows), seconds) / SCORED
        record["sample"] = 1e6 * time_best(lambda: law.sample((SCORED,)), seconds) / SCORED
    return record


def peak_memory(library: str, name: str, batch: int) -> None:
    """Print the megabytes that steps add to the peak of this process."""
    import psutil

    use_two_threads()
    network = NETWORKS[name]
    small = Network(2, 2, 1, 1)  # what both libraries load and allocate once
    build_mlp(small, 2)()
    build_bnaf(small, 2)()
    build_bnaf(small, 2, mode="native")()
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    step = (
        build_mlp(network, batch)
        if library == "mlp"
        else build_bnaf(network, batch, mode=library.removeprefix("bnaf "))
    )
    for _ in range(3):
        step()
    status = Path("/proc/self/status").read_text()
    peak = 1024 * int(status.split("VmHWM:")[1].split()[0])
    print((peak - before) / 2**20)


def run_memory(name: str, batch: int) -> Record:
    """Return the peaks of the MLP and of ours, each in a process of its own."""
    record: Record = {"network": name, "batch": batch}
    for library in ("mlp", "bnaf native", "bnaf plain"):
        command = [sys.executable, __file__, "--memory", library, name, str(batch)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        record[library] = float(done.stdout)
    return record


def main() -> None:
    """Measure all of it, printing as it goes and rewriting the report."""
    if sys.argv[1:2] == ["--memory"]:
        return peak_memory(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0, help="of each cost")
    parser.add_argument("--out", type=Path, required=True, help="JSON, rewritten as it grows")
    options = parser.parse_args()
    use_two_threads()
    records: list[Record] = []
    print("features width   step  log_prob  sample   (microseconds per row)")
    for network in FEATURES + WIDTHS:
        records.append(measure_costs(network, options.seconds))
        line = "{features:8} {width:5} {step:6.1f} {log_prob:9.2f} {sample:7.2f}"
        print(line.format_map(records[-1]), flush=True)
        write_report(options.out, records)
    print("network    batch      mlp    bnaf   plain   (megabytes at the peak)")
    for name in NETWORKS:
        for batch in (200, 2000):
            records.append(run_memory(name, batch))
            line = "{network:10} {batch:5} {mlp:8.1f} {bnaf native:7.1f} {bnaf plain:7.1f}"
            print(line.format_map(records[-1]), flush=True)
            write_report(options.out, records)


if __name__ == "__main__":
    main()
