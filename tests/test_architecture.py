"""What importing the library does, and does not do."""

import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import cases
import pytest
from kinds import fit_kinds, kinds_frame

import bnaf
from bnaf.flows.ensemble import Ensemble
from bnaf.flows.registry import flow_name, stored_names

EXTRAS = [
    "matplotlib",
    "pandas",
    "polars",
    "sklearn",
    "lightning",
    "typer",
    "rich",
    "pyarrow",
    "safetensors",
]
ROOT = Path(__file__).parents[1]
HEAVY = ["torch._dynamo", "torch._inductor", "lightning_fabric", "pandas"]


def loaded(*names: str) -> str:
    return f"import sys; print([name for name in {names} if name in sys.modules])"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_what_rivals_need_is_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["rivals"] == ["bnaf[zuko]"]


def test_import_changes_nothing_in_torch():
    state = (
        "(torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed(), "
        "torch.is_grad_enabled(), torch.distributions.Distribution._validate_args, "
        "torch.get_float32_matmul_precision())"
    )
    code = f"import torch; torch.manual_seed(5); a = {state}; import bnaf; print(a == {state})"
    assert run(code) == "True"


def test_import_loads_no_extra():
    assert run(f"import bnaf; {loaded(*EXTRAS)}") == "[]"


def test_names_imported_on_first_use_load_no_extra():
    code = f"import bnaf; bnaf.Model, bnaf.load, bnaf.save, bnaf.read_table; {loaded(*EXTRAS)}"
    assert run(code) == "[]"


def test_files_are_read_and_written_without_the_libraries_of_frames(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n5,\n")
    code = (
        "import bnaf; from bnaf.tables.writing import write_table; "
        "from bnaf.tables.streams import ParquetStream; "
        f"table = bnaf.read_table({str(tmp_path / 'a.csv')!r}, drop_missing=True); "
        f"path = {str(tmp_path / 'a.parquet')!r}; write_table(table, path); "
        "assert len(bnaf.read_table(path)) == 2; assert len(list(ParquetStream(path, 1))) == 2; "
        f"{loaded('pandas', 'polars', 'sklearn')}"
    )
    assert run(code) == "[]"


def test_the_command_line_loads_what_draws_only_when_it_draws():
    assert run(f"import bnaf.cli.app; {loaded('matplotlib', 'jinja2', 'sklearn')}") == "[]"


def command(*words: str) -> str:
    """Return code that runs a command and goes on."""
    start = f"import sys; sys.argv = ['bnaf', *{words}]; from bnaf.cli.app import main\n"
    return start + "try: main()\nexcept SystemExit: pass\n"


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("fit", "--help"),
        ("score", "--nope"),
        ("sample",),
        ("--version",),
        ("reproduce", "--help"),
        ("reproduce", "vae", "--steps", "3"),
        ("fit", "t.csv"),
        ("fit", "-", "--valid", "-", "--out", "m.safetensors"),
        ("fit", "t.csv", "--columns", "a", "--given", "a", "--out", "m.safetensors"),
        ("fit", "t.csv", "--out", "-", "--json"),
        ("score", "-", "-"),
        ("score", "m.safetensors", "t.csv", "--out", "-", "--json"),
        ("report", "-", "t.csv"),
        ("plot", "training", "m.safetensors", "t.csv", "--out", "p.png"),
        ("compare", "-", "--test", "-"),
    ],
)
def test_help_and_errors_of_usage_need_no_torch(words):
    said = run(command(*words) + loaded("torch", "numpy", "pyarrow", "matplotlib"))
    assert said.splitlines()[-1] == "[]"


def test_an_error_of_usage_loads_neither_other_commands_nor_what_draws_help():
    others = ("bnaf.cli.fit", "bnaf.cli.reproduce", "typer.rich_utils", "pydantic")
    assert run(command("score", "--nope") + loaded(*others)).splitlines()[-1] == "[]"


def test_completion_of_commands_needs_no_torch():
    asked = {"_BNAF_COMPLETE": "complete_bash", "COMP_WORDS": "bnaf re", "COMP_CWORD": "1"}
    code = f"import os; os.environ.update({asked}); " + command()
    said = run(code + loaded("torch", "numpy", "typer.rich_utils", "pydantic")).splitlines()
    assert said == ["report", "reproduce", "[]"]


def test_completion_of_flows_needs_no_torch():
    code = "from bnaf.cli.options import complete_flow; assert 'glow' in complete_flow('g'); "
    assert run(code + loaded("torch", "numpy")) == "[]"


def test_scoring_loads_no_compiler_of_torch_whatever_the_flow(tmp_path):
    frame = kinds_frame(40)
    numbers = frame[["visits", "price", "income"]].set_axis(["x0", "x1", "g"], axis=1)
    flows = [make(2, 1) for make in cases.FLOWS.values()]
    flows.append(Ensemble(1, 1, members=2, settings={"width": 2, "transforms": 1}))
    models = {flow_name(flow): bnaf.Model(flow, given_columns=["g"]) for flow in flows}
    models["mixed"] = fit_kinds(frame)
    assert models.keys() == set(stored_names())
    for name, model in models.items():
        bnaf.save(model, tmp_path / f"{name}.safetensors")
        (frame if name == "mixed" else numbers).to_csv(tmp_path / f"{name}.csv", index=False)
    code = f"""
        import pathlib, sys
        from bnaf.cli.app import app
        for model in sorted(pathlib.Path({str(tmp_path)!r}).glob("*.safetensors")):
            app(["score", str(model), str(model.with_suffix(".csv"))], standalone_mode=False)
            print(model.stem, [name for name in {HEAVY} if name in sys.modules])
    """
    said = run(textwrap.dedent(code)).splitlines()
    assert sorted(said[1::2]) == sorted(f"{name} []" for name in stored_names())


def test_all_public_names_exist():
    code = (
        "import bnaf; assert set(bnaf.__all__) <= set(dir(bnaf)); "
        "print([name for name in bnaf.__all__ if not hasattr(bnaf, name)], hasattr(bnaf, 'no'))"
    )
    assert run(code) == "[] False"


def test_settings_of_a_fit_load_neither_fabric_nor_rich():
    extras = ["lightning_fabric", "rich", "tensorboard"]
    code = "import sys, bnaf; bnaf.TrainingSettings(epochs=3); bnaf.fit; "
    assert run(code + f"print([name for name in {extras} if name in sys.modules])") == "[]"


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


SOURCE = Path(bnaf.__file__).parent
MODULES = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in SOURCE.rglob("*.py")}


def test_nobody_but_model_files_asks_for_the_type_of_an_encoding():
    asked = re.compile(r"isinstance\([^)]*(Kind|Number)Encoding\)")
    assert [name for name, text in MODULES.items() if asked.search(text)] == ["model/_stored.py"]


def test_no_package_imports_what_is_private_to_another():
    private = re.compile(r"(?:from|import) bnaf\.(\w+)(?:\.\w+)*(?:\._| import _)")
    crossing = {
        name: found
        for name, text in MODULES.items()
        for found in private.findall(text)
        if not name.startswith(f"{found}/")
    }
    assert crossing == {}


def test_no_module_has_more_than_400_lines():
    assert [name for name, text in MODULES.items() if len(text.splitlines()) > 400] == []
