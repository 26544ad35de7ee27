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
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

import bnaf
import bnaf.training._run.job
from bnaf.tables.frame_streams import FrameStream
from bnaf.tables.streams import ParquetStream
from bnaf.training import Batch, BatchSource
from bnaf.training._run.checkpoints import read_checkpoint
from bnaf.training.progress import Silence

STEPS = 400
KILLS, APART = 4, 60  # of a run, and the most steps that one waits for
SIGN = 2048  # bytes; a pipe holds some thirty of them
READY = b"!"  # from a fork that is whole: before that, Python loses what it is sent


def make_flow(dtype: torch.dtype = torch.float32) -> bnaf.BNAF:
    torch.manual_seed(3)
    return bnaf.BNAF(2, transforms=2, hidden_layers=1, width=4).to(dtype)


def make_rows(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rows = torch.randn(count, 2, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return torch.stack([rows[:, 0], rows[:, 0].square() + 0.3 * rows[:, 1]], 1)


class Signs(Silence):
    """Display that writes to a pipe after every step, and waits where nobody reads for long.

    A run is thus never far ahead of who is to kill it, however the machine shares its time out.
    """

    interval = 0.0

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def show(self, view) -> None:
        with suppress(BrokenPipeError):  # the kill is on its way
            os.write(self.pipe, bytes(SIGN))


def resumable(folder: Path, schedule: str, pipe: int | None = None) -> None:
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
        progress=False if pipe is None else Signs(pipe),
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
        steps = []
        for number in range(KILLS):
            reader, writer = os.pipe()
            child = fork(watched, reader, writer, place, schedule)
            os.close(writer)
            os.read(reader, len(READY))
            if number > 0:  # the first comes while all is still being set up
                await_steps(reader, chance.randrange(APART), place / "run.safetensors")
            time.sleep(chance.uniform(0, 0.02))
            os.kill(child, getattr(signal, name))
            os.close(reader)
            os.waitpid(child, 0)
            if (place / "run.safetensors").exists():
                facts = read_checkpoint(place / "run.safetensors").facts
                steps.append(facts["state"]["step"])
        fork_and_wait(resumable, place, schedule)
        there = read_checkpoint(place / "run.safetensors").tensors
        report[name] = {
            "same result": json.loads((place / "result.json").read_text()) == whole,
            "same state": there.keys() == tensors.keys()
            and all(torch.equal(there[key], tensors[key]) for key in tensors),
            "killed midway": sum(0 < step < STEPS for step in steps),
        }
    print(json.dumps(report))


def watched(reader: int, writer: int, place: Path, schedule: str) -> None:
    os.close(reader)
    os.write(writer, READY)
    resumable(place, schedule, writer)


def await_steps(reader: int, count: int, checkpoint: Path) -> None:
    """Wait until a run has taken so many steps and written its checkpoint once, or has ended."""
    read, more = 0, b"some"
    while more and (read < SIGN * count or not checkpoint.exists()):
        more = os.read(reader, SIGN)
        read += len(more)


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


def fit_kinds_together(folder: Path, name: str, settings: dict) -> None:
    """Fit a model to a stream of columns of every kind, and write down what came out."""
    path = folder / f"{name}.parquet"
    count = torch.arange(1500, dtype=torch.float64)
    texts = [["low", "middle", "high"][int(place)] for place in count % 3]
    pq.write_table(pa.table({"a": texts, "b": (count * 0.37).sin().numpy()}), path)
    model = bnaf.Model.fit(
        FrameStream(path, 50),
        flow_settings={"width": 3, "transforms": 1},
        settings=bnaf.TrainingSettings(steps=30, **settings),
        progress=False,
    )
    (folder / f"{name}.json").write_text(json.dumps(model.record))


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
        fork_and_wait(partial(train_together, folder, name, two | {"steps": 100_000}, stop_at=2))
    train_in_fork("lone_one", {})
    train_in_fork("lone_two", two)
    fork_and_wait(write_rows, folder / "rows.parquet")
    train_in_fork("parquet", two)
    fork_and_wait(fit_kinds_together, folder, "kinds", two)


def fork_and_wait(function, *arguments) -> None:
    os.waitpid(fork(function, *arguments), 0)


if __name__ == "__main__":
    # whoever starts tests in the background may have had Ctrl-C ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "kill":
        kill(folder, sys.argv[3], int(sys.argv[4]))
    elif command == "processes":
        processes(folder)
    elif command == "elastic":
        train_together(folder, "elastic", {})
    elif command == "compiled":
        train_together(folder, "compiled", {"compile": True})
