"""``bnaf fit``: tables, good and bad, and what becomes of them."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import torch
from commands import QUICK, fill_folder, only_line, process, run, succeed

import bnaf
from bnaf.tables.reading import read_table
from bnaf.tables.table import Table
from bnaf.tables.writing import write_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fill_folder(tmp_path_factory.mktemp("cli"))


def test_fit_writes_a_model_of_the_columns(folder):
    model = bnaf.load(folder / "m.safetensors")
    assert model.columns == ("a", "b", "k")
    assert model.types == ("float64", "float32", "int16")
    assert model.record["steps"] == 5


def test_fit_takes_columns_by_name_and_conditions_on_others(folder):
    model = bnaf.load(folder / "c.safetensors")
    assert model.columns == ("k", "a")
    assert model.given_columns == ("b",)


def test_fit_says_what_it_did(folder, tmp_path):
    result = succeed("fit", folder / "t.csv", "--out", tmp_path / "m.safetensors", *QUICK)
    assert "fitted to 60 rows of 3 columns" in result.stdout
    assert re.search(r"log-likelihood -\d+\.\d{4} nats per row", result.stdout)
    assert result.stderr == ""


def test_fit_as_json_tells_the_log_likelihood_in_the_units_of_the_table(folder, tmp_path):
    words = ["fit", folder / "t.csv", "--out", tmp_path / "m.safetensors", "--json", *QUICK]
    facts = json.loads(succeed(*words, "--valid", "0.2", "--seed", "3").stdout)
    model = bnaf.load(tmp_path / "m.safetensors")
    valid = model.standardisation.log_det - model.record["valid"]
    assert facts["training"]["valid_log_likelihood"] == pytest.approx(valid)
    assert facts["training"]["settings"]["seed"] == 3
    assert facts["rows"] == 60


def test_fit_takes_a_file_of_validation_rows(folder, tmp_path):
    words = ["fit", folder / "t.csv", "--valid", folder / "t.parquet", *QUICK]
    succeed(*words, "--out", tmp_path / "m.safetensors")
    assert bnaf.load(tmp_path / "m.safetensors").record["valid"] is not None


@pytest.mark.parametrize("flow", ["glow", "planar"])
def test_fit_takes_any_flow_of_the_registry(folder, tmp_path, flow):
    words = ["fit", folder / "t.csv", "--flow", flow, *QUICK]
    succeed(*words, "--out", tmp_path / "m.safetensors")
    facts = json.loads(succeed("info", tmp_path / "m.safetensors", "--json").stdout)
    assert facts["flow"] == flow


def test_fit_resumes_from_its_checkpoint(folder, tmp_path):
    words = ["fit", folder / "t.csv", "--checkpoint", tmp_path / "run.ckpt", *QUICK]
    succeed(*words, "--out", tmp_path / "1.safetensors")
    succeed(*words, "--out", tmp_path / "2.safetensors")
    first, second = (bnaf.load(tmp_path / f"{i}.safetensors") for i in (1, 2))
    assert first.record == second.record  # to the second: it was not run again
    torch.testing.assert_close(first.flow.state_dict(), second.flow.state_dict(), rtol=0, atol=0)
    other = run(*words, "--seed", "8", "--out", tmp_path / "3.safetensors")
    assert other.exit_code == 1
    assert "checkpoint of another run" in only_line(other.stderr)


def test_the_same_command_goes_on_where_its_model_and_checkpoint_are(folder, tmp_path):
    words = ["fit", folder / "t.csv", "--checkpoint", tmp_path / "run.ckpt", *QUICK]
    words += ["--out", tmp_path / "m.safetensors"]
    succeed(*words)
    first = (tmp_path / "m.safetensors").read_bytes()
    succeed(*words)
    bnaf.save(bnaf.load(folder / "m.safetensors"), tmp_path / "m.safetensors")
    refused = run(*words)
    assert refused.exit_code == 1
    assert "m.safetensors exists, expected a new file" in only_line(refused.stderr)
    (tmp_path / "m.safetensors").write_bytes(first)
    (tmp_path / "run.ckpt").unlink()
    assert run(*words).exit_code == 1


def test_a_model_that_cannot_be_written_is_kept_elsewhere(folder, tmp_path, monkeypatch):
    place, rescue = tmp_path / "place", tmp_path / "rescue"
    place.mkdir()
    rescue.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(rescue))
    fit = bnaf.Model.fit

    def unplug(*args, **options):
        model = fit(*args, **options)
        place.rmdir()
        place.write_text("")
        return model

    monkeypatch.setattr(bnaf.Model, "fit", unplug)
    result = run("fit", folder / "t.csv", "--out", place / "m.safetensors", *QUICK)
    assert result.exit_code == 1
    (kept,) = rescue.iterdir()
    told, refusal = result.stderr.splitlines()
    assert told == f"bnaf: the model is kept in {kept}."
    assert "m.safetensors cannot be written" in refusal
    assert bnaf.load(kept).record["steps"] == 5


BAD = {
    "text": ("a,city\n1,Oslo\n2,Rome\n", "'city' (text, such as 'Oslo') holds text", "--columns."),
    "missing": ("a,b\n1,\n2,3\n4,5\n", "'b' (1 missing)", "1 of 3 rows with --drop-missing."),
    "infinite": ("a,b\n1,inf\n2,3\n4,5\n", "'b' holds 1 infinite", "--drop-missing."),
    "duplicate": ("a,b,a\n1,2,3\n4,5,6\n", "got 'a' 2 times", "rename them."),
    "empty": ("", "is empty", "write it again."),
    "delimiter": ("a;b\n1,5;2\n3,5;4\n", "a semicolon", "--delimiter ';' and --decimal ','."),
    "header": ("1.5,2\n3,4\n", "begins with numbers", "--no-header."),
    "no_rows": ("a,b\n", "has no rows", "expected one row at least."),
}
NUMBERS_ONLY = ("text", "missing")  # what is bad for a flow of plain numbers alone


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_refused_in_one_line_with_what_to_do(tmp_path, name):
    text, found, remedy = BAD[name]
    (tmp_path / "t.csv").write_text(text)
    words = ["fit", tmp_path / "t.csv", "--out", tmp_path / "m.safetensors", *QUICK]
    if name in NUMBERS_ONLY:
        words += ["--flow", "glow"]
    result = run(*words)
    assert result.exit_code == 1
    line = only_line(result.stderr)
    assert line.startswith("bnaf: ")
    assert found in line
    assert line.endswith(remedy)
    assert not (tmp_path / "m.safetensors").exists()


def test_a_truncated_parquet_file_is_refused_in_one_line(folder, tmp_path):
    content = (folder / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content[: len(content) // 2])
    result = run("score", folder / "m.safetensors", tmp_path / "t.parquet")
    assert result.exit_code == 1
    assert "t.parquet is truncated or no Parquet file" in only_line(result.stderr)


def test_remedies_for_bad_tables_work(tmp_path):
    out = ["--out", tmp_path / "m.safetensors", "--force", *QUICK]
    (tmp_path / "t.csv").write_text("a,b\n1,\n2,3\n4,5\n3,1\n")
    result = succeed("fit", tmp_path / "t.csv", "--drop-missing", *out)
    assert "3 rows of 2 columns" in result.stdout
    (tmp_path / "t.csv").write_text("1,5;2\n3,5;4\n2,5;7\n")
    words = ["--delimiter", ";", "--decimal", ",", "--no-header"]
    succeed("fit", tmp_path / "t.csv", *words, *out)
    model = bnaf.load(tmp_path / "m.safetensors")
    assert model.columns == ("x0", "x1")
    assert model.read([[2.5, 7.0]]).rows[0, 0] == 2.5
    (tmp_path / "t.csv").write_text("a\tb\n1\t2\n3\t5\n2\t7\n")
    succeed("fit", tmp_path / "t.csv", "--delimiter", r"\t", *out)


def odd_rows(kind):
    rows = np.random.default_rng(0).normal(size=(5, 6) if kind == "few" else (40, 4))
    if kind == "constant":
        rows[:, 1] = 2
    if kind == "ties":
        rows[:, 1] = rows[:, 1] > 0
    return torch.from_numpy(rows)


@pytest.mark.parametrize(
    ("kind", "message", "remedy"),
    [
        ("constant", "Column 'b': one value in all 40 rows.", ["--drop-constant"]),
        ("ties", "Column 'b' (2 distinct values in 40 rows): few distinct", ["--dequantise"]),
        ("few", "fewer rows (5) than columns (6)", ["--columns", "a,b"]),
    ],
)
def test_an_odd_table_is_fitted_with_a_warning_of_one_line(tmp_path, kind, message, remedy):
    rows = odd_rows(kind)
    write_table(Table(rows, tuple("abcdef"[: rows.shape[1]])), tmp_path / "t.parquet")
    words = ["fit", tmp_path / "t.parquet", "--out", tmp_path / "m.safetensors", *QUICK]
    words += [] if kind == "few" else ["--flow", "glow"]
    line = only_line(succeed(*words).stderr)
    assert line.startswith("bnaf: warning: ")
    assert message in line
    assert remedy[0] in line or kind == "few"
    assert "=True" not in line
    assert succeed(*words, "--force", *remedy).stderr == ""


@pytest.mark.parametrize(
    ("option", "found"),
    [("--dequantise", ["b"]), ("--dequantise=b", ["b"]), ("--dequantise=c,b", ["b", "c"])],
)
def test_dequantise_takes_names_or_finds_the_columns(tmp_path, option, found):
    rows = odd_rows("ties")
    rows[:, 2] = (rows[:, 2] * 100).round()
    write_table(Table(rows, ("a", "b", "c", "d")), tmp_path / "t.parquet")
    words = ["fit", option, tmp_path / "t.parquet", "--out", tmp_path / "m.safetensors", *QUICK]
    assert succeed(*words).stderr == ""
    location = bnaf.load(tmp_path / "m.safetensors").standardisation.location
    moved = (location - read_table(tmp_path / "t.parquet", warn=False).rows.mean(0)).abs() > 1e-9
    assert [name for name, changed in zip("abcd", moved, strict=True) if changed] == found


def test_dequantise_names_columns_that_are_there(folder, tmp_path):
    words = ["fit", folder / "t.csv", "--out", tmp_path / "m.safetensors", "--dequantise=z"]
    assert "'z' not found" in only_line(run(*words).stderr)


def test_integers_that_were_dequantised_are_drawn_as_integers(tmp_path):
    counts = np.random.default_rng(0).integers(0, 4, size=(80, 1))
    rows = np.hstack([np.random.default_rng(1).normal(size=(80, 1)), counts])
    table = Table(torch.from_numpy(rows), ("height", "children"), ("float32", "int8"))
    write_table(table, tmp_path / "t.parquet")
    model, drawn = tmp_path / "m.safetensors", tmp_path / "s.csv"
    succeed("fit", tmp_path / "t.parquet", "--dequantise", "--out", model, *QUICK)
    succeed("sample", model, "-n", "50", "--seed", "0", "--out", drawn)
    lines = drawn.read_text().splitlines()
    assert lines[0] == "height,children"
    assert all(re.fullmatch(r"-?\d+", line.split(",")[1]) for line in lines[1:])


def test_a_stream_of_parquet_is_fitted_as_a_table_is(tmp_path):
    rows = torch.randn(2200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    write_table(Table(rows * 10, ("a", "k"), ("float32", "int16")), tmp_path / "t.parquet")
    words = ["fit", tmp_path / "t.parquet", "--out", tmp_path / "m.safetensors", *QUICK, "--force"]
    assert "fitted to 2,200 rows of 2 columns" in succeed(*words, "--stream").stdout
    model = bnaf.load(tmp_path / "m.safetensors")
    assert (model.columns, model.types) == (("a", "k"), ("float32", "int16"))
    assert model.record["batch"] == 512
    succeed(*words, "--no-stream")
    assert bnaf.load(tmp_path / "m.safetensors").record["batch"] == 495  # of equal size


def test_a_stream_is_given_columns_and_sets_rows_aside_as_a_table_does(tmp_path):
    rows = torch.randn(2000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    write_table(Table(rows, ("a", "b", "c")), tmp_path / "t.parquet")
    words = ["fit", tmp_path / "t.parquet", "--given", "b", "--test", "0.2", *QUICK, "--force"]
    records = []
    for way in ("--stream", "--no-stream"):
        succeed(*words, way, "--out", tmp_path / "m.safetensors")
        model = bnaf.load(tmp_path / "m.safetensors")
        assert (model.columns, model.given_columns) == (("a", "c"), ("b",))
        records.append((model.record["split"], model.standardisation.location.tolist()))
    assert records[0][0] == records[1][0]
    assert records[0][1] == pytest.approx(records[1][1], abs=1e-9)


def test_a_short_file_is_streamed_too(folder, tmp_path):
    succeed("fit", folder / "t.parquet", "--stream", "--out", tmp_path / "m.safetensors", *QUICK)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["t.csv", "--stream"], "Expected a Parquet file to stream, got t.csv"),
        (["t.parquet", "--stream", "--given", "z"], "Column 'z' not found"),
        (["t.parquet", "--stream", "--given", "a,b,k"], "expected one to model at least"),
    ],
)
def test_what_cannot_be_streamed_is_told_in_one_line(folder, tmp_path, words, message):
    result = run("fit", folder / words[0], *words[1:], "--out", tmp_path / "m.safetensors")
    assert result.exit_code == 1
    assert message in only_line(result.stderr)


def test_a_streamed_fit_resumes_from_its_checkpoint(tmp_path):
    rows = torch.randn(2200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    write_table(Table(rows, ("a", "b")), tmp_path / "t.parquet")
    words = ["fit", tmp_path / "t.parquet", "--stream", "--steps", "5", "--quiet"]
    words += ["--checkpoint", tmp_path / "run.ckpt", "--out"]
    succeed(*words, tmp_path / "m.safetensors")
    succeed(*words, tmp_path / "again.safetensors")
    write_table(Table(rows[1:], ("a", "b")), tmp_path / "t.parquet", overwrite=True)
    result = run(*words, tmp_path / "other.safetensors")
    assert "is the checkpoint of another run: rows.fingerprint is" in only_line(result.stderr)


def test_ties_in_given_columns_are_no_matter(tmp_path):
    write_table(Table(odd_rows("ties"), ("a", "b", "c", "d")), tmp_path / "t.parquet")
    words = ["fit", tmp_path / "t.parquet", "--given", "b", "--dequantise", *QUICK]
    assert succeed(*words, "--out", tmp_path / "m.safetensors").stderr == ""
    moments = bnaf.load(tmp_path / "m.safetensors").given_standardisation
    assert moments.location[0] == pytest.approx(odd_rows("ties")[:, 1].mean().item())


def test_a_fit_that_fails_leaves_its_best_weights_and_ends_with_1(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(bnaf.BNAF, "learning_rate", 1e12)
    out = tmp_path / "m.safetensors"
    result = run("fit", folder / "t.csv", "--steps", 200, "--quiet", "--out", out)
    assert result.exit_code == 1
    said = result.stderr.splitlines()
    assert said[0] == f"bnaf: {out} has the best weights so far."
    assert said[1].startswith("bnaf: Training ended at step")
    assert bnaf.load(out).record["reason"] == "failed"


def test_validation_rows_are_spread_as_the_training_rows_are(tmp_path, monkeypatch):
    rows = torch.randint(0, 5, (200, 1)).double()
    noise = torch.randn(200, 1, dtype=torch.float64)
    names = ("grade", "noise")
    write_table(Table(torch.cat([rows, noise], 1), names), tmp_path / "t.csv")
    write_table(Table(torch.cat([rows, noise], 1)[:12], names), tmp_path / "v.csv")
    table = read_table(tmp_path / "t.csv", dequantise=True)
    assert dict(table.grid) == {"grade": 1.0}
    valid = read_table(tmp_path / "v.csv", dequantise=table.grid)
    assert torch.equal(valid.rows[:, 0].round(), rows[:12, 0])
    assert not torch.equal(valid.rows[:, 0], rows[:12, 0])
    seen = []

    def watch(table, *, valid, **options):
        seen.append(valid)
        return fit(table, valid=valid, **options)

    fit = bnaf.Model.fit
    monkeypatch.setattr(bnaf.Model, "fit", watch)
    words = ["fit", tmp_path / "t.csv", "--valid", tmp_path / "v.csv", "--dequantise", *QUICK]
    succeed(*words, "--out", tmp_path / "m.safetensors")
    assert torch.equal(seen[0].rows, valid.rows)


@pytest.mark.parametrize(
    "words", [("--strategy", "magic"), ("--precision", "12"), ("--devices", "many")]
)
def test_devices_that_fabric_does_not_know_are_told_in_one_line(folder, tmp_path, words):
    result = run("fit", folder / "t.csv", "--out", tmp_path / "m.safetensors", *QUICK, *words)
    assert result.exit_code == 1
    assert "must be what Fabric takes" in only_line(result.stderr)


def test_two_processes_fit_one_model(folder, tmp_path):
    out = tmp_path / "m.safetensors"
    words = ["fit", folder / "t.csv", "--out", out, "--steps", "5", "--logs", tmp_path / "logs"]
    done = process(*words, "--devices", "2", "--strategy", "ddp", "--quiet", text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fitted to 60 rows of 3 columns") == 1
    assert bnaf.load(out).record["settings"]["devices"] == 2
    assert (tmp_path / "logs" / "version_0" / "metrics.csv").exists()


@pytest.mark.skipif(os.name != "posix", reason="sends a signal as a terminal does")
def test_a_fit_that_is_interrupted_keeps_its_model_and_ends_with_130(folder, tmp_path):
    command = [sys.executable, "-m", "bnaf.cli", "fit", str(folder / "t.csv")]
    command += ["--seconds", "300", "--out", str(tmp_path / "m.safetensors")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert "numbers" in running.stderr.readline()
        assert "step" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
    assert running.returncode == 130
    assert "best weights so far" in rest
    model = bnaf.load(tmp_path / "m.safetensors")
    assert model.columns == ("a", "b", "k")
    assert model.record["reason"] == "interrupted"
