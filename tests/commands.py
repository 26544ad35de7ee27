"""The command line as tests call it, and a folder of files for it."""

import subprocess
import sys

import torch
from typer.testing import CliRunner

from bnaf.cli.app import app
from bnaf.tables.table import Table
from bnaf.tables.writing import write_table

QUICK = ["--steps", "5", "--quiet"]


def run(*words, input=None):
    runner = CliRunner(env={"COLUMNS": "200"})
    return runner.invoke(app, [str(word) for word in words], input=input, prog_name="bnaf")


def succeed(*words, input=None):
    result = run(*words, input=input)
    assert result.exit_code == 0, result.output
    return result


def only_line(text):
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


def process(*words, **options):
    command = [sys.executable, "-m", "bnaf.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, **options)


def fill_folder(folder):
    """Hold a table of three columns, an unconditional model of it and a conditional one."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    rows[:, 2] = (rows[:, 2] * 50).round()
    write_table(Table(rows, ("a", "b", "k"), ("float64", "float32", "int16")), folder / "t.csv")
    write_table(
        Table(rows, ("a", "b", "k"), ("float64", "float32", "int16")), folder / "t.parquet"
    )
    succeed("fit", folder / "t.parquet", "--out", folder / "m.safetensors", *QUICK)
    succeed(
        *("fit", folder / "t.csv", "--columns", "k,a", "--given", "b"),
        *("--out", folder / "c.safetensors", *QUICK),
    )
    return folder
