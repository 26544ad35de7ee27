"""The examples run, in a process of their own."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_toy_density_writes_its_figure(tmp_path):
    command = [sys.executable, str(EXAMPLES / "toy_density.py"), "--out", str(tmp_path)]
    done = subprocess.run([*command, "--steps", "20"], capture_output=True, text=True, check=True)
    assert "negative log-likelihood" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["density.png"]
