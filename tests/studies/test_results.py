"""What results/ keeps of the quality at equal time: complete, of today's recipe, ahead."""

import json
from pathlib import Path

import pytest

from bnaf import BNAF

REPORT = Path(__file__).parents[2] / "results" / "quality.json"
FEATURES = {"protein": 10, "POWER": 6, "MINIBOONE": 43, "BSDS300": 63}
MANY_ROWS = ("POWER", "BSDS300")
SEEDS = {"protein": 3, "MINIBOONE": 5}
OTHERS = ("bnaf paper", "NSF 0.001", "NSF 0.005", "MAF 0.001", "MAF 0.005")


def runs_of(table, library):
    records = json.loads(REPORT.read_text())["records"]
    return [r for r in records if (r["table"], r["library"]) == (table, library)]


@pytest.mark.parametrize("table", FEATURES)
def test_every_run_is_there_and_none_failed(table):
    seeds = sorted(r["seed"] for r in runs_of(table, "bnaf"))
    assert seeds == list(range(len(seeds)))
    assert len(seeds) >= SEEDS.get(table, 1)
    for library in ("bnaf", *OTHERS):
        runs = runs_of(table, library)
        assert runs
        assert all(r["failure"] is None and r["budget"] == 300 for r in runs)


@pytest.mark.parametrize("table", FEATURES)
def test_the_recipe_is_that_of_today(table):
    features = FEATURES[table]
    flow = BNAF(features, **BNAF.sizes_for(features, small=False, many=table in MANY_ROWS))
    assert {r["weights"] for r in runs_of(table, "bnaf")} == {flow.parameter_count}


@pytest.mark.parametrize("table", FEATURES)
def test_the_default_is_ahead_of_all_others_with_every_seed(table):
    least = min(r["test"] for r in runs_of(table, "bnaf"))
    others = [r["test"] for library in OTHERS for r in runs_of(table, library)]
    assert least > max(others)


@pytest.mark.parametrize("table", FEATURES)
def test_the_default_has_hardly_more_weights_than_splines_or_fewer(table):
    assert runs_of(table, "bnaf")[0]["weights"] < 1.1 * runs_of(table, "NSF 0.001")[0]["weights"]
