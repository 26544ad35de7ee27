"""Student's t as a base with heavy tails."""

import pytest
import torch
from scipy import stats
from torch.distributions import Independent, StudentT

from bnaf import BNAF, Model, SettingsError, TrainingSettings, load, save
from bnaf.flows.ensemble import Ensemble
from bnaf.laws.bases import StudentRows
from bnaf.training import ReverseKL
from bnaf.vae import Posterior


def test_normal_scores_are_those_of_the_distribution_function():
    degrees = torch.tensor([0.7, 3.0, 50.0], dtype=torch.float64)
    z = torch.tensor([[-1e6, -30.0, -0.5], [0.0, 0.3, 20.0]], dtype=torch.float64)
    law = StudentRows(degrees)
    scores = law.normal_scores(z)
    small = stats.t.cdf(-z.abs().numpy(), degrees.numpy())
    expected = torch.from_numpy(stats.norm.ppf(small)) * -z.sign()
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(law.from_normal_scores(scores), z)


def test_densities_and_entropies_are_those_of_torch():
    degrees = torch.tensor([0.7, 3.0, 50.0], dtype=torch.float64)
    law, expected = StudentRows(degrees), Independent(StudentT(degrees), 1)
    z = 10 * torch.randn(6, 3, dtype=torch.float64)
    torch.testing.assert_close(law.log_prob(z), expected.log_prob(z))
    torch.testing.assert_close(law.entropy(), expected.entropy())


@pytest.mark.parametrize("direction", ["density", "sampling"])
def test_degrees_are_learned_on_both_sides(direction):
    flow = BNAF(2, width=3, base="student", direction=direction)
    for value in (flow().log_prob(torch.randn(5, 2)), flow().rsample((5,))):
        flow.zero_grad()
        value.sum().backward()
        assert (flow.base_law.log_degrees.grad != 0).all()


def test_tails_fall_by_a_power_and_the_density_integrates_to_one():
    flow = BNAF(1, width=3, base="student").double().requires_grad_(False)
    with torch.no_grad():
        flow.base_law.log_degrees.fill_(0.7)
    # by x = sinh(t): far tails count
    t = torch.linspace(-25, 25, 20_001, dtype=torch.float64).unsqueeze(1)
    mass = (flow().log_prob(t.sinh()).exp() * t.squeeze(1).cosh()).sum() * (50 / 20_000)
    assert abs(mass.item() - 1) < 1e-6


def test_a_file_keeps_the_base(tmp_path):
    flow = BNAF(2, width=3, base="student").double()
    with torch.no_grad():
        flow.base_law.log_degrees.add_(0.3)
    save(flow, tmp_path / "flow.safetensors")
    again = load(tmp_path / "flow.safetensors")
    x = torch.randn(4, 2).double()
    assert torch.equal(again().log_prob(x), flow().log_prob(x))


def test_a_models_noise_is_normal_whatever_its_base():
    flow = BNAF(1, width=3, base="student").double()
    rows = torch.tensor([[-3.0], [0.5]], dtype=torch.float64)
    z = flow().transform(rows).detach()
    torch.testing.assert_close(Model(flow).base_noise(rows), flow().base.normal_scores(z))


def test_a_heavy_tail_is_fitted_better_on_a_student_base():
    rows = StudentRows(torch.full((1,), 1.5).double()).sample((300,))
    scores = [
        Model.fit(
            rows,
            flow_settings={"width": 4, "base": base},
            settings=TrainingSettings(steps=40),
            progress=False,
        ).log_prob(rows)
        for base in ("normal", "student")
    ]
    assert scores[1].mean() > scores[0].mean()


def test_what_needs_a_normal_base_says_so():
    heavy = {"width": 3, "base": "student"}
    message = "on a normal base, got base='student'"
    with pytest.raises(SettingsError, match=message):
        Ensemble(1, settings=heavy)
    with pytest.raises(SettingsError, match=message):
        ReverseKL(BNAF(2, **heavy), lambda x: x.sum(-1))
    with pytest.raises(SettingsError, match=message):
        Posterior(2, 5, flow=BNAF(2, 5, direction="sampling", **heavy))
    with pytest.raises(
        SettingsError, match="base must be one of 'normal', 'student', 'scaled', got"
    ):
        BNAF(2, base="levy")
