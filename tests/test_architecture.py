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
    extras += ["lightning_fabric", "rich", "tensorboard", "bnaf.training"]
    code = f"import sys, bnaf; print([name for name in {extras} if name in sys.modules])"
    assert run(code) == "[]"


def test_settings_of_a_fit_load_neither_fabric_nor_rich():
    extras = ["lightning_fabric", "rich", "tensorboard"]
    code = "import sys, bnaf; bnaf.TrainingSettings(epochs=3); bnaf.fit; "
    assert run(code + f"print([name for name in {extras} if name in sys.modules])") == "[]"


def test_names_imported_on_first_use_are_listed():
    assert run("import bnaf; print({'fit', 'TrainingSettings'} <= set(dir(bnaf)))") == "True"
    assert run("import bnaf; print(hasattr(bnaf, 'fits'))") == "False"


def test_training_leaves_threads_seed_and_validation_alone():
    state = (
        "(torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed(), "
        "torch.is_grad_enabled(), torch.distributions.Distribution._validate_args, "
        "torch.get_float32_matmul_precision(), torch.get_rng_state().sum().item())"
    )
    code = f"import torch, bnaf; flow = bnaf.BNAF(2, width=3); a = {state}; "
    code += "rows = torch.zeros(9, 2); bnaf.fit(flow, rows, settings=bnaf.TrainingSettings("
    code += f"steps=3), progress=False); print(a == {state})"
    assert run(code) == "True"


def test_the_version_is_that_of_the_package():
    code = "import bnaf, importlib.metadata as m; print(bnaf.__version__ == m.version('bnaf'))"
    assert run(code) == "True"
