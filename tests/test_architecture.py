"""What importing the library does, and does not do."""

import subprocess
import sys


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_changes_nothing_in_torch():
    state = (
        "(torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed(), "
        "torch.is_grad_enabled(), torch.distributions.Distribution._validate_args, "
        "torch.get_float32_matmul_precision())"
    )
    code = f"import torch; torch.manual_seed(5); a = {state}; import bnaf; print(a == {state})"
    assert run(code) == "True"


def test_import_loads_no_extra():
    extras = ["matplotlib", "pandas", "sklearn", "lightning", "typer", "pyarrow"]
    code = f"import sys, bnaf; print([name for name in {extras} if name in sys.modules])"
    assert run(code) == "[]"


def test_the_version_is_that_of_the_package():
    code = "import bnaf, importlib.metadata as m; print(bnaf.__version__ == m.version('bnaf'))"
    assert run(code) == "True"
