"""Runs that are killed and resumed, and runs of two processes, as real processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

RUNS = Path(__file__).with_name("runs.py")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")


def run(*command: str | Path) -> str:
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("schedule", ["cosine", "plateau", "stream"])
def test_a_run_killed_at_any_moment_ends_with_the_same_bits(tmp_path, schedule):
    report = json.loads(run(RUNS, "kill", tmp_path, schedule, "1").splitlines()[-1])
    assert report.keys() == set(SIGNALS)
    for signal in SIGNALS:
        assert report[signal]["killed midway"] >= 1, report
        assert report[signal]["same result"], signal
        assert report[signal]["same state"], signal


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    run(RUNS, "processes", folder)
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def assert_close(one, two):
    """Compare what two runs came to: sums in another order differ by rounding, which steps grow.

    A row that was lost, counted twice or weighed wrongly moves the weights by a thousandth and
    more after fifty steps; rounding in float64 by far less than a millionth of a millionth each.
    """
    ours, theirs = (torch.tensor(x["weights"], dtype=torch.float64) for x in (one, two))
    assert (ours - theirs).norm() <= 1e-7 * theirs.norm()
    assert one["valid"] == pytest.approx(two["valid"], rel=1e-7, abs=1e-7)
    assert one["loss"] == pytest.approx(two["loss"], rel=1e-7, abs=1e-7)


def test_two_processes_agree_with_one(together):
    assert together["two"]["steps"] == 50
    assert_close(together["one"], together["two"])


def test_two_processes_skip_a_step_together(together):
    assert together["odd_one"]["skipped"] == together["odd_two"]["skipped"] == 6
    assert_close(together["odd_one"], together["odd_two"])


def test_two_processes_spend_a_time_together(together):
    assert together["timed"]["reason"] == "budget"
    assert together["timed"]["steps"] >= 1


@pytest.mark.parametrize("name", ["stopped", "pressed"])
def test_a_signal_to_one_process_or_their_parent_stops_both(together, name):
    assert together[name]["reason"] == "interrupted"


def test_two_processes_share_a_batch_of_one_row(together):
    assert together["lone_two"]["skipped"] == 0
    assert_close(together["lone_one"], together["lone_two"])


def test_two_processes_share_a_stream_of_parquet(together):
    assert together["parquet"]["reason"] == "budget"
    assert together["parquet"]["epochs"] == 50 // (1300 // 40)


def test_two_processes_share_a_stream_of_every_kind(together):
    assert together["kinds"]["reason"] == "budget"
    assert together["kinds"]["epochs"] == 30 // (1350 // 100)


def test_torchrun_starts_two_processes_that_agree_with_one(tmp_path, together):
    elastic = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run(*elastic, RUNS, "elastic", tmp_path)
    assert_close(together["one"], json.loads((tmp_path / "elastic.json").read_text()))


@pytest.mark.slow
def test_a_compiled_objective_trains_alike(tmp_path, together):
    run(RUNS, "compiled", tmp_path)
    compiled = json.loads((tmp_path / "compiled.json").read_text())
    ours, theirs = (torch.tensor(x["weights"]) for x in (together["one"], compiled))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
