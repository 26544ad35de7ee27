"""Programs of models run without the library, for any number of rows."""

import subprocess
import sys

import pytest
import torch
from cases import randomise
from commands import run

import bnaf
from bnaf import BNAF, Model, SettingsError
from bnaf.columns.opening import Opening
from bnaf.integrations.export import export_file, export_program
from bnaf.model.openings import Openings
from bnaf.model.standardisation import Standardisation

APART = """
import sys, torch
program, inputs, out = sys.argv[1:]
module = torch.export.load(program).module()
torch.save([module(*tensors) for tensors in torch.load(inputs)], out)
assert "bnaf" not in sys.modules
"""


def model(given=0, direction="density", transforms=2, features=2):
    flow = BNAF(features, given, width=3, transforms=transforms, direction=direction)
    randomise(flow)
    location = torch.arange(features, dtype=torch.float64)
    factor = torch.tril(torch.rand(features, features, dtype=torch.float64)) + torch.eye(features)
    slopes = torch.randn(features, given, dtype=torch.float64) if given else None
    scales = Standardisation(location, 2 + location, factor=factor, slopes=slopes)
    given_scales = Standardisation.identity(given)
    return Model(flow, standardisation=scales, given_standardisation=given_scales)


def inputs(model, rows):
    shapes = [(rows, len(part)) for part in (model.columns, model.given_columns) if part]
    return [torch.randn(*shape, dtype=torch.float64) for shape in shapes]


def export(kept, folder, *words):
    """Export a model in a process of its own: torch traces no code whose shapes are checked."""
    bnaf.save(kept, folder / "m.safetensors")
    command = [sys.executable, "-m", "bnaf.cli", "export", folder / "m.safetensors", *words]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_apart(folder, tensors):
    """Return what a program makes of tensors where the library is not imported."""
    torch.save(tensors, folder / "in.pt")
    files = [folder / name for name in ("m.pt2", "in.pt", "out.pt")]
    subprocess.run([sys.executable, "-c", APART, *map(str, files)], check=True)
    return torch.load(folder / "out.pt")


def test_a_program_keeps_the_bounds_of_columns(tmp_path):
    kept = model()
    kept.encoding.openings = Openings({0: Opening((0.0, None), 0.5)})
    export(kept, tmp_path, tmp_path / "m.pt2")
    rows = torch.tensor([[0.2, 1.0], [-0.2, 1.0]], dtype=torch.float64)
    (found,) = run_apart(tmp_path, [[rows]])
    torch.testing.assert_close(found, kept.log_prob(rows))


@pytest.mark.parametrize("given", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_log_densities_are_those_of_the_model_for_any_number_of_rows(given, tmp_path):
    kept = model(given)
    said = export(kept, tmp_path, tmp_path / "m.pt2")
    assert said.startswith("takes: rows of x0, x1")
    calls = [inputs(kept, rows) for rows in (2, 9)]
    for found, tensors in zip(run_apart(tmp_path, calls), calls, strict=True):
        torch.testing.assert_close(found, kept.log_prob(*tensors))


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["density", "sampling"])
def test_noise_becomes_the_rows_that_have_it(direction, tmp_path):
    kept = model(1, direction, transforms=1)
    export(kept, tmp_path, tmp_path / "m.pt2", "--function", "sample")
    calls = [inputs(kept, rows) for rows in (2, 9)]
    for rows, (noise, given) in zip(run_apart(tmp_path, calls), calls, strict=True):
        torch.testing.assert_close(kept.base_noise(rows, given), noise)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["log_prob", "sample"])
def test_programs_know_a_scaled_base(function, tmp_path):
    kept = model(2, transforms=1, features=1)
    kept.flow.scale_base(torch.tensor([0.4]), torch.tensor([1.5]))
    export(kept, tmp_path, tmp_path / "m.pt2", "--function", function)
    noise, given = inputs(kept, 9)
    (found,) = run_apart(tmp_path, [(noise, given)])
    if function == "sample":
        torch.testing.assert_close(kept.base_noise(found, given), noise)
    else:
        torch.testing.assert_close(found, kept.log_prob(noise, given))


def test_onnx_has_no_search_for_roots(tmp_path):
    with pytest.raises(SettingsError, match=r"ONNX has log_prob alone"):
        export_file(model(), tmp_path / "m.onnx", "sample")


def test_other_formats_are_refused_before_anything_is_traced(tmp_path):
    bnaf.save(model(), tmp_path / "m.safetensors")
    result = run("export", tmp_path / "m.safetensors", tmp_path / "m.txt")
    assert result.exit_code == 1
    assert "suffix must be one of '.pt2', '.onnx', got '.txt'" in result.stderr


@pytest.mark.slow
def test_onnx_computes_the_same_log_densities(tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: make test-integrations")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    kept = model(2)
    export(kept, tmp_path, tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    for rows in (2, 9):
        tensors = inputs(kept, rows)
        names = [each.name for each in session.get_inputs()]
        arrays = [tensor.float().numpy() for tensor in tensors]
        (found,) = session.run(None, dict(zip(names, arrays, strict=True)))
        expected = kept.log_prob(*tensors).float()
        torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4, rtol=1e-4)


def test_samples_of_a_heavy_base_are_not_exported():
    flow = BNAF(2, width=3, base="student")
    with pytest.raises(SettingsError, match="take normal noise, and the base of this flow is not"):
        export_program(flow, "sample")
