"""Runs of a VAE that are killed and resumed, or shared by processes."""

import signal
import subprocess
import sys
from pathlib import Path

import torch
from vaes import train_small

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
