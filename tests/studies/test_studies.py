"""The paper's two-dimensional studies: their files, runs, measures, results and figures."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import run as run_command
from commands import succeed

import bnaf
from bnaf import BNAF, SettingsError, StorageError, TrainingSettings
from bnaf.datasets._quadrature import square_grid
from bnaf.datasets.energies import energy_named
from bnaf.datasets.toy import toy_named
from bnaf.flows.glow import Glow
from bnaf.flows.planar import Planar
from bnaf.studies.ledger import Ledger
from bnaf.studies.panels import draw_study
from bnaf.studies.plans import Trial, experiment_names, plan_trials, read_experiment
from bnaf.studies.reproduction import reproduce
from bnaf.studies.running import STUDIES, carry_out, flow_file
from bnaf.studies.tables import summarise, write_markdown
from bnaf.training.progress import Silence

EXPERIMENTS = [(study, name) for study in STUDIES for name in experiment_names(study)]
QUICK = {"steps": 3, "test_rows": 500, "quiet": True, "workers": 1}


RESULTS = Path(__file__).parents[2] / "results"


def make_run(study, name, flow, seed=0, **options):
    experiment = read_experiment(study, name)
    return Trial(experiment, experiment.variants[flow], seed, **options)


@pytest.fixture(params=EXPERIMENTS, ids="-".join)
def experiment(request):
    return read_experiment(*request.param)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Hold a quick version of each study, and what the command printed of it."""
    folder = tmp_path_factory.mktemp("studies")
    words = ["--steps", 3, "--test-rows", 500, "--out", folder, "--workers", 1]
    toy = succeed("reproduce", "toy", "8gaussians", *words, "--quiet")
    energy = succeed("reproduce", "energy", "u1", *words, "--json")
    (folder / "toy.txt").write_text(toy.stdout)
    (folder / "energy.txt").write_text(energy.stdout)
    return folder


def test_the_studies_are_those_of_the_paper():
    assert experiment_names("toy") == ["2spirals", "8gaussians", "checkerboard"]
    assert experiment_names("energy") == ["u1", "u2", "u3", "u4"]


def test_the_settings_of_the_paper_are_the_published_network_and_training(experiment):
    run = Trial(experiment, experiment.variants["bnaf-paper"], 0)
    toy = experiment.study == "toy"
    published = BNAF.paper(
        2,
        transforms=1,
        hidden_layers=3 if toy else 2,
        width=50,
        direction="density" if toy else "sampling",
    )
    unused = {"context_layers": 0}
    assert run.build().settings | unused == published.settings | unused
    assert run.training == TrainingSettings.paper_toy(learning_rate=1e-1 if toy else 1e-2)


def test_every_departure_of_our_recipe_has_a_reason(experiment):
    ours, paper = (experiment.variants[name] for name in ("bnaf", "bnaf-paper"))
    runs = [Trial(experiment, variant, 0) for variant in (ours, paper)]
    flows = [run.build().settings for run in runs]
    trainings = [run.training.as_dict() for run in runs]
    departures = {
        name for here, there in (flows, trainings) for name in here if here[name] != there[name]
    } | ours.objective.keys()
    explained = {name.strip() for names in ours.reasons for name in names.split(",")}
    assert departures - {"context_layers"} <= explained
    assert all(len(reason) > 20 for reason in ours.reasons.values())


def test_the_other_flows_say_why_they_are_not_those_of_the_figure(experiment):
    for variant in experiment.variants.values():
        if variant.flow != "bnaf":
            explained = {name.strip() for names in variant.reasons for name in names.split(",")}
            assert {"steps", "batch", "learning_rate", *variant.objective} <= explained


def test_the_recipes_of_a_study_are_the_same_for_all_names():
    for study in STUDIES:
        first, *others = (read_experiment(study, name) for name in experiment_names(study))
        for other in others:
            assert other.variants.keys() == first.variants.keys()
            for name, variant in other.variants.items():
                expected = first.variants[name]
                assert variant.settings == expected.settings
                assert variant.training == expected.training
                assert variant.objective == expected.objective
                assert variant.seeds == expected.seeds


def test_every_run_takes_as_many_steps_as_the_paper(experiment):
    for variant in experiment.variants.values():
        assert Trial(experiment, variant, 0).training.steps == 20_000


def test_a_seed_decides_the_initial_weights_and_leaves_torch_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, same, other = (
        make_run("toy", "2spirals", "bnaf", seed).build().state_dict()["networks.weight"]
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_runs_come_seed_by_seed():
    experiment = read_experiment("toy", "8gaussians")
    runs = [(run.variant.name, run.seed) for run in plan_trials([experiment])]
    firsts = [(name, 0) for name in experiment.variants]
    assert runs[: len(firsts)] == firsts
    assert runs[len(firsts) :] == [(n, s) for s in (1, 2) for n in ("bnaf-paper", "bnaf")]


def test_names_and_flows_that_do_not_exist_are_refused():
    with pytest.raises(SettingsError, match=r"2spirals, 8gaussians, .* got 'moons'"):
        read_experiment("toy", "moons")
    experiment = read_experiment("energy", "u1")
    with pytest.raises(SettingsError, match=r"flow must be one of planar, .* got 'glow'"):
        plan_trials([experiment], flows=["glow"])


def test_the_excess_of_toy_data_is_the_nll_above_the_entropy():
    run = make_run("toy", "8gaussians", "bnaf", test_rows=4000)
    flow = run.build()
    measures = STUDIES["toy"].measure(run, flow)
    x = STUDIES["toy"].draw("8gaussians", 4000, torch.Generator().manual_seed(1_000_000))
    nll = -flow.double()().log_prob(x)
    assert measures["loss"] == pytest.approx(nll.mean().item())
    assert measures["loss_error"] == pytest.approx(nll.std().item() / 4000**0.5)
    assert measures["excess"] == pytest.approx(
        nll.mean().item() - toy_named("8gaussians").entropy()
    )
    error = measures["loss_error"] + measures["divergence_error"]
    assert abs(measures["divergence"] - measures["excess"]) < 4 * error


def test_the_missing_mass_of_the_network_of_the_paper_is_measured():
    for name, missing in (("bnaf", False), ("bnaf-paper", True)):
        run = make_run("toy", "8gaussians", name, test_rows=2)
        measures = STUDIES["toy"].measure(run, run.build())
        assert (measures["missing_mass"] > 0) == missing


def standard_normal_flow():
    flow = Planar(2, transforms=1, direction="sampling")
    with torch.no_grad():
        flow.numbers[:, :2] = 0
    return flow


def test_the_excess_of_an_energy_is_the_divergence_to_its_law():
    run = make_run("energy", "u3", "planar", test_rows=20_000)
    measures = STUDIES["energy"].measure(run, standard_normal_flow())
    x, area = square_grid(9.0, 400)
    log_q = torch.distributions.Normal(0.0, 1.0).log_prob(x).sum(-1)
    divergence = (log_q.exp() * (log_q - energy_named("u3").log_prob(x))).sum() * area
    assert abs(measures["excess"] - divergence.item()) < 4 * measures["loss_error"]


def test_coverage_is_the_mass_of_each_mode_beside_the_true_one():
    run = make_run("energy", "u4", "planar", test_rows=20_000)
    measures = STUDIES["energy"].measure(run, standard_normal_flow())
    left = torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor(1.0)).item()
    assert measures["coverage"]["left"] == pytest.approx(left, abs=0.02)
    assert measures["true_masses"]["left"] == pytest.approx(0.5726, abs=1e-3)
    gaps = [abs(measures["coverage"][k] - m) for k, m in measures["true_masses"].items()]
    assert measures["coverage_gap"] == max(gaps)


def test_flows_of_one_seed_are_measured_on_the_same_rows():
    glow = Glow(2, transforms=1)
    runs = [make_run("toy", "8gaussians", name, test_rows=50) for name in ("glow", "bnaf")]
    losses = [STUDIES["toy"].measure(run, glow)["loss"] for run in runs]
    other = make_run("toy", "8gaussians", "glow", seed=1, test_rows=50)
    assert losses[0] == losses[1] != STUDIES["toy"].measure(other, glow)["loss"]


class Stop(Silence):
    """Display that asks the process to stop after the second step."""

    interval = 0.0

    def show(self, view):
        if view.step == 2:
            signal.raise_signal(signal.SIGTERM)


def test_a_run_that_was_cut_short_goes_on_and_ends_with_the_same_bits(tmp_path):
    run = make_run("energy", "u2", "bnaf", steps=4, test_rows=100)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    record = carry_out(run, whole, Silence())
    with pytest.raises(KeyboardInterrupt):
        carry_out(run, parts, Stop())
    assert [path.suffix for path in parts.iterdir()] == [".checkpoint"]
    resumed = carry_out(run, parts, Silence())
    assert resumed["measures"] == record["measures"]
    first, second = (bnaf.load(flow_file(run, folder)).state_dict() for folder in (whole, parts))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert [path.suffix for path in parts.iterdir()] == [".safetensors"]


def test_what_is_finished_is_not_run_again(quick, tmp_path):
    shutil.copytree(quick, tmp_path / "copy")
    lines = []
    options = {"flows": ["bnaf-paper"], "announce": lines.append, **QUICK}
    reproduce("energy", "u1", out=tmp_path / "copy", **options)
    assert lines == ["0 of 3 runs to do"]
    assert (tmp_path / "copy/energy.json").read_bytes() == (quick / "energy.json").read_bytes()


def test_results_without_trained_flows_are_made_anew(quick, tmp_path):
    (tmp_path / "energy.json").write_bytes((quick / "energy.json").read_bytes())
    lines = []
    options = {"flows": ["planar-8"], "announce": lines.append, **QUICK}
    reproduce("energy", "u1", out=tmp_path, **options)
    assert lines[0] == "1 of 1 runs to do"


def test_every_finished_run_is_recorded_at_once(tmp_path):
    path = tmp_path / "energy.json"
    counts = []

    def look(line):
        counts.append(len(json.loads(path.read_text())["records"]) if path.exists() else 0)

    options = {"flows": ["planar-8"], "seeds": [0, 1, 2], "announce": look, **QUICK}
    reproduce("energy", "u1", out=tmp_path, **options)
    assert counts == [0, 1, 2, 3]


def test_a_record_says_all_it_takes_to_repeat_the_run(quick):
    records = json.loads((quick / "energy.json").read_text())["records"]
    (record,) = [one for one in records if one["flow"] == "bnaf" and one["seed"] == 2]
    assert record["command"] == (
        "bnaf reproduce energy u1 --flow bnaf --seeds 2, --steps 3 --test-rows 500"
    )
    assert record["training"]["steps"] == 3
    flow = BNAF(**record["settings"])
    assert flow.parameter_count == record["weights"]
    assert record["threads"] == 1


def test_records_of_other_settings_are_replaced_and_of_other_steps_kept(quick):
    ledger = Ledger(quick / "energy.json")
    kept = dict(ledger.records)
    first = next(iter(kept.values()))
    ledger.path = quick / "copy.json"
    ledger.add(first | {"run": "under-other-settings"})
    assert first["run"] not in ledger.records
    ledger.add(first | {"run": "of-more-steps", "steps": 4})
    ledger.add(first | {"run": "of-more-rows", "measures": first["measures"] | {"rows": 501}})
    assert len(Ledger(ledger.path).records) == len(kept) + 2


def test_a_file_of_something_else_is_no_ledger(tmp_path):
    (tmp_path / "toy.json").write_text("[]")
    with pytest.raises(StorageError, match=r"must hold the results of a study.*give another"):
        Ledger(tmp_path / "toy.json")


def test_two_processes_give_the_numbers_of_one(quick, tmp_path):
    options = QUICK | {"workers": 2, "flows": ["planar-8", "bnaf-paper"], "seeds": [0]}
    reproduce("energy", "u1", out=tmp_path, **options)
    alone, apart = Ledger(quick / "energy.json").records, Ledger(tmp_path / "energy.json").records
    assert len(apart) == 2
    for key, record in apart.items():
        for name in ("loss", "excess", "coverage_gap"):
            expected = alone[key]["measures"][name]
            assert record["measures"][name] == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_workers_write_their_checkpoints_when_the_command_is_killed(tmp_path):
    command = [sys.executable, "-m", "bnaf.cli", "reproduce", "energy", "u1", "--flow", "bnaf"]
    command += ["--seeds", "0,1", "--workers", "2", "--steps", "1000000", "--out", str(tmp_path)]
    training = set()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as killed:
        while len(training) < 2:  # until both have told of a step
            line = killed.stderr.readline()
            assert line, "the command ended by itself"
            training |= set(re.findall(r"seed (\d): .* step", line))
        killed.kill()
        killed.stderr.read()  # which ends with the last worker
    assert len(list((tmp_path / "runs").glob("*.checkpoint"))) == 2


def test_a_summary_is_the_mean_and_deviation_over_seeds():
    experiment = read_experiment("toy", "8gaussians")
    runs = [Trial(experiment, experiment.variants["bnaf"], seed) for seed in (0, 1, 2)]
    excesses = [0.01, 0.02, 0.06]
    records = [
        {
            "measures": {"excess": one, "loss_error": one / 10, "missing_mass": 2 * one},
            "weights": 5,
            "seconds": 100 * one,
        }
        for one in excesses
    ]
    (summary,) = summarise(STUDIES["toy"], list(zip(runs, records, strict=True)))
    assert summary.excess == pytest.approx(0.03)
    assert summary.deviation == pytest.approx(0.0264575)
    assert (summary.seeds, summary.error, summary.target) == (3, 0.006, 0.02)
    assert summary.seconds == pytest.approx(3)
    table = write_markdown(STUDIES["toy"], [summary], {"8gaussians": experiment.claim})
    assert f"| 8gaussians | {experiment.claim} | B-NAF, our recipe | 0.0300 ± 0.0265 |" in table
    assert "| 0.0600 | `bnaf reproduce toy 8gaussians --flow bnaf` |" in table


def test_the_table_of_energies_has_the_mass_of_each_mode_beside_the_true_one(quick):
    table = (quick / "energy-part.md").read_text()
    assert re.search(r"\| left [01]\.\d{3} \(0\.500\), right [01]\.\d{3} \(0\.500\) \|", table)


def test_a_figure_shows_the_truth_and_every_flow_with_its_number(quick):
    runs = plan_trials([read_experiment("energy", "u1")], seeds=[0], steps=3, test_rows=500)
    ledger = Ledger(quick / "energy.json")
    panels = [(run, ledger.records[run.stem], flow_file(run, quick / "runs")) for run in runs]
    figure = draw_study(STUDIES["energy"], panels)
    assert [axes.get_title() for axes in figure.axes] == [
        "Target",
        *(run.variant.title for run in runs),
    ]
    for axes, (_, record, _) in zip(figure.axes[1:], panels, strict=True):
        assert axes.get_xlabel() == f"+ {record['measures']['excess']:.4f} nats"
    images = [axes.images[0] for axes in figure.axes]
    assert all(image.get_array().max() > 0 for image in images)
    limits = {image.get_clim() for image in images}
    assert limits == {(0, images[0].get_array().max())}  # one scale, that of the target


def test_figures_are_small(quick):
    for study in STUDIES:
        assert 5_000 < (quick / f"{study}-part.png").stat().st_size < 300_000
        assert (RESULTS / f"{study}.png").stat().st_size < 300_000


@pytest.mark.parametrize("study", STUDIES)
def test_the_results_kept_are_those_of_the_settings_and_reach_the_targets(study):
    runs = plan_trials([read_experiment(study, name) for name in experiment_names(study)])
    records = Ledger(RESULTS / f"{study}.json").records
    assert records.keys() == {run.stem for run in runs}
    summaries = summarise(STUDIES[study], [(run, records[run.stem]) for run in runs])
    claims = {run.experiment.name: run.experiment.claim for run in runs}
    table = write_markdown(STUDIES[study], summaries, claims)
    assert table == (RESULTS / f"{study}.md").read_text()
    assert all(one.excess < one.target for one in summaries if one.target)


def test_the_command_prints_the_table_and_names_the_files(quick):
    printed = (quick / "toy.txt").read_text()
    assert re.search(r"B-NAF, our recipe +\d+\.\d{4} ± \d+\.\d{4} +0\.02 ", printed)
    for name in ("toy.json", "toy-part.md", "toy-part.png"):
        assert f": {quick / name}\n" in printed
        assert (quick / name).exists()


def test_the_command_prints_json_for_programs(quick):
    facts = json.loads((quick / "energy.txt").read_text())
    seeds = {one["flow"]: one["seeds"] for one in facts["summaries"]}
    assert seeds == {"planar": 1, "planar-8": 1, "bnaf-paper": 3, "bnaf": 3}
    assert Path(facts["table"]).read_text().count("| u1 |") == len(seeds)


def test_the_command_takes_flows_and_seeds_as_lists(tmp_path):
    words = ["--steps", 1, "--test-rows", 50, "--out", tmp_path, "--workers", 1]
    result = succeed(
        "reproduce", "energy", "u2", "--flow", "bnaf,bnaf-paper", "--seeds", "3,4", *words
    )
    assert "bnaf: 4 of 4: u2, bnaf, seed 4: " in result.stderr
    assert len(Ledger(tmp_path / "energy.json").records) == 4


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tables"], 2, "No such command 'tables'"),
        (["toy", "u1"], 1, "got 'u1'"),
        (["toy", "--seeds", "a"], 2, "--seeds must be a whole number or a list"),
        (["toy", "--workers", "0"], 1, "workers must be a whole number of at least 1"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(tmp_path, words, code, message):
    result = run_command("reproduce", *words, "--out", tmp_path)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.split())


def test_a_fit_shows_its_progress_on_a_display_of_ones_own():
    class Display(Silence):
        interval = 0.0
        steps = 0

        def show(self, view):
            self.steps = view.step

        def close(self, summary):
            self.summary = summary

    display = Display()
    flow = BNAF(2, transforms=1, width=2)
    settings = TrainingSettings(steps=3)
    bnaf.fit(flow, torch.randn(9, 2), settings=settings, progress=display)
    assert display.steps == 3
    assert display.summary.startswith("budget: 3 steps")
