"""Files of version 0.1 as it was before its packages: what they hold is what they gave then.

They were written by that version, together with the numbers beside them.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import bnaf
from bnaf.training import ReverseKL

FOLDER = Path(__file__).parents[1] / "legacy"
NUMBERS = {name: torch.from_numpy(part) for name, part in np.load(FOLDER / "numbers.npz").items()}
FLOWS = sorted(path.stem for path in FOLDER.glob("flow_*.safetensors"))
MODELS = sorted(path.stem for path in FOLDER.glob("model_*.safetensors"))


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_scores_and_samples_as_before(name):
    flow = bnaf.load(FOLDER / f"{name}.safetensors")
    x, z = NUMBERS[f"{name}.x"], NUMBERS[f"{name}.z"]
    with torch.no_grad():
        law = flow(NUMBERS.get(f"{name}.context"))
        torch.testing.assert_close(law.log_prob(x), NUMBERS[f"{name}.log_prob"])
        torch.testing.assert_close(law.transform.inv(z), x)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_scores_and_samples_as_before(name):
    model = bnaf.load(FOLDER / f"{name}.safetensors")
    table = bnaf.read_table(NUMBERS[f"{name}.rows"], names=["a", "b", "c"], warn=False)
    torch.testing.assert_close(model.log_prob(table), NUMBERS[f"{name}.log_prob"])
    given = table.select(["b"]) if model.given_columns else None
    samples = model.sample(2 if model.given_columns else 6, given, seed=11)
    torch.testing.assert_close(samples, NUMBERS[f"{name}.samples"])


def energy(x):
    return 0.5 * ((x[..., 0] - 1) ** 2 + (x[..., 1] - x[..., 0] ** 2) ** 2)


def begin(case):
    """Return the flow and the arguments of a fit, as the run that was interrupted had them."""
    rows = torch.randn(400, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = torch.stack([rows[:, 0], rows[:, 0].square() + 0.3 * rows[:, 1]], 1)
    if case == "rows":
        flow = bnaf.BNAF(2, transforms=2, hidden_layers=1, width=4).double()
        settings = {"steps": 60, "batch": 64, "evaluate_every": 7, "pull": 1.0, "noise": 0.1}
        return flow, {"rows": rows[:300], "valid": rows[300:]}, settings
    if case == "given":
        sizes = {"transforms": 1, "hidden_layers": 1, "width": 4, "context_width": 4}
        flow = bnaf.BNAF(1, 1, **sizes, context="amortised").double()
        data = {"rows": rows[:300, 1:], "context": rows[:300, :1]}
        data["weights"] = rows[:300, 0].abs() + 0.1
        return (
            flow,
            data,
            {"steps": 60, "batch": 300, "schedule": "plateau", "plateau_patience": 1},
        )
    flow = bnaf.BNAF(2, transforms=1, width=4, direction="sampling").double()
    return flow, {"objective": ReverseKL(flow, energy, anneal=20)}, {"steps": 60, "batch": 32}


@pytest.mark.parametrize("case", ["rows", "given", "energy"])
def test_a_run_goes_on_to_where_it_went_before(case, tmp_path):
    checkpoint = shutil.copy(FOLDER / f"run_{case}.checkpoint", tmp_path)
    flow, data, settings = begin(case)
    settings = bnaf.TrainingSettings(**settings)
    record = bnaf.fit(flow, **data, settings=settings, checkpoint=checkpoint, progress=False)
    assert record.steps == 60
    weights = torch.cat([weight.detach().flatten() for weight in flow.parameters()])
    expected = NUMBERS[f"run_{case}.weights"]
    assert (weights - expected).norm() <= 1e-7 * expected.norm()


def test_a_run_of_other_settings_is_refused(tmp_path):
    checkpoint = shutil.copy(FOLDER / "run_rows.checkpoint", tmp_path)
    flow, data, settings = begin("rows")
    other = bnaf.TrainingSettings(**settings | {"pull": 2.0})
    with pytest.raises(bnaf.SettingsError, match=r"settings\.pull is 1\.0 there and 2\.0 here"):
        bnaf.fit(flow, **data, settings=other, checkpoint=checkpoint, progress=False)
