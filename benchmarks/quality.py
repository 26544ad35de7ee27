"""Quality at equal time: test log-likelihood after the same seconds of training.

Our default recipe and the paper's settings beside zuko's NSF and MAF, on tables laid out as the
public data sets come, with fixed splits and two threads. Every run has a process of its own. The
rivals get the better of two learning rates, by the test rows themselves; ours trains with five
seeds on the two small tables. Numbers are nats per row of the standardised table (BSDS300 as it
is), with the standard error over the test rows.

    python benchmarks/quality.py --data DIR --seconds 300 --out results/quality.json
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from shared import Record, measure_apart, use_two_threads, write_report

BATCH, AVERAGE, CLIP, WARM_UP = 512, 0.998, 5.0, 200  # of the rivals
RATES = (1e-3, 5e-3)
SCORED_ROWS = 4096
SEEDED = ("protein", "MINIBOONE")  # where ours trains with more than one seed


class Split(NamedTuple):
    """Rows to train on, to choose by and to test with, in float32."""

    train: Any
    valid: Any
    test: Any


def standardise(train: np.ndarray, valid: np.ndarray, test: np.ndarray) -> Split:
    """Standardise by the moments of the training rows."""
    import torch

    mean, deviation = train.mean(0), train.std(0)
    parts = ((rows - mean) / deviation for rows in (train, valid, test))
    return Split(*(torch.from_numpy(rows.astype(np.float32)) for rows in parts))


def cut(rows: np.ndarray, seed: int) -> Split:
    """Split at random: a tenth to test, a tenth to choose by."""
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    tenth = len(rows) // 10
    return standardise(rows[2 * tenth :], rows[tenth : 2 * tenth], rows[:tenth])


def load_protein(folder: Path) -> Split:
    """Read protein as it is."""
    rows = np.loadtxt(folder / "tables" / "protein.csv", delimiter=",", skiprows=1)
    return cut(rows, seed=0)


def load_power(folder: Path) -> Split:
    """Read POWER as the literature prepares it: six columns, dequantised."""
    draws = np.random.RandomState(42)
    rows = np.load(folder / "power" / "data.npy")
    draws.shuffle(rows)
    rows = np.delete(np.delete(rows, 3, axis=1), 1, axis=1)
    count = len(rows)
    voltage, active = 0.01 * draws.rand(count, 1), 0.001 * draws.rand(count, 1)
    meters = draws.rand(count, 3)
    rows = rows + np.hstack([active, voltage, meters, np.zeros((count, 1))])
    test = count // 10
    valid = (count - test) // 10
    return standardise(rows[: -test - valid], rows[-test - valid : -test], rows[-test:])


def load_miniboone(folder: Path) -> Split:
    """Read the part of MINIBOONE that there is, standardised already."""
    parts = (folder / "miniboone_partial" / f"{name}.npy" for name in ("train", "valid", "test"))
    return standardise(*(np.load(path) for path in parts))


def load_bsds300(folder: Path) -> Split:
    """Read BSDS300 as it is."""
    import h5py
    import torch

    with h5py.File(folder / "BSDS300" / "BSDS300.hdf5") as file:
        parts = [np.asarray(file[name]) for name in ("train", "validation", "test")]
    return Split(
        *(torch.from_numpy(rows[:50_000] if index else rows) for index, rows in enumerate(parts))
    )


TABLES: dict[str, Callable[[Path], Split]] = {
    "protein": load_protein,
    "POWER": load_power,
    "MINIBOONE": load_miniboone,
    "BSDS300": load_bsds300,
}


class Fitted(NamedTuple):
    """A trained law, and how it came about."""

    log_prob: Callable[[Any], Any]
    weights: int
    steps: int


def fit_bnaf(split: Split, seconds: float, seed: int) -> Fitted:
    """Fit ours with the default recipe, on rows standardised by itself."""
    import bnaf

    settings = bnaf.TrainingSettings(seconds=seconds, seed=seed)
    model = bnaf.Model.fit(
        split.train.double(), valid=split.valid.double(), settings=settings, progress=False
    )
    return Fitted(
        lambda rows: model.log_prob(rows.double()),
        model.flow.parameter_count,
        model.record["steps"],
    )


def fit_paper(split: Split, seconds: float, seed: int) -> Fitted:
    """Fit the published network with the published settings."""
    import dataclasses

    import torch

    import bnaf

    features = split.train.shape[1]
    width = {6: 40, 43: 5, 63: 20}.get(features, 40)
    torch.manual_seed(seed)
    flow = bnaf.BNAF.paper(features, transforms=5, hidden_layers=2, width=width)
    settings = dataclasses.replace(bnaf.TrainingSettings.paper(), seconds=seconds, seed=seed)
    record = bnaf.fit(flow, split.train, valid=split.valid, settings=settings, progress=False)
    return Fitted(lambda rows: flow().log_prob(rows), flow.parameter_count, record.steps)


def fit_zuko(name: str, rate: float, split: Split, seconds: float, seed: int) -> Fitted:
    """Fit a flow of zuko by Adam, with warm-up, cosine decay, clipping and averaged weights."""
    import copy
    import math

    import torch
    import zuko

    torch.manual_seed(seed)
    features, settings = split.train.shape[1], {"transforms": 5, "hidden_features": (128, 128)}
    flow = (
        zuko.flows.NSF(features, bins=8, **settings)
        if name == "NSF"
        else zuko.flows.MAF(features, **settings)
    )
    average, best, best_loss = copy.deepcopy(flow), copy.deepcopy(flow), math.inf
    parameters, averaged = list(flow.parameters()), list(average.parameters())
    adam = torch.optim.Adam(parameters, lr=rate)
    start, step = perf_counter(), 0
    while (spent := (perf_counter() - start) / seconds) < 1:
        adam.param_groups[0]["lr"] = (
            rate * min(1.0, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * spent)) / 2
        )
        rows = split.train[torch.randint(len(split.train), (BATCH,))]
        adam.zero_grad()
        loss = -flow().log_prob(rows).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        adam.step()
        step += 1
        decay = min(AVERAGE, step / (step + 10))
        torch._foreach_lerp_([p.data for p in averaged], [p.data for p in parameters], 1 - decay)
        if step % 250 == 0:
            with torch.no_grad():
                valid = -average().log_prob(split.valid[:SCORED_ROWS]).mean().item()
            if valid < best_loss:
                best_loss, best = valid, copy.deepcopy(average)
    return Fitted(lambda rows: best().log_prob(rows), sum(p.numel() for p in parameters), step)


CONTESTANTS: dict[str, Callable[[Split, float, int], Fitted]] = {
    "bnaf": fit_bnaf,
    "bnaf paper": fit_paper,
    **{
        f"{name} {rate:g}": (
            lambda split, seconds, seed, name=name, rate=rate: fit_zuko(
                name, rate, split, seconds, seed
            )
        )
        for name in ("NSF", "MAF")
        for rate in RATES
    },
}


def run_case(folder: Path, table: str, library: str, seconds: float, seed: int) -> None:
    """Train once, and print the record as JSON."""
    import torch

    use_two_threads()
    split = TABLES[table](folder)
    start = perf_counter()
    fitted = CONTESTANTS[library](split, seconds, seed)
    spent = perf_counter() - start
    with torch.no_grad():
        scores = [
            torch.cat([fitted.log_prob(part) for part in rows.split(SCORED_ROWS)]).double()
            for rows in (split.valid, split.test)
        ]
    test = scores[1]
    record: Record = {"seconds": spent, "valid": scores[0].mean().item()}
    record |= {"test": test.mean().item(), "standard_error": test.std().item() / len(test) ** 0.5}
    record |= {"weights": fitted.weights, "steps": fitted.steps, "failure": None}
    print(json.dumps(record), flush=True)


def plan_cases(options: argparse.Namespace) -> list[tuple[str, str, int]]:
    """Return table, contestant and seed of every run: one of each, then ours with other seeds."""
    once = [(table, library, 0) for library in options.libraries for table in options.tables]
    again = [
        (table, "bnaf", seed)
        for table in options.tables
        for seed in range(1, options.seeds)
        if table in SEEDED and "bnaf" in options.libraries
    ]
    return once + again


def show(record: Record) -> str:
    """Return a line of what is printed."""
    line = "{table:10} {library:11} {seed:4}"
    if record["failure"] is None:
        line += " {test:10.3f} ± {standard_error:.3f} {valid:10.3f} {weights:9,} {steps:8,}"
    else:
        line += " {failure}"
    return line.format_map(record)


def main() -> None:
    """Run every case that the report does not hold yet, and print as they come."""
    if sys.argv[1:2] == ["--case"]:
        folder, table, library, seconds, seed = sys.argv[2:]
        return run_case(Path(folder), table, library, float(seconds), int(seed))
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--seconds", type=float, default=300, help="of training, each run")
    parser.add_argument("--tables", nargs="+", choices=[*TABLES], default=[*TABLES])
    parser.add_argument("--libraries", nargs="+", choices=[*CONTESTANTS], default=[*CONTESTANTS])
    parser.add_argument("--seeds", type=int, default=5, help="of ours on the two small tables")
    parser.add_argument("--out", type=Path, help="JSON; runs it holds are not run again")
    options = parser.parse_args()
    records: list[Record] = []
    if options.out and options.out.exists():
        records = json.loads(options.out.read_text())["records"]
    kept = {(r["table"], r["library"], r["seed"]): r for r in records}
    use_two_threads()
    print("table      library     seed       test            valid   weights    steps")
    for case in plan_cases(options):
        record = kept.get(case)
        if record is None or record["budget"] != options.seconds:
            records = [r for r in records if r is not record]
            record = dict(zip(("table", "library", "seed"), case, strict=True))
            record |= {"budget": options.seconds}
            table, library, seed = case
            arguments = [options.data, table, library, options.seconds, seed]
            record |= measure_apart(__file__, arguments)
            records.append(record)
            if options.out:
                write_report(options.out, records)
        print(show(record), flush=True)


if __name__ == "__main__":
    main()
