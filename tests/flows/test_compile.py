"""The objective under torch.compile, which changes torch for a whole process: in one of its
own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

has_compiler = shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(not has_compiler, reason="inductor needs a C++ compiler")


# the same graphs and derivatives, run as they are or, at length, as C++
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=[pytest.mark.slow, needs_compiler])]
)
def test_the_compiled_objective_is_one_graph_with_the_same_gradients(backend):
    script = Path(__file__).with_name("compiled.py")
    done = subprocess.run(
        [sys.executable, str(script), backend], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "compiled", done.stderr[-2000:]
