"""The command line: what each command reads, prints and writes, and how it ends."""

import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import QUICK, fill_folder, only_line, process, run, succeed
from typer.testing import CliRunner

import bnaf
from bnaf.cli.app import app
from bnaf.cli.files import write_rows
from bnaf.flows.registry import flow_names
from bnaf.tables.frames import read_frame
from bnaf.tables.reading import read_table
from bnaf.tables.table import Table
from bnaf.tables.writing import write_table

COMMANDS = ("fit", "score", "sample", "report", "plot", "info", "compare", "data")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fill_folder(tmp_path_factory.mktemp("cli"))


def test_ctrl_c_outside_a_fit_ends_with_130_and_writes_nothing(folder, tmp_path, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(bnaf.Model, "log_prob", interrupt)
    words = ["score", folder / "m.safetensors", folder / "t.csv", "--out", tmp_path / "s.csv"]
    result = run(*words)
    assert (result.exit_code, result.stderr) == (130, "bnaf: interrupted.\n")
    assert list(tmp_path.iterdir()) == []


def test_score_prints_the_mean_and_writes_nats_per_row(folder, tmp_path):
    words = ["score", folder / "m.safetensors", folder / "t.csv"]
    result = succeed(*words, "--out", tmp_path / "s.csv")
    scores = read_table(tmp_path / "s.csv")
    expected = bnaf.load(folder / "m.safetensors").log_prob(read_table(folder / "t.csv"))
    assert scores.columns == ("log_density",)
    torch.testing.assert_close(scores.rows[:, 0], expected)
    assert result.stdout.startswith(f"{expected.mean():.4f} ± ")
    assert "over 60 rows" in only_line(result.stdout)


def test_score_shows_the_least_likely_rows_first(folder):
    words = ["score", folder / "m.safetensors", folder / "t.csv", "--least", "3"]
    facts = json.loads(succeed(*words, "--json").stdout)
    table = read_table(folder / "t.csv")
    scores = bnaf.load(folder / "m.safetensors").log_prob(table)
    order = scores.argsort()[:3]
    assert [row["row"] for row in facts["least"]] == (order + 1).tolist()
    assert facts["least"][0]["values"]["k"] == table.rows[order[0], 2]
    assert facts["mean"] == pytest.approx(scores.mean().item())
    assert facts["standard_error"] == pytest.approx(scores.std().item() / 60**0.5)
    lines = succeed(*words).stdout.splitlines()
    assert lines[1].split() == ["row", "log_density", "a", "b", "k"]
    assert lines[2].split()[0] == str(order[0].item() + 1)


def test_columns_of_any_name_leave_numbers_and_scores_of_rows_alone(tmp_path):
    rows = torch.randn(40, 2, dtype=torch.float64) * 100
    write_table(Table(rows, ("row", "log_density")), tmp_path / "t.csv")
    succeed("fit", tmp_path / "t.csv", "--out", tmp_path / "m.safetensors", *QUICK)
    words = ["score", tmp_path / "m.safetensors", tmp_path / "t.csv", "--least", "1"]
    (found,) = json.loads(succeed(*words, "--json").stdout)["least"]
    scores = bnaf.load(tmp_path / "m.safetensors").log_prob(read_table(tmp_path / "t.csv"))
    assert found["row"] == scores.argmin() + 1
    assert found["log_density"] == pytest.approx(scores.min().item())
    assert found["values"]["row"] == pytest.approx(rows[scores.argmin(), 0].item())
    shown = succeed(*words).stdout.splitlines()[-2:]
    assert shown[0].split() == ["row", "log_density", "row", "log_density"]
    assert shown[1].split()[0] == str(found["row"])


def test_score_reads_only_the_columns_of_the_model(folder, tmp_path):
    (tmp_path / "t.csv").write_text("name,b,k,a\nAda,0.1,3,0.2\nBob,0.4,5,0.5\n")
    facts = json.loads(
        succeed("score", folder / "c.safetensors", tmp_path / "t.csv", "--json").stdout
    )
    assert facts["rows"] == 2


def test_sample_writes_names_types_and_order_of_the_table(folder, tmp_path):
    words = ["sample", folder / "m.safetensors", "-n", "7", "--seed", "0"]
    succeed(*words, "--out", tmp_path / "s.parquet")
    drawn = read_table(tmp_path / "s.parquet", warn=False)
    assert drawn.columns == ("a", "b", "k")
    assert drawn.types == ("float64", "float32", "int16")
    expected = bnaf.load(folder / "m.safetensors").sample(7, seed=0)
    torch.testing.assert_close(drawn.rows[:, 0], expected[:, 0])
    printed = succeed(*words).stdout.splitlines()
    assert printed[0] == "a,b,k"
    assert len(printed) == 8


def test_sample_takes_values_of_given_columns(folder):
    words = ["sample", folder / "c.safetensors", "-n", "4", "--seed", "0"]
    low, high = (succeed(*words, "--given", f"b={value}").stdout for value in (-2, 2))
    assert low.splitlines()[0] == "k,a"
    assert low != high


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ([], 1, "expects the given columns b; give them with --given"),
        (["--given", "b"], 2, "expects column=value"),
        (["--given", "b=much"], 1, "holds text such as 'much', expected numbers"),
        (["--given", "z=1"], 2, "the model can be given b"),
    ],
)
def test_sample_says_which_columns_it_is_given(folder, given, code, message):
    result = run("sample", folder / "c.safetensors", "-n", "1", *given)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_info_shows_flow_columns_and_training(folder):
    text = succeed("info", folder / "c.safetensors").stdout
    assert "model: bnaf with " in text
    assert "trained: 5 steps" in text
    assert re.search(r"^k +int\d+ ", text, re.MULTILINE)
    assert re.search(r"^b +given ", text, re.MULTILINE)
    facts = json.loads(succeed("info", folder / "c.safetensors", "--json").stdout)
    assert [column["name"] for column in facts["columns"]] == ["k", "a"]
    assert facts["weights"] == bnaf.load(folder / "c.safetensors").flow.parameter_count


def test_info_shows_a_bare_flow(tmp_path):
    bnaf.save(bnaf.BNAF(2, width=3), tmp_path / "f.safetensors")
    assert "flow: bnaf with " in succeed("info", tmp_path / "f.safetensors").stdout
    assert "x0" in succeed("sample", tmp_path / "f.safetensors", "-n", "1").stdout


def test_compare_ranks_flows_and_classical_densities(folder):
    words = ["compare", folder / "t.csv", "--flows", "bnaf,glow", *QUICK]
    facts = json.loads(succeed(*words, "--test", "0.25", "--json").stdout)
    entries = facts["entries"]
    assert (facts["train_rows"], facts["test_rows"]) == (45, 15)
    assert {entry["name"] for entry in entries} == {
        *("bnaf", "glow", "gaussian", "gaussian mixture", "kernel density")
    }
    means = [entry["mean"] for entry in entries]
    assert means == sorted(means, reverse=True)
    assert (entries[0]["behind"], entries[0]["behind_error"]) == (0, 0)
    for entry in entries:
        assert entry["standard_error"] > 0
        assert entry["behind"] == pytest.approx(means[0] - entry["mean"])
    lines = succeed(*words, "--test", folder / "t.parquet").stdout.splitlines()
    assert lines[1].split()[:3] == ["density", "nats", "±"]
    assert len(lines) == 7


def test_compare_ranks_all_flows_there_are(folder):
    words = ["compare", folder / "t.csv", "--flows", "all", *QUICK, "--json"]
    entries = json.loads(succeed(*words).stdout)["entries"]
    assert {*flow_names()} <= {entry["name"] for entry in entries}
    assert not [entry for entry in entries if entry["mean"] is None]


def test_compare_gives_the_gaussian_of_the_rows(folder):
    words = ["compare", folder / "t.csv", "--test", folder / "t.csv", "--flows", "bnaf", *QUICK]
    entries = json.loads(succeed(*words, "--json").stdout)["entries"]
    mean = next(entry["mean"] for entry in entries if entry["name"] == "gaussian")
    rows = read_table(folder / "t.csv").rows
    law = torch.distributions.MultivariateNormal(rows.mean(0), rows.T.cov(correction=0))
    assert mean == pytest.approx(law.log_prob(rows).mean().item(), abs=1e-4)


def test_compare_puts_what_cannot_be_fitted_last(folder):
    words = ["compare", folder / "t.csv", "--columns", "a", "--flows", "glow,bnaf", *QUICK]
    entries = json.loads(succeed(*words, "--json").stdout)["entries"]
    failed = [entry for entry in entries if entry["mean"] is None]
    assert entries[len(entries) - len(failed) :] == failed
    assert all(entry["note"] for entry in entries)


def test_data_lists_the_known_sets_with_their_sources():
    text = succeed("data").stdout
    known = json.loads(succeed("data", "--json").stdout)
    assert {"power", "gas", "hepmass", "miniboone", "bsds300", "mnist", "8gaussians", "u4"} <= {
        entry["name"] for entry in known
    }
    assert all(entry["source"] and entry["name"] in text for entry in known)


def test_data_says_where_files_go_and_what_is_missing(tmp_path):
    listed = succeed("data", "--data", tmp_path).stdout.splitlines()
    (gas,) = [line for line in listed if line.startswith("gas ")]
    assert gas.count("gas/ethylene_CO.pickle") == 2
    assert "gas/ethylene_CO.pickle or gas/ethylene_CO.txt" in gas
    assert "zenodo.org" in gas
    (tmp_path / "gas").mkdir()
    (tmp_path / "gas" / "ethylene_CO.txt").touch()
    listed = succeed("data", "--data", tmp_path).stdout
    assert "the published rows, for which gas/ethylene_CO.txt stands in" in listed


def test_fit_sets_test_rows_aside_and_report_judges_by_them(folder, tmp_path):
    model, out = tmp_path / "m.safetensors", tmp_path / "r.html"
    fitted = succeed("fit", folder / "t.csv", "--test", "0.25", "--out", model, *QUICK)
    assert "fitted to 45 rows" in fitted.stdout
    words = ["report", model, folder / "t.csv", "--out", out]
    facts = json.loads(succeed(*words, "--json", "--least", "4").stdout)
    assert facts["same_table"] is True
    assert facts["judged_by"] == "test"
    assert [entry["rows"] for entry in facts["standings"]] == [45, 15]
    assert len(facts["least"]) == 4
    assert facts["out"] == str(out)
    page = out.read_text()
    assert "<h1>t.csv</h1>" in page
    assert "bnaf score m.safetensors" in page
    again = run(*words)
    assert again.exit_code == 1
    assert "r.html exists, expected a new file; give another name, or --force." in again.stderr


def test_report_says_the_same_on_the_screen_and_names_the_page_after_the_model(folder, tmp_path):
    model = tmp_path / "c.safetensors"
    model.write_bytes((folder / "c.safetensors").read_bytes())
    lines = succeed("report", model, folder / "t.csv").stdout.splitlines()
    assert re.match(r"training rows: -\d+\.\d{4} ± .* above a Gaussian \(60 rows\)", lines[0])
    assert any(line.startswith("calibration: ") for line in lines)
    assert lines[-1] == f"report: {tmp_path / 'c.html'}"
    assert (tmp_path / "c.html").read_text().startswith("<!DOCTYPE html>")


def test_a_model_of_a_dequantised_table_remembers_its_noise(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i % 2},{i * i}\n" for i in range(50)))
    model = tmp_path / "m.safetensors"
    words = [tmp_path / "t.csv", "--dequantise"]
    succeed("fit", *words, "--out", model, "--seed", "4", *QUICK)
    report = ["report", model, "--json", "--force"]
    assert json.loads(succeed(*report, *words).stdout)["same_table"] is True
    assert json.loads(succeed(*report, words[0]).stdout)["same_table"] is True


def test_report_and_plots_go_to_standard_output(folder):
    text = (folder / "t.csv").read_text()
    page = succeed("report", folder / "m.safetensors", "-", "--out", "-", input=text)
    assert page.stdout.startswith("<!DOCTYPE html>")
    assert "report: -" in page.stderr
    drawn = succeed("plot", "training", folder / "m.safetensors", "--out", "-")
    assert drawn.stdout_bytes.startswith(b"\x89PNG")
    assert run("report", folder / "m.safetensors", "t.csv", "--out", "-", "--json").exit_code == 2
    assert run("report", "-", folder / "t.csv").exit_code == 2


@pytest.mark.parametrize(
    ("kind", "model", "more"),
    [
        ("density", "m", ["--columns", "k,b"]),
        ("density", "c", ["--given", "b=1"]),
        ("pairs", "m", ["t.csv", "--columns", "a,b"]),
        ("pairs", "c", ["t.csv"]),
        ("training", "m", []),
        ("calibration", "m", ["t.csv"]),
        ("scores", "c", ["t.csv"]),
    ],
)
def test_plot_draws_each_kind(folder, tmp_path, monkeypatch, kind, model, more):
    monkeypatch.chdir(folder)
    out = tmp_path / "f.svg"
    result = succeed("plot", kind, f"{model}.safetensors", *more, "--out", out)
    assert only_line(result.stdout).startswith(kind)
    assert str(out) in result.stdout
    assert out.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["pairs", "m.safetensors", "--out", "f.png"], 2, "pairs needs a table"),
        (["painting", "m.safetensors", "--out", "f.png"], 2, "density"),
        (["training", "m.safetensors", "t.csv", "--out", "f.png"], 2, "training takes no table"),
        (["scores", "m.safetensors", "t.csv", "-c", "a", "--out", "f.png"], 2, "no --columns"),
        (["pairs", "c.safetensors", "t.csv", "-g", "b=1", "--out", "f.png"], 2, "no --given"),
        (["density", "m.safetensors", "--out", "f.gif"], 1, "written as png, svg, pdf, got 'gif'"),
        (["density", "m.safetensors", "-c", "a", "--out", "f.png"], 1, "two of a, b, k, got a"),
        (["density", "c.safetensors", "--out", "f.png"], 1, "give them with --given"),
    ],
)
def test_plot_says_what_it_needs(folder, monkeypatch, words, code, message):
    monkeypatch.chdir(folder)
    result = run("plot", *words)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert not (folder / "f.png").exists()


def test_data_writes_a_table_that_comes_with_scikit_learn(tmp_path):
    assert "150 rows" in succeed("data", "iris", "--out", tmp_path / "iris.csv").stdout
    table = read_table(tmp_path / "iris.csv", warn=False)
    assert table.columns[0] == "sepal length (cm)"
    assert table.rows.shape == (150, 4)
    again = run("data", "iris", "--out", tmp_path / "iris.csv")
    assert "exists" in only_line(again.stderr)


def test_data_prepares_the_parts_of_a_public_table(tmp_path):
    (tmp_path / "miniboone").mkdir()
    np.save(tmp_path / "miniboone" / "data.npy", np.random.default_rng(0).normal(size=(100, 43)))
    listed = succeed("data", "--data", tmp_path, "--json").stdout
    known = {entry["name"]: entry for entry in json.loads(listed)}
    assert known["miniboone"]["found"]
    assert known["power"]["missing"] == ["power/data.npy"]
    words = ["data", "miniboone", "--data", tmp_path, "--out", tmp_path / "m.parquet", "--json"]
    result = succeed(*words)
    assert "100 rows of 36,488 in the literature" in only_line(result.stderr)
    parts = json.loads(result.stdout)
    assert [parts[part]["rows"] for part in ("train", "valid", "test")] == [81, 9, 10]
    assert read_table(tmp_path / "m.test.parquet", warn=False).rows.shape == (10, 43)
    streamed = run("data", "miniboone", "--data", tmp_path, "--out", "-")
    assert streamed.exit_code == 2
    assert "miniboone comes in 3 parts" in streamed.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["power"], 1, "power/data.npy, got no folder; fetch them"),
        (
            ["power", "--data", "."],
            1,
            "got nothing; fetch it from the source that bnaf data lists",
        ),
        (["mnist"], 1, "binarized_mnist_train.amat and"),
        (["u1"], 1, "must be that of a table"),
        (["nothing"], 1, "must be that of a table"),
    ],
)
def test_data_says_what_it_lacks(tmp_path, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    result = run("data", *words, "--out", "t.csv")
    assert result.exit_code == code
    assert message in only_line(result.stderr)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [("bnaf sc", "score"), ("bnaf fit --flow pl", "planar"), ("bnaf data wi", "wine")],
)
def test_shells_complete_commands_flows_and_data(shell, words, expected):
    environment = {
        "_BNAF_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    result = CliRunner(env=environment).invoke(app, [], prog_name="bnaf")
    assert expected in result.stdout


def test_streams_stand_for_files(folder):
    text = (folder / "t.csv").read_text()
    model = succeed("fit", "-", "--out", "-", *QUICK, input=text)
    assert "fitted to 60 rows" in model.stderr
    drawn = succeed("sample", "-", "-n", "6", "--seed", "1", input=model.stdout_bytes).stdout
    scores = succeed("score", folder / "m.safetensors", "-", "--out", "-", input=drawn)
    assert len(scores.stdout.splitlines()) == 7
    assert "over 6 rows" in only_line(scores.stderr)


def test_a_stream_stands_for_one_file(folder):
    assert run("score", "-", "-").exit_code == 2
    assert run("score", folder / "m.safetensors", "-", "--out", "-", "--json").exit_code == 2


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["fit", "t.csv", *QUICK], "m.safetensors"),
        (["score", "m.safetensors", "t.csv"], "t.parquet"),
        (["sample", "m.safetensors", "-n", "2"], "t.parquet"),
        (["plot", "training", "m.safetensors", "--image", "png"], "t.parquet"),
    ],
)
def test_nothing_is_overwritten_without_force(folder, tmp_path, monkeypatch, command, name):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / name).read_bytes()
    result = run(*command, "--out", name)
    assert result.exit_code == 1
    assert only_line(result.stderr) == (
        f"bnaf: {name} exists, expected a new file; give another name, or --force."
    )
    assert (tmp_path / name).read_bytes() == before
    succeed(*command, "--out", name, "--force")
    assert (tmp_path / name).read_bytes() != before


def test_a_missing_folder_is_told_before_the_work(folder, tmp_path):
    result = run("fit", folder / "t.csv", "--out", tmp_path / "no" / "m.safetensors")
    assert result.exit_code == 1
    assert "its folder does not exist; make it first" in only_line(result.stderr)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit"], "Missing argument 'TABLE'; see bnaf fit --help."),
        (["nonsense"], "No such command 'nonsense'; see bnaf --help."),
        (["--bogus"], "No such option: --bogus"),
        (["sample", "m.safetensors", "-n", "many"], "see bnaf sample --help."),
        (["data", "iris"], "--out FILE must say where to write the rows; see bnaf data --help."),
        (["fit", "t.csv", "--out", "new", "-c", "a,b", "-g", "b"], "'b' is both in --columns and"),
    ],
)
def test_wrong_usage_is_one_line_and_ends_with_2(folder, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert only_line(result.stderr).startswith("bnaf: ")
    assert message in result.stderr


def test_without_a_command_the_help_is_shown():
    assert "Exit codes:" in run().output


@pytest.mark.parametrize(
    "words",
    [
        ["score", "m.safetensors", "t.csv"],
        ["sample", "m.safetensors", "-n", "2"],
        ["data", "iris"],
    ],
)
@pytest.mark.parametrize("name", ["new.xlsx", "new.npz", "new.csv.gz"])
def test_tables_are_written_in_known_formats(folder, monkeypatch, words, name):
    monkeypatch.chdir(folder)
    result = run(*words, "--out", name)
    assert result.exit_code == 1
    assert only_line(result.stderr) == (
        f"bnaf: Tables are written as csv, parquet, npy, got the file name {name!r}; "
        "end it in .csv, .parquet or .npy."
    )
    assert not (folder / name).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["info", "none.safetensors"], "Expected a model file at none.safetensors, got nothing"),
        (["fit", "t.csv", "--out", "new", "--flow", "naf"], "flow must be one of bnaf, "),
        (["fit", "t.csv", "--out", "new", "--steps", "0"], "steps must be a whole number"),
        (["fit", "t.csv", "--out", "new", "-c", "z"], "Column 'z' not found; the table has"),
        (["fit", "t.csv", "--out", "new", "-g", "a,b,k"], "expected one to model at least"),
        (["compare", "t.csv", "--flows", "naf"], "flow must be one of bnaf, "),
        (["compare", "t.csv", "--test", "0"], "two rows to train on and one to test with"),
    ],
)
def test_errors_are_one_line_and_end_with_1(folder, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    result = run(*words)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert only_line(result.stderr).startswith("bnaf: ")
    assert message in result.stderr


def test_debug_shows_the_traceback_wherever_it_stands(tmp_path):
    for words in (["--debug", "info", tmp_path / "no"], ["info", tmp_path / "no", "--debug"]):
        result = run(*words)
        assert result.exit_code == 1
        assert "Traceback (most recent call last)" in result.stderr
        assert "StorageError" in result.stderr


def test_a_fault_says_so_and_ends_with_70(folder, monkeypatch):
    def fail(*args, **options):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(bnaf.Model, "log_prob", fail)
    result = run("score", folder / "m.safetensors", folder / "t.csv")
    assert result.exit_code == 70
    assert "unexpected ZeroDivisionError: by zero" in only_line(result.stderr)
    assert "--debug" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command):
    text = succeed(command, "--help").stdout
    assert "Examples:" in text
    assert f"bnaf {command}" in text
    assert "\x1b" not in text


def test_help_offers_silence_to_those_commands_alone_that_have_it():
    silent = {name for name in COMMANDS if "--quiet" in succeed(name, "--help").stdout}
    assert silent == {"fit", "compare"}


def test_help_of_all_lists_the_commands():
    text = succeed("--help").stdout
    assert "Examples:" in text
    assert all(re.search(rf"^\W*{command}\b", text, re.MULTILINE) for command in COMMANDS)
    assert "--install-completion" in text
    assert succeed("--version").stdout == f"bnaf {bnaf.__version__}\n"


def test_commands_are_piped_in_processes_without_colours(folder):
    text = (folder / "t.csv").read_bytes()
    done = process("fit", "-", "--out", "-", "--steps", "3", input=text, check=True)
    assert b"\x1b" not in done.stderr
    drawn = process("sample", "-", "-n", "3", input=done.stdout, check=True)
    assert len(drawn.stdout.splitlines()) == 4
    assert drawn.stderr == b""


def test_a_process_ends_with_the_code_of_its_error(tmp_path):
    done = process("info", tmp_path / "no.safetensors", text=True)
    assert done.returncode == 1
    assert only_line(done.stderr).startswith("bnaf: Expected a model file")
    assert done.stdout == ""


def test_escapes_in_names_do_not_reach_the_terminal(tmp_path):
    rows = torch.randn(30, 2, dtype=torch.float64)
    write_table(Table(rows, ("a\x1b[31m", "b\x07")), tmp_path / "t.csv")
    out = tmp_path / "m.safetensors"
    results = [succeed("fit", tmp_path / "t.csv", "--out", out, *QUICK)]
    results.append(succeed("info", out))
    results.append(succeed("score", out, tmp_path / "t.csv", "--least", "2"))
    results.append(run("fit", tmp_path / "t.csv", "--columns", "\x1b[2J", "--out", out, "-f"))
    for result in results:
        assert not set("\x1b\x07") & set(result.stdout + result.stderr)


class Terminal(io.StringIO):
    """Standard output of somebody who looks on."""

    def isatty(self):
        return True


def test_a_terminal_gets_no_control_characters_of_drawn_rows(monkeypatch):
    frame = read_frame({"a\x1b[31m": ["x\x07", "y\nz"]})
    monkeypatch.setattr("sys.stdout", Terminal())
    write_rows(frame, Path("-"))
    assert sys.stdout.getvalue().replace('"', "") == "a�[31m\nx�\ny\nz\n"


def test_a_pipe_gets_drawn_rows_as_they_are(tmp_path):
    flow = bnaf.BNAF(1, transforms=1, width=2)
    bnaf.save(bnaf.Model(flow, columns=["a\x1b[31m"]), tmp_path / "m.safetensors")
    drawn = succeed("sample", tmp_path / "m.safetensors", "-n", "1").stdout
    assert drawn.startswith("a\x1b[31m\n")


def test_tracebacks_hold_no_control_characters(tmp_path):
    result = run("--debug", "info", tmp_path / "no\x1b[31m")
    assert "Traceback" in result.stderr
    assert "\x1b" not in result.stderr


def test_another_flow_is_advised_as_an_option(folder):
    result = run("score", folder / "m.safetensors", folder / "t.csv", "--cells")
    assert result.exit_code == 1
    assert "--flow mixed" in only_line(result.stderr)


def test_every_option_in_an_example_is_one_the_command_has():
    for name in COMMANDS:
        text = succeed(name, "--help").stdout
        options, _, examples = text.partition("Examples:")
        for option in re.findall(r"(?<![-\w])--[a-z-]+", examples):
            assert option in options, (name, option)


@pytest.mark.parametrize(
    "record",
    [
        {"steps": 1, "reason": "budget", "seconds": [[1]]},
        {"steps": "many", "reason": "budget", "seconds": 1.0},
        {"history": [[1]]},
        {"history": {"a": 1}},
        {"history": [{"step": 1, "loss": "low", "valid": None}]},
        {"best_step": {}, "valid": 3},
        {"steps": 1, "reason": "budget", "seconds": None},
        {"seconds": 10**400},
        {"history": [{"step": 1, "loss": None, "valid": None}]},
        {"history": [{"step": None, "loss": 1.0, "valid": None}]},
        {"split": "x"},
        {"split": [[1]]},
        {"split": {"rows": 3, "valid": 2, "test": 1, "seed": 0}},
        {"grid": {"x0": "x"}},
        {"grid": [[1]]},
        {"grid": {"x0": -1.0}},
        {"grid": {"x0": float("inf")}},
        {"shift": None},
        {"shift": {"loss": "x"}},
    ],
)
def test_a_record_of_other_kinds_is_refused_when_it_is_saved_and_loaded(record, tmp_path):
    with pytest.raises(bnaf.StorageError, match="of the record is"):
        bnaf.save(bnaf.Model(bnaf.BNAF(2), record=record), tmp_path / "m.safetensors")


def test_a_table_is_told_from_a_model(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    with pytest.raises(bnaf.StorageError, match=r"x\.csv is no model file: it does not begin"):
        bnaf.load(tmp_path / "x.csv")
