"""The objective under torch.compile, which changes torch for a whole process: in one of its
own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

has_compiler = shutil.which("g++") or shutil.which("clang++")


@pytest.mark.skipif(not has_compiler, reason="torch.compile needs a C++ compiler")
def test_the_compiled_objective_is_one_graph_with_the_same_gradients():
    script = Path(__file__).with_name("compiled.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "compiled", done.stderr[-2000:]
