"""The commands on a file with text, dates, empty cells and an index without a name."""

import gzip
import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from commands import QUICK, run, succeed
from kinds import MODELLED, kinds_frame

import bnaf
from bnaf.tables.frames import read_frame
from bnaf.tables.reading import read_table

FRAME = kinds_frame(90)
CHOSEN = ["--columns", "city,visits", "--flows"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    with gzip.open(folder / "t.csv.gz", "wt", encoding="utf-8") as file:
        file.write(FRAME.to_csv())  # an index without a name comes first
    words = ["fit", folder / "t.csv.gz", "--test", "0.2", "--seed", "1", *QUICK]
    succeed(*words, "--out", folder / "m.safetensors")
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return bnaf.load(folder / "m.safetensors")


def test_fit_takes_a_file_as_it_is(model):
    assert model.columns == MODELLED
    assert model.record["split"] == {"rows": 90, "valid": 18, "test": 18, "seed": 1}


def test_fit_says_how_it_read_every_column_on_standard_error(folder, tmp_path):
    words = ["fit", folder / "t.csv.gz", "--steps", "2", "--out", tmp_path / "m.safetensors"]
    result = succeed(*words)
    said = result.stderr.splitlines()
    assert "bnaf: the first column, which numbers the rows, is left out." in said
    assert any(re.match(r"bnaf: city: category of 3 levels, \d+ empty", line) for line in said)
    assert any(line.startswith("bnaf: key: left out: identifier") for line in said)
    assert "fitted to 90 rows of 8 columns" in result.stdout


def test_a_dry_run_shows_how_columns_are_read_and_writes_nothing(folder):
    before = sorted(folder.iterdir())
    lines = succeed("fit", folder / "t.csv.gz", "--dry-run").stdout.splitlines()
    assert lines[0].split() == ["column", "read", "as"]
    assert lines[1].startswith("key")
    assert lines[2].split() == ["city", "category", "of", "3", "levels,", "9", "empty"]
    assert lines[-1] == "90 rows, 9 columns"
    assert sorted(folder.iterdir()) == before


def test_a_dry_run_is_told_kinds_and_bounds(folder):
    words = ["fit", folder / "t.csv.gz", "--dry-run", "--json", "--as", "visits=category"]
    facts = json.loads(succeed(*words, "--bounds", "weight=0:300", "--as", "city=text").stdout)
    told = {column["name"]: column for column in facts["columns"]}
    assert facts["rows"] == 90
    assert told["visits"]["read_as"].startswith("ordered category")
    assert "from 0 to 300" in told["weight"]["read_as"]
    assert told["city"] == {"name": "city", "read_as": "left out: left out as told", "empty": 9}


def test_a_dry_run_shows_columns_that_are_chosen(folder):
    words = ["fit", folder / "t.csv.gz", "--dry-run", "--columns", "weight", "--given", "city"]
    assert succeed(*words).stdout.splitlines()[-1] == "90 rows, 2 columns"


def test_a_dry_run_without_chosen_columns_shows_all_and_which_are_given(folder):
    shown = succeed("fit", folder / "t.csv.gz", "--dry-run", "--given", "city").stdout
    whole = succeed("fit", folder / "t.csv.gz", "--dry-run").stdout
    assert shown.splitlines()[-1] == whole.splitlines()[-1]
    (line,) = [line for line in shown.splitlines() if line.startswith("city")]
    assert line.split(None, 1)[1].startswith("given, ")


def test_a_dry_run_refuses_what_the_fit_would(folder):
    result = run("fit", folder / "t.csv.gz", "--dry-run", "--flow", "glow")
    assert result.exit_code == 1
    assert "takes numbers alone" in result.stderr


def test_a_level_with_an_equals_sign_may_be_given(tmp_path):
    rows = "\n".join(f"{level},{number}" for level in ("<=50K", ">50K") for number in range(40))
    (tmp_path / "t.csv").write_text(f"income,age\n{rows}\n")
    succeed("fit", tmp_path / "t.csv", *QUICK, "--out", tmp_path / "m.safetensors")
    drawn = succeed("sample", tmp_path / "m.safetensors", "-n", "3", "--given", "income=<=50K")
    assert drawn.stdout.count("<=50K") == 3


@pytest.mark.parametrize("option", ["--as", "--bounds"])
def test_a_column_is_told_of_once(folder, option):
    value = "weight=number" if option == "--as" else "weight=0:"
    result = run("fit", folder / "t.csv.gz", "--dry-run", option, value, option, value)
    assert result.exit_code == 2
    assert "names 'weight' twice" in result.stderr


def test_kinds_and_bounds_are_those_of_the_fit(folder, tmp_path):
    words = ["fit", folder / "t.csv.gz", "--columns", "visits,weight", "--as", "visits=number"]
    words += ["--bounds", "weight=0:", *QUICK, "--out", tmp_path / "m.safetensors"]
    succeed(*words)
    told = bnaf.load(tmp_path / "m.safetensors").encoding.read_as
    assert told["visits"].startswith("numbers, ")
    assert "at least 0" in told["weight"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--as", "city"], "--as expects column=value, got 'city'"),
        (["--bounds", "weight=0"], "--bounds expects column=low:high"),
        (["--bounds", "weight=a:b"], "--bounds expects column=low:high"),
        (["--as", "city=colour"], "kinds must be among"),
        (["--as", "town=category"], "'town'"),
        (["--bounds", "weight=80:"], "widen them"),
    ],
)
def test_what_cannot_be_told_of_a_column_is_refused(folder, words, said):
    result = run("fit", folder / "t.csv.gz", "--dry-run", *words)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--flow", "glow", "--as", "a=category"],
            "--as must be left out: the flow 'glow' takes plain numbers alone. For the default "
            "one, which takes all kinds, leave out --flow.",
        ),
        (
            ["--dequantise", "--bounds", "a=0:"],
            "--bounds must be left out: rows that come as an array or a table of numbers are "
            "plain numbers. Leave it out, or give a frame or a file, without --dequantise.",
        ),
        (
            ["--stream", "--dequantise", "--bounds", "a=0:"],
            "--bounds must be left out: rows of a ParquetStream are plain numbers. Leave it out, "
            "or give a FrameStream, whose columns may be of every kind, without --dequantise.",
        ),
    ],
)
def test_what_is_told_of_plain_numbers_is_refused_with_the_reason(tmp_path, words, said):
    pd.DataFrame({"a": np.arange(30) % 7, "b": np.arange(30) / 7}).to_parquet(
        tmp_path / "t.parquet"
    )
    out = tmp_path / "m.safetensors"
    result = run("fit", tmp_path / "t.parquet", "--out", out, *words)
    assert result.exit_code == 1
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("fit", ["--dequantise"], "They are read as they are, and need no noise: leave out --deq"),
        ("fit", ["--flow", "maf"], "The flow 'maf' takes numbers alone, and likelihoods of fewer"),
        ("compare", [*CHOSEN, "mixed,maf,glow"], "The flows 'maf', 'glow' take numbers alone"),
        ("compare", [*CHOSEN, "bnaf,maf"], "choose 'bnaf' or 'mixed', which take columns of ev"),
        ("compare", ["--dequantise"], "leave out --dequantise; or name columns of numbers"),
    ],
)
def test_text_where_numbers_alone_are_taken_says_what_takes_it(folder, command, words, said):
    out = ["--out", folder / "none.safetensors"] if command == "fit" else []
    result = run(command, folder / "t.csv.gz", *words, *out)
    assert result.exit_code == 1
    assert "'city' (text, such as 'Rome')" in result.stderr
    assert said in result.stderr


@pytest.fixture
def partly_text(tmp_path):
    """A table with an index, a column of text, one of dates, and two of numbers."""
    numbers = np.random.default_rng(0).normal(size=(40, 2))
    frame = pd.DataFrame(numbers, columns=["a", "b"])
    frame.insert(0, "cut", ["Ideal", "Fair"] * 20)
    frame["day"] = pd.date_range("2024-01-01", periods=40)
    frame.to_csv(tmp_path / "t.csv")
    return tmp_path / "t.csv"


def test_compare_takes_columns_of_numbers_where_a_flow_takes_no_others(partly_text):
    words = ["compare", partly_text, "--flows", "bnaf,maf", "--test", partly_text, *QUICK]
    result = succeed(*words, "--json")
    said = "Columns 'cut' (text), 'day' (date32[day]) left out: the flow 'maf' takes numbers alone"
    assert said in result.stderr
    words = ["compare", partly_text, "--columns", "a,b", *words[2:]]
    chosen = json.loads(succeed(*words, "--json").stdout)["entries"]
    entries = json.loads(result.stdout)["entries"]
    assert [entry["mean"] for entry in entries] == [entry["mean"] for entry in chosen]


def test_compare_needs_a_column_of_numbers_where_flows_take_no_others(tmp_path):
    pd.DataFrame({"cut": ["Ideal", "Fair"] * 20}).to_csv(tmp_path / "t.csv", index=False)
    result = run("compare", tmp_path / "t.csv", "--flows", "all")
    assert result.exit_code == 1
    assert "Column 'cut' (text, such as 'Ideal') holds text" in result.stderr


def test_a_kind_is_advised_as_it_is_told_at_the_command_line(tmp_path):
    pd.DataFrame({"x": np.arange(40) / 7, "y": np.arange(40) % 2}).to_csv(
        tmp_path / "t.csv", index=False
    )
    result = run("fit", tmp_path / "t.csv", "--dry-run", "--as", "x=whole")
    assert "expects whole numbers, got others; give --as x=number." in result.stderr


@pytest.mark.parametrize("flows", [[], ["--flows", "bnaf"], ["--flows", "bnaf,mixed"]])
def test_compare_is_told_kinds_and_bounds(folder, flows):
    words = ["compare", folder / "t.csv.gz", "--columns", "city,weight", "--json", *QUICK, *flows]
    plain, told = (
        json.loads(succeed(*words, *more).stdout)["entries"]
        for more in ([], ["--bounds", "weight=0:400", "--as", "city=text"])
    )
    assert {entry["name"] for entry in told} == {"mixed", "independent columns"}
    assert [entry["mean"] for entry in told] != [entry["mean"] for entry in plain]


def test_compare_refuses_what_is_told_of_plain_numbers(folder):
    words = ["compare", folder / "t.csv.gz", "--columns", "visits,price", "--bounds", "price=0:"]
    result = run(*words, "--flows", "maf")
    assert result.exit_code == 2
    assert "--bounds is for columns of every kind, and the flow 'maf' takes" in result.stderr


def test_compare_reads_plain_numbers_from_standard_input_once():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    text = pd.DataFrame(rows, columns=["a", "b"]).to_csv(index=False)
    result = succeed("compare", "-", "--flows", "bnaf", *QUICK, input=text)
    assert "8 test rows" in result.stdout


def test_a_fit_needs_a_place_for_its_model(folder):
    result = run("fit", folder / "t.csv.gz")
    assert result.exit_code == 2
    assert "--out is needed, or --dry-run" in result.stderr


def test_score_gives_the_share_of_each_cell(folder, model, tmp_path):
    words = ["score", folder / "m.safetensors", folder / "t.csv.gz", "--cells"]
    result = succeed(*words, "--least", "2", "--out", tmp_path / "s.csv")
    written = read_table(tmp_path / "s.csv", warn=False)
    assert written.columns == ("log_density", *MODELLED)
    shares = model.log_shares(FRAME)
    torch.testing.assert_close(written.rows[:, 1:], shares)
    torch.testing.assert_close(written.rows[:, 0], model.log_prob(FRAME))
    head = result.stdout.splitlines()[1]
    assert re.split(r"\s{2,}", head.strip())[:3] == ["row", "log_density", "least likely cell"]


def test_score_of_cells_shows_the_least_likely_rows_with_the_cell_that_makes_them_so(
    folder, model
):
    result = succeed("score", folder / "m.safetensors", folder / "t.csv.gz", "--cells")
    lines = [re.split(r"\s{2,}", line.strip()) for line in result.stdout.splitlines()[1:]]
    assert lines[0][:3] == ["row", "log_density", "least likely cell"]
    shares = model.log_shares(FRAME)
    order = shares.sum(1).argsort()[:10]
    assert [int(line[0]) for line in lines[1:]] == (order + 1).tolist()
    least = [MODELLED[place] for place in shares[order].argmin(1)]
    assert [line[2].split()[0] for line in lines[1:]] == least


def test_score_as_json_has_values_as_they_are_written(folder, model):
    words = ["score", folder / "m.safetensors", folder / "t.csv.gz", "--cells", "--least", "1"]
    (found,) = json.loads(succeed(*words, "--json").stdout)["least"]
    scores = model.log_prob(FRAME)
    row = FRAME.iloc[int(scores.argmin())]
    assert found["row"] == scores.argmin() + 1
    assert found["values"]["city"] == (None if pd.isna(row["city"]) else row["city"])
    assert found["values"]["member"] is bool(row["member"])
    assert found["values"]["day"].startswith(f"{row['day']:%Y-%m-%d}")
    assert sum(found["cells"].values()) == pytest.approx(scores.min().item())
    least = min(found["cells"], key=found["cells"].get)
    assert found["least"].startswith(least)


def test_rows_that_are_left_out_do_not_shift_the_numbers_of_others(folder, model, tmp_path):
    words = ["score", folder / "m.safetensors", folder / "t.csv.gz", "--drop-missing"]
    succeed(*words, "--out", tmp_path / "s.csv")
    written = read_table(tmp_path / "s.csv", warn=False)
    kept = np.flatnonzero(FRAME[[*MODELLED]].notna().all(axis=1))
    assert written.columns == ("row", "log_density")
    assert written.rows[:, 0].tolist() == (kept + 1).tolist()
    torch.testing.assert_close(written.rows[:, 1], model.log_prob(FRAME)[kept])


def test_sample_writes_cells_as_the_table_has_them(folder, tmp_path):
    words = ["sample", folder / "m.safetensors", "-n", "40", "--seed", "0", "--complete"]
    succeed(*words, "--out", tmp_path / "s.csv")
    drawn = read_frame(tmp_path / "s.csv")
    assert drawn.names == MODELLED
    assert drawn.complete.all()
    assert set(drawn["city"].levels) <= {"Oslo", "Rome", "Łódź"}
    assert drawn["visits"].type == "int64"


def test_sample_within_range_writes_no_number_beyond_those_of_the_fit(folder, tmp_path):
    words = ["sample", folder / "m.safetensors", "-n", "500", "--seed", "0", "--within-range"]
    succeed(*words, "--out", tmp_path / "s.csv")
    drawn = pd.read_csv(tmp_path / "s.csv")
    assert FRAME["weight"].min() <= drawn["weight"].min()
    assert drawn["weight"].max() <= FRAME["weight"].max()


def test_sample_within_range_names_its_option_where_ranges_are_not_known(tmp_path):
    bnaf.save(bnaf.Model(bnaf.BNAF(1)), tmp_path / "m.safetensors")
    found = run("sample", tmp_path / "m.safetensors", "-n", "3", "--within-range")
    assert found.exit_code != 0
    assert "draw without --within-range" in " ".join(found.stderr.split())


def test_sample_writes_parquet_in_the_types_of_the_table(folder, tmp_path):
    path = tmp_path / "s.parquet"
    succeed("sample", folder / "m.safetensors", "-n", "5", "--seed", "0", "--out", path)
    types = {column.name: column.type for column in read_frame(path).columns}
    assert types["city"] == "text"
    assert types["member"] == "bool"
    assert types["day"].startswith(("date", "timestamp"))


@pytest.mark.filterwarnings("ignore::bnaf.errors.FewDrawsWarning")
def test_sample_takes_any_column_as_given(folder, tmp_path):
    words = ["sample", folder / "m.safetensors", "-n", "6", "--seed", "0", "--given", "city=Rome"]
    succeed(*words, "--given", "visits=41", "--out", tmp_path / "s.csv")
    drawn = pd.read_csv(tmp_path / "s.csv")
    assert (drawn["city"] == "Rome").all()
    assert (drawn["visits"] == 41).all()


@pytest.mark.parametrize("column", ["city", "weight"])
def test_no_value_is_an_empty_cell(folder, tmp_path, column):
    words = ["sample", folder / "m.safetensors", "-n", "6", "--seed", "0", "--given", f"{column}="]
    succeed(*words, "--out", tmp_path / "s.csv")
    assert pd.read_csv(tmp_path / "s.csv")[column].isna().all()


@pytest.mark.parametrize("column", ["visits", "member", "day", "unit"])
def test_no_value_of_a_column_without_empty_cells_is_refused(folder, column):
    result = run("sample", folder / "m.safetensors", "-n", "2", "--given", f"{column}=")
    assert result.exit_code == 2
    assert f"--given {column}= stands for an empty cell, and '{column}' had none" in result.stderr


def test_a_given_column_may_be_empty(folder, tmp_path):
    words = ["fit", folder / "t.csv.gz", "--columns", "visits", "--given", "city", *QUICK]
    succeed(*words, "--out", tmp_path / "m.safetensors")
    result = succeed("sample", tmp_path / "m.safetensors", "-n", "2", "--given", "city=")
    assert len(result.stdout.splitlines()) == 3


def test_sample_refuses_a_column_that_it_cannot_be_given(folder):
    result = run("sample", folder / "m.safetensors", "-n", "2", "--given", "key=a")
    assert result.exit_code == 2
    assert "--given names 'key'" in result.stderr


def test_sample_refuses_a_level_that_was_never_seen(folder):
    result = run("sample", folder / "m.safetensors", "-n", "2", "--given", "city=Ulm")
    assert result.exit_code == 1
    assert "'city' expects one of Oslo, Rome, Łódź, got 'Ulm'" in result.stderr
    assert "leave it out of --given." in result.stderr


def test_info_shows_how_columns_were_read(folder):
    lines = succeed("info", folder / "m.safetensors").stdout.splitlines()
    assert any(line.split() == ["name", "type", "read_as"] for line in lines)
    assert any(line.startswith("unit") and line.rstrip().endswith(": kg") for line in lines)
    facts = json.loads(succeed("info", folder / "m.safetensors", "--json").stdout)
    assert facts["columns"][0]["kind"] == "category"


def test_info_shows_given_columns_of_every_kind(folder, tmp_path):
    words = ["fit", folder / "t.csv.gz", "--columns", "weight", "--given", "city", *QUICK]
    succeed(*words, "--out", tmp_path / "m.safetensors")
    lines = succeed("info", tmp_path / "m.safetensors").stdout.splitlines()
    assert any(line.split()[:2] == ["city", "given"] for line in lines)


def test_report_judges_a_model_by_rows_it_did_not_see(folder, tmp_path):
    words = ["fit", folder / "t.csv.gz", "--columns", "city,day", "--test", "0.2", *QUICK]
    succeed(*words, "--out", tmp_path / "m.safetensors")
    words = ["report", tmp_path / "m.safetensors", folder / "t.csv.gz", "--json"]
    facts = json.loads(succeed(*words).stdout)
    assert [standing["part"] for standing in facts["standings"]] == [
        *("training", "validation", "test")
    ]
    assert facts["baseline"] == "independent columns"
    assert facts["same_table"] is True
    assert isinstance(facts["least"][0]["values"]["day"], str)
    assert "category of 3 levels" in (tmp_path / "m.html").read_text()


@pytest.mark.parametrize("words", [["--given", "city=Rome"], ["t.csv.gz"]])
def test_plot_draws_two_columns_of_any_kind(folder, tmp_path, words):
    words = [folder / word if word.startswith("t.") else word for word in words]
    words = ["plot", "density", folder / "m.safetensors", *words, "--columns", "day,city"]
    succeed(*words, "--out", tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_a_density_is_drawn_beside_a_table_or_given_something(folder, tmp_path):
    words = ["plot", "density", folder / "m.safetensors", folder / "t.csv.gz"]
    result = run(*words, "--given", "city=Rome", "--out", tmp_path / "f.png")
    assert result.exit_code == 2
    assert "density takes a table or --given, not both" in result.stderr


def test_a_grid_of_plain_numbers_is_of_no_account_to_other_kinds(folder, model, tmp_path):
    forged = bnaf.load(folder / "m.safetensors")
    forged.record["grid"] = {"price": 0.25}
    bnaf.save(forged, tmp_path / "g.safetensors")
    scores = [
        succeed("score", path, folder / "t.csv.gz").stdout
        for path in (folder / "m.safetensors", tmp_path / "g.safetensors")
    ]
    assert scores[0] == scores[1]


def test_noise_for_a_model_of_every_kind_is_wrong_usage(folder, tmp_path):
    words = ["report", folder / "m.safetensors", folder / "t.csv.gz", "--dequantise"]
    result = run(*words, "--out", tmp_path / "r.html")
    assert result.exit_code == 2
    assert "--dequantise is for models of plain numbers" in result.stderr


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("stream") / "t.parquet"
    kinds_frame(1500).to_parquet(path, row_group_size=400)
    return path


def test_a_file_of_every_kind_is_streamed(parquet, tmp_path):
    words = ["fit", parquet, "--stream", "--test", "0.2", "--steps", "5", "--out"]
    result = succeed(*words, tmp_path / "m.safetensors")
    assert re.search(r"bnaf: city: category of 3 levels, \d+ empty", result.stderr)
    assert "fitted to 1,200 rows of 8 columns" in result.stdout
    model = bnaf.load(tmp_path / "m.safetensors")
    assert (model.record["batch"], model.record["split"]["test"]) == (512, 300)
    succeed("score", tmp_path / "m.safetensors", parquet)


def test_a_streamed_fit_of_every_kind_resumes_from_its_checkpoint(parquet, tmp_path):
    words = ["fit", parquet, "--stream", "--columns", "city,visits", *QUICK]
    words += ["--checkpoint", tmp_path / "run.ckpt", "--out"]
    succeed(*words, tmp_path / "m.safetensors")
    succeed(*words, tmp_path / "again.safetensors")
    result = run(*words, tmp_path / "other.safetensors", "--as", "visits=category")
    assert "is the checkpoint of another run" in result.stderr


def test_what_is_told_of_columns_of_a_stream_of_numbers_is_heard(parquet, tmp_path):
    words = ["fit", parquet, "--stream", "--columns", "visits,price", *QUICK]
    words += ["--bounds", "price=0:", "--drop-constant", "--out", tmp_path / "m.safetensors"]
    succeed(*words)
    told = bnaf.load(tmp_path / "m.safetensors").encoding.read_as
    assert "at least 0" in told["price"]


def test_validation_rows_of_a_stream_come_from_a_file(parquet, tmp_path):
    words = ["fit", parquet, "--stream", "--columns", "city,weight", "--valid", parquet, *QUICK]
    succeed(*words, "--out", tmp_path / "m.safetensors")
    record = bnaf.load(tmp_path / "m.safetensors").record
    assert record["split"]["valid"] == 0
    assert record["valid"] is not None


def test_a_dry_run_of_a_stream_reads_a_sample(parquet, monkeypatch):
    monkeypatch.setattr("bnaf.tables.frame_streams.SAMPLE_ROWS", 400)
    result = succeed("fit", parquet, "--stream", "--dry-run")
    assert "columns are read off a random sample, 400 of 1,500 rows." in result.stderr
    assert result.stdout.splitlines()[-1] == "400 rows, 9 columns"


def test_validation_rows_are_text_where_the_table_is(tmp_path):
    lines = [f"{code},{flag}" for code in ("01", "02", "A3") for flag in ("True", "Unknown")] * 9
    (tmp_path / "t.csv").write_text("\n".join(["zip,flag", *lines]))
    (tmp_path / "v.csv").write_text("zip,flag\n01,True\n02,True\n")
    words = ["fit", tmp_path / "t.csv", "--valid", tmp_path / "v.csv", *QUICK]
    succeed(*words, "--out", tmp_path / "m.safetensors")
    model = bnaf.load(tmp_path / "m.safetensors")
    rows = read_frame({"zip": ["01", "02"], "flag": ["True", "True"]})
    told = model.log_likelihood(model.record["valid"], "valid")
    assert told == pytest.approx(model.log_prob(rows).mean().item(), rel=1e-4)
