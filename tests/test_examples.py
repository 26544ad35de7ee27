"""The examples run, in a process of their own."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_toy_density_writes_its_figure(tmp_path):
    command = [sys.executable, str(EXAMPLES / "toy_density.py"), "--out", str(tmp_path)]
    done = subprocess.run([*command, "--steps", "20"], capture_output=True, text=True, check=True)
    assert "negative log-likelihood" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["density.png"]


def test_the_demo_writes_all_that_it_says(tmp_path):
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--out", str(tmp_path)]
    command += ["--seconds", "1", "--rows", "300", "--steps", "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in ("bnaf", "gaussian mixture", "gaussian"):
        lines = re.findall(
            rf"^  {name} +-?[\d.]+ ± [\d.]+ nats per row", done.stdout, re.MULTILINE
        )
        assert len(lines) == 2
    listed = re.findall(r"^  (\S+\.\S+)  ", done.stdout, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in tmp_path.iterdir())
    assert len(listed) == 7


def test_sample_and_differentiate_lowers_its_expectation(tmp_path):
    command = [sys.executable, str(EXAMPLES / "sample_and_differentiate.py"), "--out"]
    command += [str(tmp_path), "--steps", "30", "--moves", "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    course = re.search(r"expectation over samples: ([\d.]+) before, ([\d.]+) after", done.stdout)
    assert float(course[2]) < 0.8 * float(course[1])
    assert [path.name for path in tmp_path.iterdir()] == ["spirals.png"]


def test_text_is_learned_with_two_posteriors(tmp_path):
    command = [sys.executable, str(EXAMPLES / "text_vae.py"), "--out", str(tmp_path)]
    command += ["--steps", "12", "--words", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in ("gaussian", "bnaf"):
        line = re.search(rf"^{name} +-ELBO ([\d.]+) nats a word, NLL ([\d.]+)", done.stdout, re.M)
        assert float(line[2]) < float(line[1])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"words-gaussian.safetensors", "words-bnaf.safetensors"}
