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
from pathlib import Path

import torch

import bnaf
import bnaf.training.job
from bnaf.training.checkpoints import read_checkpoint

STEPS = 120


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
        schedule=schedule,
        **(plateau if schedule == "plateau" else {}),
    )
    flow, rows = make_flow(), make_rows(1500)
    record = bnaf.fit(
        flow,
        rows[:1300],
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
    peace = folder / "peace"
    peace.mkdir()
    os.waitpid(fork(resumable, peace, schedule), 0)
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
            time.sleep(chance.uniform(0.02, 0.4))
            if kills < 4:
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


def train_together(folder: Path, name: str, settings: dict, rows: int = 300) -> None:
    """Fit in float64 and write down the weights."""
    flow = make_flow(torch.float64)
    table = make_rows(rows + 99, torch.float64)
    weights = 0.5 + make_rows(rows, torch.float64)[:, 0].abs()
    record = bnaf.fit(
        flow,
        table[:rows],
        valid=table[rows:],
        weights=weights,
        settings=bnaf.TrainingSettings(**{"steps": 50, "batch": 33, "clip": 0.5, **settings}),
        checkpoint=folder / f"{name}.ckpt",
        progress=False,
    )
    if int(os.environ.get("RANK", "0")) == 0:
        numbers = [weight for tensor in flow.parameters() for weight in tensor.flatten().tolist()]
        result = {"weights": numbers, "reason": record.reason, "steps": record.steps}
        result |= {"valid": record.valid, "skipped": record.skipped}
        (folder / f"{name}.json").write_text(json.dumps(result))


def processes(folder: Path) -> None:
    """Fit with one process and with two."""
    for name, settings in (("one", {}), ("two", {"devices": 2, "strategy": "ddp_fork"})):
        os.waitpid(fork(train_together, folder, name, settings), 0)


if __name__ == "__main__":
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "kill":
        kill(folder, sys.argv[3], int(sys.argv[4]))
    elif command == "processes":
        processes(folder)
    elif command == "elastic":
        train_together(folder, "elastic", {})
