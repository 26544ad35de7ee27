"""The benchmarks: pages are written from what was measured."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from bnaf.flows.registry import flow_named

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def tables(monkeypatch, tmp_path):
    """The script that writes pages, with a folder of results of its own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = importlib.import_module("tables")
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    yield script
    for name in ("tables", "shared"):
        sys.modules.pop(name, None)


def store_run(folder):
    """Store one run of MAF on POWER."""
    record = {"run": "one", "name": "power", "flow": "maf", "title": "MAF", "seed": 0}
    record |= {"limits": [None] * 3, "budget": 300, "failure": None, "data": "all rows"}
    record |= {"measures": {"rows": 2, "mean": 1.5, "error": 0.5, "blocks": [1.0, 2.0]}}
    record |= {"date": "2026-01-01", "machine": "one", "threads": 2, "weights": 5}
    (folder / "density.json").write_text(json.dumps({"records": [record]}))


def test_a_table_without_a_report_is_left_as_it_is(tables, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    text = "<!-- begin conditional -->\nNot measured yet.\n<!-- end conditional -->\n"
    page.write_text(text)
    monkeypatch.setattr(sys, "argv", ["tables.py", str(page)])
    tables.main()
    assert page.read_text() == text


def test_the_short_table_of_the_study_has_published_numbers_quotients_and_the_picture(
    tables, tmp_path
):
    store_run(tmp_path)
    (tmp_path / "density.png").write_bytes(b"")
    lines = tables.density_short().splitlines()
    assert lines[0] == "![Log-likelihood over time of all flows](results/density.png)"
    assert "| test log-likelihood, nats | POWER, published | POWER, here |" in lines
    assert "| MAF | 0.24 ± 0.01 | 1.50 |" in lines
    assert "| MINIBOONE | 43.97 | 43.97 | 87.91 | 87.91 |" in lines


def test_rates_are_told_with_what_the_best_gains(tables, tmp_path):
    case = {"law": "a law", "flow": "maf", "budget": 10, "failure": None}
    own = flow_named("maf").learning_rate
    records = [case | {"rate": rate, "valid": -rate} for rate in (own - 0.004, own)]
    machine = {"cpu": "one", "threads": 2, "date": "2026-01-01", "torch": "2", "jax": None}
    report = {"command": "rates.py", "machine": machine, "records": records}
    (tmp_path / "rates.json").write_text(json.dumps(report))
    assert f"| maf | 10 | {own:g} | {own - 0.004:g} | 0.004 |" in tables.rates_table().splitlines()


def test_sizes_are_told_by_law_rows_and_budget(tables, tmp_path):
    case = {"law": "a law", "rows": 2000, "budget": 0, "seed": 1, "seconds": 9, "failure": None}
    records = [case | {"sizes": sizes, "valid": -1.5} for sizes in ("3x40", "3x5")]
    machine = {"cpu": "one", "threads": 2, "date": "2026-01-01", "torch": "2", "jax": None}
    report = {"command": "sizes.py", "machine": machine, "records": records}
    (tmp_path / "sizes.json").write_text(json.dumps(report))
    lines = tables.sizes_table().splitlines()
    assert lines[0] == "| law | rows | budget | seed | 3x5 | 3x40 |"
    told = "| a law | 2,000 | the recipe's steps | 1 | -1.500 (9 s) | -1.500 (9 s) |"
    assert told in lines


def test_marks_of_pages_are_those_of_tables_there_are(tables):
    for page in tables.PAGES:
        text = page.read_text()
        marks = [line.split()[2] for line in text.splitlines() if line.startswith("<!-- begin ")]
        assert {*marks} <= {*tables.TABLES}
        assert all(f"<!-- end {mark} -->" in text for mark in marks)
