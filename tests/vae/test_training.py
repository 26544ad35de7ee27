"""Runs of a VAE that are killed and resumed, or shared by processes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from vaes import train_small

from bnaf.training._run.checkpoints import read_checkpoint

TESTS = Path(__file__).parents[1]


def test_a_run_that_was_killed_ends_with_the_same_bits(tmp_path):
    expected, record = train_small(tmp_path / "whole")
    code = f"import vaes; vaes.train_small({str(tmp_path / 'parts')!r}, kill_at=11)"
    killed = subprocess.run([sys.executable, "-c", code], cwd=TESTS, check=False)
    assert killed.returncode == -signal.SIGKILL
    resumed, again = train_small(tmp_path / "parts")
    assert again.history[-1].valid == record.history[-1].valid
    assert again.steps == record.steps == 30
    for here, there in zip(resumed.parameters(), expected.parameters(), strict=True):
        assert torch.equal(here, there)


def train_together(checkpoint, steps):
    """Train in two processes, forked by one that has computed nothing, and return the losses."""
    settings = {"devices": 2, "strategy": "ddp_fork", "steps": steps, "schedule": "constant"}
    settings |= {"warm_up": 0}
    code = f"import json, vaes; _, record = vaes.train_small({str(checkpoint)!r}, **{settings})\n"
    code += "print(json.dumps([one.valid for one in record.history]))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Hold a run of two processes, and one that was carried on in the middle of its warm-up."""
    folder = tmp_path_factory.mktemp("processes")
    train_together(folder / "parts", 8)
    losses = {name: train_together(folder / name, 30) for name in ("whole", "parts")}
    return losses, {name: read_checkpoint(folder / name) for name in losses}


def test_two_processes_count_each_step_of_the_warm_up_once(together):
    _, checkpoints = together
    assert checkpoints["whole"].tensors["raw.weights.steps"] == 30


def test_two_processes_that_go_on_within_the_warm_up_end_with_the_same_bits(together):
    losses, checkpoints = together
    assert losses["parts"] == losses["whole"]
    parts, whole = (checkpoints[name].tensors for name in ("parts", "whole"))
    assert all(torch.equal(parts[name], whole[name]) for name in whole)
