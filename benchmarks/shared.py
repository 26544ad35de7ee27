"""What all benchmarks share: the networks of the paper, the rows, and the report."""

import json
import os
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

THREADS = 2
PACKAGES = {
    "mlp": "torch",
    "pyro": "pyro-ppl",
    "bnaf plain": "bnaf",
    "bnaf compiled": "bnaf",
}  # other names

Record = dict[str, Any]


class Network(NamedTuple):
    """Sizes of a stack of flows."""

    features: int
    width: int
    hidden_layers: int
    transforms: int


NETWORKS = {
    "toy": Network(2, 50, 3, 1),
    "POWER": Network(6, 40, 2, 5),
    "GAS": Network(8, 40, 2, 5),
    "HEPMASS": Network(21, 20, 2, 5),
    "MINIBOONE": Network(43, 5, 2, 5),
    "BSDS300": Network(63, 20, 2, 5),
}


def draw_rows(rows: int, features: int) -> Any:
    """Return the same standard normal rows to every library, as a NumPy array."""
    import numpy as np

    return np.random.default_rng(0).standard_normal((rows, features), dtype=np.float32)


def make_mlp(network: Network) -> Any:
    """Return the floor: dense tanh MLPs of the same layer widths, one after another."""
    from torch import nn

    units = [1, *[network.width] * network.hidden_layers, 1]
    layers: list[nn.Module] = []
    for _ in range(network.transforms):
        for pair in pairwise(network.features * per_feature for per_feature in units):
            layers += [nn.Linear(*pair), nn.Tanh()]
        layers.pop()
    return nn.Sequential(*layers)


def use_two_threads() -> None:
    """Bind this process to two cores, which is what JAX obeys, and tell torch.

    Where it may use one core alone (under `taskset`), it has one thread.
    """
    import torch

    threads = THREADS
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))[:THREADS]
        os.sched_setaffinity(0, cores)
        threads = len(cores)
    torch.set_num_threads(threads)


def measure_apart(script: str, arguments: Iterable[Any]) -> Record:
    """Run a case of a script in a process of its own, and return the record that it prints."""
    case = [sys.executable, script, "--case", *map(str, arguments)]
    done = subprocess.run(case, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        failure = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        return {"failure": failure[0]}
    return json.loads(lines[-1])


def measure_missing(script: str, out: Path, cases: Iterable[Record], *more: Any) -> None:
    """Measure the cases that a report does not hold yet, each apart, and print as they come.

    Args:
        script: Which script's cases; their values are its arguments.
        out: The report.
        cases: What tells them apart, by name.
        more: Further arguments, which tell nothing apart.
    """
    records = read_records(out)
    for case in cases:
        if any(case.items() <= record.items() for record in records):
            continue
        found = measure_apart(script, [*case.values(), *more])
        records.append(case | found)
        write_report(out, records)
        said = found["failure"] or f"{found['valid']:.3f} nats, {found['steps']:,} steps"
        print(*(f"{name} {value}," for name, value in case.items()), said, flush=True)


def installed_version(library: str) -> str | None:
    """Return the version of a library, or None where it is not installed."""
    try:
        return version(PACKAGES.get(library, library))
    except PackageNotFoundError:
        return None


def explain(error: Exception) -> str:
    """Return the kind of an error and the first line of its message, below Equinox's traces."""
    kind = type(error).__name__
    return str(re.findall(rf"{kind}: .*", f"{kind}: {error}")[-1])


def write_report(path: Path, records: list[Record], **notes: float) -> None:
    """Write the records with the machine, the command and notes, whole or not at all."""
    import torch

    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", info.read_text() if info.exists() else "")
    machine: Record = {
        "cpu": model[1] if model else "unknown",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **{library: installed_version(library) for library in ("torch", "jax")},
    }
    report = {"command": shlex.join(sys.argv), "machine": machine, **notes, "records": records}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(report, indent=1) + "\n")
    unfinished.replace(path)


def read_records(path: Path) -> list[Record]:
    """Return the records of a report, none where there is no report yet."""
    records: list[Record] = json.loads(path.read_text())["records"] if path.exists() else []
    return records


def make_parser(libraries: Iterable[str], networks: Iterable[str], limit: float) -> ArgumentParser:
    """Return a parser of the options that both benchmarks share."""
    parser = ArgumentParser()
    parser.add_argument("--libraries", nargs="+", choices=[*libraries], default=[*libraries])
    parser.add_argument("--networks", nargs="+", choices=[*NETWORKS], default=[*networks])
    parser.add_argument("--seconds", type=float, default=limit, help="time limit of a case")
    parser.add_argument("--out", type=Path, required=True, help="JSON, rewritten after each case")
    return parser
