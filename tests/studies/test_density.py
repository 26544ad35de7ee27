"""The study of the five tables: its files, runs, results, tables and picture."""

import dataclasses
import json
import math
import signal

import numpy as np
import pytest
import torch
from commands import run as run_command
from commands import succeed
from patches import with_few_patches

import bnaf
from bnaf import Model, SettingsError, TableError, TrainingSettings
from bnaf.datasets.suite import SUITE
from bnaf.evaluation.scores import paired_error
from bnaf.flows.bnaf import BNAF
from bnaf.flows.registry import flow_names
from bnaf.studies.density.contestants import OURS, contestants, read_plan
from bnaf.studies.density.curves import draw_curves, with_curves
from bnaf.studies.density.published import (
    model_names,
    published_naf,
    published_score,
    set_titles,
)
from bnaf.studies.density.reproduction import open_ledger, reproduce_density, write_picture
from bnaf.studies.density.rows import StudyRows
from bnaf.studies.density.running import carry_out, measure, model_file
from bnaf.studies.density.tables import density_sheet, detail_sheet, stand, weights_sheet
from bnaf.studies.density.trials import DensityTrial, Limits, plan_best_rivals, plan_runs
from bnaf.training.progress import Silence

LIMITS = Limits(steps=3, test_rows=20)
PART = {"datasets": ["power"], "flows": ["bnaf", "gaussian"], "seeds": [0, 1]}
PART |= {"limits": LIMITS, "quiet": True}
QUICK = ["--steps", 3, "--test-rows", 20, "--quiet"]


def draw(rows, columns, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def write_tables(folder):
    """Write small files of the formats of all five tables."""
    for name in ("power", "gas", "hepmass", "miniboone", "BSDS300"):
        (folder / name).mkdir(parents=True)
    np.save(folder / "power" / "data.npy", draw(300, 8))
    gas = draw(300, 19)
    gas[:, 11:] = gas[:, 3:11] + 1e-3 * draw(300, 8, seed=1)
    np.savetxt(folder / "gas" / "ethylene_CO.txt", gas, header="names", comments="")
    for part, extra in (("train", 0), ("test", 1)):
        rows = draw(300, 29 + extra, seed=extra)
        rows[:, 0] = 1
        rows[:, 2:9] = rows[:, 2:9].clip(min=0)
        path = folder / "hepmass" / f"1000_{part}.csv"
        np.savetxt(path, rows, delimiter=",", header=",".join("f" * 29), comments="")
    np.save(folder / "miniboone" / "data.npy", draw(300, 43))
    levels = np.random.default_rng(0).integers(0, 256, (6, 12, 12), dtype=np.uint8)
    np.savez(folder / "BSDS300" / "bsds300_images.npz", train=levels[:4], test=levels[4:])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_tables(folder)
    return folder


@pytest.fixture(autouse=True)
def few_patches(monkeypatch):
    monkeypatch.setitem(SUITE, "bsds300", with_few_patches(200, 60, 60))


def make_run(name, flow, seed=0, limits=LIMITS, settings=None):
    one = contestants(name)[flow]
    one = one if settings is None else dataclasses.replace(one, settings=settings)
    return DensityTrial(name, one, seed, ("files",), limits)


SMALL = {"transforms": 1, "width": 2}


def test_every_flow_of_the_registry_is_a_contestant_on_every_table():
    for name in SUITE:
        found = contestants(name)
        flows = {*found} | {one.flow for one in found.values()}
        assert flows & {*flow_names()} == {*flow_names()} - {"planar", "iaf", "sylvester"}
        assert contestants(name)[OURS].planned


def without_context(settings):
    return {key: value for key, value in settings.items() if not key.startswith("context")}


def test_the_network_and_the_training_of_the_paper_are_the_published_ones():
    for name, published in SUITE.items():
        run = make_run(name, "bnaf-paper", limits=Limits())
        width = run.contestant.settings["width"]
        expected = BNAF.paper(published.columns, transforms=5, hidden_layers=2, width=width)
        assert without_context(run.build().settings) == without_context(expected.settings)
        paper = TrainingSettings.paper(seconds=read_plan().seconds)
        assert run.training == paper
        assert not run.contestant.standardised


def test_the_grid_of_the_paper_is_there_where_it_is_asked_for():
    for name in SUITE:
        grid = {key: one for key, one in contestants(name).items() if "paper-" in key}
        assert len(grid) == 6
        assert not any(one.planned for one in grid.values())
        one = grid["bnaf-paper-1x20"]
        assert (one.settings["hidden_layers"], one.settings["width"]) == (1, 20)
        assert one.settings["transforms"] == 5
        assert one.training == contestants(name)["bnaf-paper"].training


def test_table_2_of_the_paper_follows_from_what_is_counted():
    rows = weights_sheet().rows
    assert len(rows) == 5
    for row, name in zip(rows, SUITE, strict=True):
        weights = int(row[2].replace(",", ""))
        for naf in published_naf(name):
            assert abs(naf.weights / weights - naf.quotient) < 0.005 + 1e-9


def test_published_numbers_are_those_of_the_paper():
    assert [str(published_score("bnaf-paper", name)) for name in SUITE] == [
        *("0.61 ± 0.01", "12.06 ± 0.09", "-14.71 ± 0.38", "-8.95 ± 0.07", "157.36 ± 0.03")
    ]
    assert list(set_titles()) == list(SUITE)
    assert {"real-nvp", "maf", "ffjord", "tan", "trade", "nsf"} <= {*model_names()}


def test_published_numbers_of_two_sources_are_told_apart():
    assert [published_score("naf-ddsf", name).mean for name in ("gas", "bsds300")] == [
        *(11.96, 157.43)
    ]
    (note,) = [note for note in density_sheet({}).notes if note.startswith("NAF-DDSF: ")]
    assert "11.91 and 157.73 with 5" in note


def test_names_that_do_not_exist_are_refused():
    with pytest.raises(SettingsError, match=r"dataset must be one of power, .* got 'iris'"):
        contestants("iris")
    with pytest.raises(SettingsError, match=r"flow must be one of gaussian, .* got 'nothing'"):
        plan_runs({"power": ()}, flows=["nothing"])


def test_first_seeds_come_first_and_the_long_run_last():
    runs = plan_runs({"power": (), "bsds300": ()})
    assert [run.seed for run in runs] == [*sorted(run.seed for run in runs[:-1]), 0]
    assert runs[-1].contestant.name == "bnaf-long"
    assert {run.seed for run in runs if run.contestant.name == OURS} == {0, 1, 2}


def test_all_runs_but_the_long_one_have_the_same_time():
    runs = plan_runs(dict.fromkeys(SUITE, ()))
    budgets = {run.budget for run in runs if not run.contestant.last}
    assert budgets == {read_plan().seconds}
    (longest,) = [run.budget for run in runs if run.contestant.last]
    assert longest is not None
    assert longest > 10 * read_plan().seconds


def score(run, mean):
    return {run.stem: {"failure": None, "measures": {"mean": mean}}}


def test_the_best_rivals_get_the_seeds_of_ours_once_all_are_run():
    base = contestants("power")["glow"]
    rivals = [dataclasses.replace(base, name=f"rival-{number}") for number in range(4)]
    runs = [DensityTrial("power", one, 0) for one in rivals]
    runs += [make_run("power", OURS, seed, Limits()) for seed in (0, 1, 2)]
    records = {}
    for run, mean in zip(runs, (0.1, 0.4, 0.2, 0.3, 0.0, 0.0, 0.0), strict=True):
        records |= score(run, mean)
    more = plan_best_rivals(runs, records)
    assert [(run.contestant.name, run.seed) for run in more] == [
        *(("rival-1", 1), ("rival-1", 2), ("rival-3", 1), ("rival-3", 2))
    ]
    records[runs[1].stem]["failure"] = "TrainingError"
    assert {run.contestant.name for run in plan_best_rivals(runs, records)} == {
        *("rival-3", "rival-2")
    }
    del records[runs[0].stem]
    assert plan_best_rivals(runs, records) == []


def test_a_run_is_another_where_its_settings_files_or_limits_are():
    run = make_run("power", OURS)
    others = [
        dataclasses.replace(run, seed=1),
        dataclasses.replace(run, limits=Limits(steps=4, test_rows=20)),
        dataclasses.replace(run, edition=("other",)),
        dataclasses.replace(
            run, contestant=dataclasses.replace(run.contestant, settings={"width": 3})
        ),
    ]
    assert len({one.stem for one in (run, *others)}) == 5
    assert run.stem == make_run("power", OURS).stem


@pytest.mark.parametrize("name", SUITE)
def test_every_table_is_fitted_and_measured(data, tmp_path, name):
    rows = StudyRows.read(name, data)
    record = carry_out(make_run(name, OURS, settings=SMALL), rows, tmp_path, Silence())
    assert record["failure"] is None
    assert record["steps"] == 3
    assert math.isfinite(record["measures"]["mean"])
    assert record["data"] == rows.table.exactness
    json.dumps(record, allow_nan=False)


def test_numbers_are_told_in_the_units_of_the_table(data, tmp_path):
    rows = StudyRows.read("bsds300", data)
    run = make_run("bsds300", OURS, settings=SMALL)
    record = carry_out(run, rows, tmp_path, Silence())
    model = bnaf.load(model_file(run, tmp_path))
    test = rows.table.parts.test.rows[:20]
    assert record["measures"]["mean"] == pytest.approx(model.log_prob(test).mean().item())
    moments = model.standardisation
    torch.testing.assert_close(moments.location, rows.table.parts.train.rows.mean(0))
    valid = model.log_prob(rows.table.parts.valid.rows).mean().item()
    assert record["curve"]["valid"][-1] == pytest.approx(valid, abs=1e-3)
    assert record["measures"]["valid"] == pytest.approx(valid, abs=1e-3)


def test_the_network_of_the_paper_sees_rows_as_they_are(data, tmp_path):
    run = make_run("bsds300", "bnaf-paper", settings=SMALL)
    carry_out(run, StudyRows.read("bsds300", data), tmp_path, Silence())
    scales = bnaf.load(model_file(run, tmp_path)).standardisation
    assert torch.equal(scales.scale, torch.ones(63, dtype=torch.float64))


def test_fresh_patches_are_trained_on(data, tmp_path):
    run = make_run("bsds300", "bnaf-long-fresh", settings=SMALL)
    record = carry_out(run, StudyRows.read("bsds300", data), tmp_path, Silence())
    assert record["failure"] is None
    assert record["train_rows"] is None
    assert record["fresh"]


class After(Silence):
    """Display with something that happens after one of the steps."""

    interval = 0.0

    def __init__(self, step, happen):
        self.step, self.happen = step, happen

    def show(self, view):
        if view.step == self.step:
            self.happen()


def stop():
    """Ask this process to stop."""
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(("flow", "settings"), [(OURS, SMALL), ("glow", {"transforms": 1})])
def test_a_run_that_was_cut_short_goes_on_to_the_same_numbers(data, tmp_path, flow, settings):
    rows = StudyRows.read("power", data)
    run = make_run("power", flow, limits=Limits(steps=4, test_rows=20), settings=settings)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    record = carry_out(run, rows, whole, Silence())
    with pytest.raises(KeyboardInterrupt):
        carry_out(run, rows, parts, After(2, stop))
    assert [path.suffix for path in parts.iterdir()] == [".checkpoint"]
    resumed = carry_out(run, rows, parts, Silence())
    assert resumed["measures"] == record["measures"]
    assert [path.suffix for path in parts.iterdir()] == [".safetensors"]


def test_time_that_was_spent_before_counts(data, clock, tmp_path):
    rows = StudyRows.read("power", data)
    run = make_run("power", OURS, limits=Limits(seconds=10.0, steps=9, test_rows=20))

    def wait():
        clock.go_on(6.0)

    def wait_and_stop():
        wait()
        stop()

    with pytest.raises(KeyboardInterrupt):
        carry_out(run, rows, tmp_path, After(2, wait_and_stop))
    record = carry_out(run, rows, tmp_path, After(4, wait))
    assert (record["reason"], record["steps"]) == ("budget", 5)  # twice 6 seconds are over 10


def test_a_run_that_fails_is_recorded_with_the_reason(data, tmp_path):
    run = make_run("power", OURS)
    wrong = dataclasses.replace(run.contestant, training={"learning_rate": 1e30, "clip": None})
    run = dataclasses.replace(run, contestant=wrong, limits=Limits(steps=40, test_rows=20))
    record = carry_out(run, StudyRows.read("power", data), tmp_path, Silence())
    assert record["failure"]
    assert record["measures"] is None


def test_the_error_of_a_difference_follows_from_blocks_of_rows():
    generator = torch.Generator().manual_seed(0)
    first, noise = torch.randn(2, 25_600, generator=generator, dtype=torch.float64)
    second = first + 0.1 * noise + 0.5
    gap = paired_error(measure(second)["blocks"], measure(first)["blocks"])
    exact = (second - first).std().item() / math.sqrt(25_600)
    assert gap == pytest.approx(exact, rel=0.2)
    assert gap < 0.2 * measure(first)["error"]


def test_scores_that_are_not_finite_are_a_failure():
    with pytest.raises(bnaf.BnafError, match="1 of 2 test rows have no finite log-density"):
        measure(torch.tensor([0.0, -torch.inf], dtype=torch.float64))


def test_a_run_whose_scores_fail_keeps_its_checkpoint(data, tmp_path, monkeypatch):
    run = dataclasses.replace(make_run("power", OURS), limits=Limits(steps=3, test_rows=20))
    rows = StudyRows.read("power", data)
    with monkeypatch.context() as broken:
        nothing = torch.full((20,), torch.nan, dtype=torch.float64)
        broken.setattr(Model, "log_prob", lambda *_, **__: nothing)
        assert carry_out(run, rows, tmp_path, Silence())["failure"]
    assert (tmp_path / f"{run.stem}.checkpoint").exists()
    again = carry_out(run, rows, tmp_path, Silence())
    assert (again["failure"], again["steps"]) == (None, 3)
    assert not (tmp_path / f"{run.stem}.checkpoint").exists()


@pytest.fixture(scope="module")
def quick(data, tmp_path_factory):
    """Hold a quick version of a part of the study."""
    out = tmp_path_factory.mktemp("density")
    reproduce_density(out=out, data=data, **PART)
    return out


@pytest.mark.slow
def test_the_whole_plan_is_run_and_the_best_rivals_with_more_seeds(data, tmp_path):
    told = []
    options = {"limits": LIMITS, "quiet": True, "announce": told.append}
    reproduce_density(out=tmp_path, data=data, datasets=["power", "bsds300"], **options)
    assert told[-1] == "nothing is left to do"
    for name in ("power", "bsds300"):
        seeds = {}
        for record in open_ledger(tmp_path).records.values():
            if record["name"] == name:
                assert record["failure"] is None
                seeds.setdefault(record["flow"], []).append(record["seed"])
        assert seeds.keys() == {run.contestant.name for run in plan_runs({name: ()})}
        assert sorted(seeds[OURS]) == [0, 1, 2]
        rivals = [flow for flow in seeds if contestants(name)[flow].rival]
        several = [flow for flow in rivals if len(seeds[flow]) == 3]
        assert len(several) == min(len(rivals), read_plan().best_rivals)


def test_what_is_finished_is_not_run_again(quick, data):
    before, told = (quick / "density.json").read_bytes(), []
    reproduce_density(out=quick, data=data, announce=told.append, **PART)
    assert told == ["nothing is left to do"]
    assert (quick / "density.json").read_bytes() == before


def test_tables_that_are_not_there_are_told_and_left_out(data, tmp_path):
    told = []
    (tmp_path / "power").mkdir()
    np.save(tmp_path / "power" / "data.npy", draw(300, 8))
    options = {"flows": ["gaussian"], "limits": LIMITS, "quiet": True}
    reproduce_density(out=tmp_path, data=tmp_path, announce=told.append, **options)
    left_out = [line for line in told if "is left out" in line]
    assert [line.split()[0] for line in left_out] == ["gas", "hepmass", "miniboone", "bsds300"]
    assert "gas/ethylene_CO.pickle is not in" in left_out[0]
    with pytest.raises(TableError, match="gas expects a file"):
        reproduce_density(out=tmp_path, data=tmp_path, datasets=["gas"], **options)
    with pytest.raises(SettingsError, match="got no folder of them; give folder="):
        reproduce_density(out=tmp_path, data=None, **options)


def test_a_record_says_all_it_takes_to_repeat_the_run(quick):
    records = open_ledger(quick).records.values()
    (record,) = [one for one in records if (one["flow"], one["seed"]) == (OURS, 0)]
    assert record["command"] == (
        "bnaf reproduce density --dataset power --flow bnaf --seeds 0, --steps 3 --test-rows 20 "
        "--data DIR"
    )
    assert BNAF(**record["settings"]).parameter_count == record["weights"]
    assert record["budget"] == read_plan().seconds
    assert len(record["curve"]["seconds"]) == len(record["curve"]["valid"]) > 0


def test_lists_of_numbers_stand_on_one_line(quick):
    lines = (quick / "density.json").read_text().splitlines()
    lists = [line for line in lines if '"blocks": [' in line]
    assert len(lists) == 4
    assert all(line.count(",") >= 19 and "]" in line for line in lists)


def made_record(flow, blocks, seed=0, **more):
    measures = {"rows": 6, "mean": sum(blocks) / len(blocks), "error": 0.1, "blocks": blocks}
    facts = {"name": "power", "flow": flow, "title": flow.title(), "seed": seed}
    facts |= {"limits": [None] * 3, "budget": 300, "failure": None, "data": "all rows"}
    facts |= {"weights": 5, "steps": 7, "seconds": 300.0, "measures": measures}
    facts |= {"date": "2026-01-01", "machine": "one", "threads": 2}
    facts |= {"curve": {"seconds": [1.0, 2.0, 3.0], "valid": [0.0, 0.5, 0.7]}}
    return facts | more


def as_records(*records):
    return {str(number): record for number, record in enumerate(records)}


def test_differences_over_seeds_have_an_error_of_their_own():
    ours = [made_record(OURS, [mean, mean], seed) for seed, mean in enumerate((1.0, 1.2, 1.4))]
    rivals = [made_record("maf", [mean, mean], seed) for seed, mean in enumerate((0.5, 0.5))]
    found = stand(as_records(*ours, *rivals))["power"]
    assert found["maf"].error_over_seeds(found[OURS]) == pytest.approx(0.1)  # of 0.5 and 0.7
    rows = {row[0]: row for row in detail_sheet("power", found).rows}
    assert rows["Maf"][3].endswith("(seeds: ± 0.100)")
    alone = stand(as_records(ours[0], rivals[0]))["power"]
    assert alone["maf"].error_over_seeds(alone[OURS]) is None


def test_a_standing_is_paired_row_by_row_with_ours():
    rival = made_record("maf", [1.0, 2.0, 3.0])
    ours = [made_record(OURS, [1.5, 2.5, 3.7], 0), made_record(OURS, [1.5, 2.7, 3.5], 1)]
    gaussian = made_record("gaussian", [-5.0, -5.0, -5.0])
    found = stand(as_records(rival, *ours, gaussian))["power"]
    gap, error = found["maf"].behind(found[OURS])
    assert gap == pytest.approx(17 / 30)
    gaps = torch.tensor([0.5, 0.6, 0.6], dtype=torch.float64)
    assert error == pytest.approx(gaps.std().item() / math.sqrt(3))
    sheet = detail_sheet("power", found)
    assert [row[0] for row in sheet.rows] == ["Bnaf", "Maf", "Gaussian"]
    assert sheet.rows[1][3] == f"{gap:.3f} ± {error:.3f}"
    assert sheet.rows[1][4:6] == ["7.00", "7.98"]  # ours and what was published, 0.24 + 7.74
    assert sheet.rows[0][-1] == "0, 1"


def test_table_1_has_published_numbers_beside_ours_and_says_what_they_rest_on():
    failed = made_record("glow", [0.0], failure="TrainingError: no", measures=None)
    sheet = density_sheet(stand(as_records(made_record("maf", [1.0, 2.0]), failed)))
    assert list(sheet.headers[1:4]) == ["POWER, published", "POWER, here", "GAS, published"]
    rows = {row[0]: row[1:] for row in sheet.rows}
    assert rows["Maf"][:2] == ["0.24 ± 0.01", "1.50"]
    assert rows["Glow"][:2] == ["0.17 ± 0.01", "failed"]
    assert rows["TAN"][:2] == ["0.60 ± 0.01", "–"]
    notes = " ".join(sheet.notes)
    assert "POWER: all rows. Not run: GAS, HEPMASS, MINIBOONE, BSDS300." in notes
    assert "Each run was trained for 300 s at most" in notes
    assert "| Maf | 0.24 ± 0.01 | 1.50 |" in sheet.as_markdown()


def test_runs_that_failed_are_counted_beside_those_that_did_not():
    failed = [
        made_record(OURS, [0.0], seed, failure="no memory", measures=None) for seed in (1, 2)
    ]
    standings = stand(as_records(made_record(OURS, [1.0, 2.0]), *failed))
    rows = {row[0]: row[1:] for row in density_sheet(standings).rows}
    assert rows["Bnaf"][1] == "1.50 (2 of 3 runs failed)"
    sheet = detail_sheet("power", standings["power"])
    assert sheet.rows[0][1] == "1.50 (2 of 3 runs failed)"
    assert sheet.notes[1] == "Bnaf (2 of 3 runs failed): no memory."


def test_a_long_run_is_told_apart_from_those_of_the_one_limited_time():
    short = [made_record(flow, [5.0, 6.0], name="bsds300") for flow in (OURS, "maf")]
    long = made_record("bnaf-long", [7.0, 8.0], name="bsds300", budget=9000, seconds=9000.0)
    long["measures"]["rows"] = 10
    standings = stand(as_records(*short, long))
    assert "trained for 300 s at most" in " ".join(density_sheet(standings).notes)
    sheet = detail_sheet("bsds300", standings["bsds300"])
    assert sheet.notes[0].startswith("6 test rows (Bnaf-Long: 10); all rows.")
    assert [row[3] for row in sheet.rows] == ["", "", "0.000 ± 0.000"]
    assert list(with_curves(standings)["bsds300"]) == [OURS, "maf"]


def test_without_results_the_tables_say_so():
    assert "Nothing was run here yet" in density_sheet({}).notes[-1]


def test_runs_under_other_limits_are_not_mixed():
    quick = made_record("maf", [1.0, 2.0], limits=[5, None, None])
    assert stand(as_records(quick)) == {}
    assert "maf" in stand(as_records(quick), Limits(5))["power"]


def test_the_picture_has_a_curve_for_every_flow_on_every_table():
    records = [made_record(flow, [1.0, 2.0]) for flow in (OURS, "maf", "tan")]
    records += [made_record("maf", [1.0, 2.0], name="gas"), made_record("gaussian", [0.0])]
    records[-1] |= {"budget": None}
    del records[-1]["curve"]
    figure = draw_curves(stand(as_records(*records)))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["POWER", "GAS"]
    first, second = figure.axes
    assert [line.get_label() for line in first.get_lines()] == ["Bnaf", "Maf", "Tan"]
    assert [line.get_label() for line in second.get_lines()] == ["Maf"]
    ours, maf, _ = first.get_lines()
    assert ours.get_linewidth() > maf.get_linewidth()
    assert maf.get_color() == second.get_lines()[0].get_color()
    np.testing.assert_array_equal(ours.get_ydata(), [0.0, 0.5, 0.7])
    assert len(figure.legends[0].get_texts()) == 3


def test_a_picture_of_nothing_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"expects runs with a curve, got none; run bnaf"):
        write_picture(tmp_path)
    assert write_picture(tmp_path, needed=False) is None


def test_the_command_runs_prints_and_draws(data, tmp_path):
    words = ["--dataset", "gas,hepmass", "--flow", "bnaf,gaussian", "--seeds", "1"]
    words += ["--data", data, "--out", tmp_path, *QUICK]
    printed = succeed("reproduce", "density", *words).stdout
    assert "GAS, here" in printed
    assert "B-NAF, our recipe" in printed
    for name in ("density.json", "density.png"):
        assert f": {tmp_path / name}\n" in printed
        assert (tmp_path / name).exists()
    assert (tmp_path / "density.md").read_text().count("| B-NAF, our recipe |") == 3


def test_the_command_prints_stored_results_alone(quick):
    printed = succeed("reproduce", "density", "--table", "--out", quick, *QUICK).stdout
    assert printed.startswith("Table 1")
    assert "43.97" in printed
    listed = succeed("reproduce", "density", "--table", "--out", quick, *QUICK, "--json").stdout
    facts = json.loads(listed)
    ours = [one for one in facts["standings"] if one["flow"] == OURS]
    assert ours[0]["seeds"] == [0, 1]
    assert "figure" not in facts
    drawn = succeed("reproduce", "density", "--plot", "--out", quick, *QUICK, "--json").stdout
    assert json.loads(drawn)["figure"] == str(quick / "density.png")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["density"], 1, "got no folder of them; give --data DIR"),
        (["density", "--data", ".", "--workers", "2"], 2, "No such option: --workers"),
        (["density", "--data", ".", "--dataset", "iris"], 1, "dataset must be one of power"),
        (["density", "--data", ".", "--seconds", "0"], 1, "seconds must be a positive"),
        (["density", "--plot"], 1, "expects runs with a curve"),
        (["toy", "--table"], 2, "No such option: --table"),
        (["toy", "--seconds", "3"], 2, "No such option: --seconds"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(tmp_path, words, code, message):
    result = run_command("reproduce", *words, "--out", tmp_path)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.split())
