"""Runs that tests start as processes of their own.

Imports cost seconds and a fork costs none, so ``kill`` and ``processes`` load everything once and
then fork for each run. Nothing is computed before the fork, so no thread is lost in it.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

import bnaf
import bnaf.training._run.job
from bnaf.tables.streams import ParquetStream
from bnaf.training import Batch, BatchSource
from bnaf.training._run.checkpoints import read_checkpoint

STEPS = 400


def make_flow(dtype: torch.dtype = torch.float32) -> bnaf.BNAF:
    torch.manual_seed(3)
    return bnaf.BNAF(2, transforms=2, hidden_layers=1, width=4).to(dtype)


def make_rows(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rows = torch.randn(count, 2, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return torch.stack([rows[:, 0], rows[:, 0].square() + 0.3 * rows[:, 1]], 1)


def resumable(folder: Path, schedule: str) -> None:
    """Run to the end, or until something kills it, and write down what came out."""
    torch.set_num_threads(1)
    plateau = {"plateau_patience": 1, "plateau_cooldown": 0, "reload_best": True}
    settings = bnaf.TrainingSettings(
        steps=STEPS,
        batch=64,
        evaluate_every=7,
        schedule="plateau" if schedule == "plateau" else "cosine",
        **(plateau if schedule == "plateau" else {}),
    )
    flow, rows = make_flow(), make_rows(1500)
    source = rows[:1300]
    if schedule == "stream":
        place = folder.parent / "rows.parquet"
        how = {"buffer_rows": 200, "dequantise": ["b"], "warn": False}
        source = ParquetStream(place, 64, **how)
    record = bnaf.fit(
        flow,
        source,
        valid=rows[1300:],
        settings=settings,
        checkpoint=folder / "run.safetensors",
        checkpoint_every=0.01,
        progress=False,
    )
    if record.reason != "interrupted":
        history = [(e.step, e.loss, e.valid, e.learning_rate) for e in record.history]
        result = {
            "weights": [weight.tolist() for weight in flow.parameters()],
            "history": history,
            "best_step": record.best_step,
        }
        (folder / "result.json").write_text(json.dumps(result))


def write_rows(path: Path) -> None:
    rows = make_rows(1300, torch.float64).numpy().round(1)
    table = pa.table({"a": rows[:, 0], "b": rows[:, 1]})
    pq.write_table(table, path, row_group_size=150)


def fork(function, *arguments) -> int:
    child = os.fork()
    if child:
        return child
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def kill(folder: Path, schedule: str, seed: int) -> None:
    """Run once in peace, and once more for each signal, killed at random moments and resumed."""
    if schedule == "stream":
        fork_and_wait(write_rows, folder / "rows.parquet")
    peace = folder / "peace"
    peace.mkdir()
    fork_and_wait(resumable, peace, schedule)
    whole = json.loads((peace / "result.json").read_text())
    tensors = read_checkpoint(peace / "run.safetensors").tensors
    chance = random.Random(seed)
    report = {}
    for name in ("SIGKILL", "SIGTERM", "SIGINT"):
        place = folder / name
        place.mkdir()
        kills, steps = 0, []
        while not (place / "result.json").exists():
            child = fork(resumable, place, schedule)
            time.sleep(chance.uniform(0.02, 0.4 + 0.1 * kills))  # later, on a slow machine
            midway = any(0 < step < STEPS for step in steps)
            if kills < 4 or (not midway and kills < 20):
                os.kill(child, getattr(signal, name))
                kills += 1
            os.waitpid(child, 0)
            if (place / "run.safetensors").exists():
                facts = read_checkpoint(place / "run.safetensors").facts
                steps.append(facts["state"]["step"])
        there = read_checkpoint(place / "run.safetensors").tensors
        report[name] = {
            "same result": json.loads((place / "result.json").read_text()) == whole,
            "same state": there.keys() == tensors.keys()
            and all(torch.equal(there[key], tensors[key]) for key in tensors),
            "killed midway": sum(0 < step < STEPS for step in steps),
        }
    print(json.dumps(report))


class OddStream(BatchSource):
    """Batches of which one has a missing value, in the share of the second process.

    Where there are two processes, the second or their parent gets a signal to end in the middle
    of the run.
    """

    def __init__(self, rows: torch.Tensor, stop_at: int | None, *, parent: bool) -> None:
        self.rows, self.stop_at, self.parent = rows, stop_at, parent

    def batches(self, epoch, *, rank=0, world_size=1, start=0):
        for number in range(start, self.batch_count()):
            rows = self.rows[32 * number : 32 * number + 32].clone()
            if number == 3:
                rows[1, 1] = torch.nan
            if number == self.stop_at and epoch == 1 and rank == world_size - 1:
                if self.parent:
                    os.kill(os.getppid(), signal.SIGINT)
                else:
                    os.kill(os.getpid(), signal.SIGTERM)
            yield Batch(rows[rank::world_size])

    def batch_count(self, world_size=1):
        return len(self.rows) // 32


def train_together(folder: Path, name: str, settings: dict, *, stop_at: int | None = None) -> None:
    """Fit in float64 and write down what came out."""
    flow, rows = make_flow(torch.float64), make_rows(399, torch.float64)
    source, weights, batch = rows[:300], None, None
    if name.startswith(("odd", "stopped", "pressed")):
        source = OddStream(rows[:300], stop_at, parent=name == "pressed")
    elif name.startswith("lone"):  # the last batch has a row for one process alone
        source = [rows[:40], rows[40:99], rows[99:100]]
    elif name.startswith("parquet"):
        source = ParquetStream(folder / "rows.parquet", 20, warn=False)
    else:
        weights, batch = 0.5 + rows[:300, 0].abs(), 33
    record = bnaf.fit(
        flow,
        source,
        valid=rows[300:],
        weights=weights,
        settings=bnaf.TrainingSettings(**{"steps": 50, "batch": batch, "clip": 0.5, **settings}),
        checkpoint=folder / f"{name}.ckpt",
        progress=False,
    )
    if int(os.environ.get("RANK", "0")) == 0:
        result = record.as_dict()
        result["weights"] = [x for weight in flow.parameters() for x in weight.flatten().tolist()]
        (folder / f"{name}.json").write_text(json.dumps(result))


def processes(folder: Path) -> None:
    """Fit with one process and with two: in peace, with odd rows, in time, stopped."""
    two = {"devices": 2, "strategy": "ddp_fork"}
    train_in_fork = partial(fork_and_wait, train_together, folder)
    train_in_fork("one", {})
    train_in_fork("two", two)
    train_in_fork("odd_one", {})
    train_in_fork("odd_two", two)
    train_in_fork("timed", two | {"steps": None, "seconds": 0.7})
    for name in ("stopped", "pressed"):
        fork_and_wait(partial(train_together, folder, name, two | {"steps": 400}, stop_at=2))
    train_in_fork("lone_one", {})
    train_in_fork("lone_two", two)
    fork_and_wait(write_rows, folder / "rows.parquet")
    train_in_fork("parquet", two)


def fork_and_wait(function, *arguments) -> None:
    os.waitpid(fork(function, *arguments), 0)


if __name__ == "__main__":
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "kill":
        kill(folder, sys.argv[3], int(sys.argv[4]))
    elif command == "processes":
        processes(folder)
    elif command == "elastic":
        train_together(folder, "elastic", {})
    elif command == "compiled":
        train_together(folder, "compiled", {"compile": True})
