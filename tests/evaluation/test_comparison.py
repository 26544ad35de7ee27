"""Scores of tables, and densities compared on one."""

import math

import pytest
import torch

from bnaf import BNAF, Model, SettingsError, TableError, TrainingSettings
from bnaf.evaluation.classical import CLASSICAL
from bnaf.evaluation.comparison import compare_densities
from bnaf.evaluation.scores import Scores, score_table
from bnaf.flows.registry import flow_names
from bnaf.tables.table import Table

QUICK = {"settings": TrainingSettings(steps=3), "progress": False}


def make_table(rows=80):
    generator = torch.Generator().manual_seed(1)
    common, own = torch.randn(2, rows, 2, generator=generator, dtype=torch.float64)
    return Table(100 + 2 * common[:, :1] + own, ("a", "b"))


def test_scores_know_their_mean_error_and_least_likely_rows():
    scores = Scores(torch.tensor([0.0, -math.inf, 2.0, -3.0], dtype=torch.float64))
    assert scores.least_likely(2).tolist() == [1, 3]
    assert len(scores.least_likely(9)) == 4
    finite = Scores(torch.tensor([1.0, 3.0], dtype=torch.float64))
    assert (finite.mean, finite.standard_error) == (2.0, 1.0)
    assert math.isnan(Scores(torch.zeros(1, dtype=torch.float64)).standard_error)
    assert finite.as_table().columns == ("log_density",)
    with pytest.raises(SettingsError, match="at least 1 row, got 0"):
        finite.least_likely(0)


def test_tables_are_scored_by_the_names_of_their_columns():
    model, table = Model(BNAF(2), columns=["b", "a"]), make_table()
    expected = model.log_prob(table.rows.flip(1))
    torch.testing.assert_close(score_table(model, table).log_densities, expected)


@pytest.mark.parametrize("name", CLASSICAL)
def test_rivals_integrate_to_one_in_the_units_of_the_table(name):
    table = make_table(60)
    low, high = table.rows.min(0).values - 4, table.rows.max(0).values + 4
    axes = [torch.linspace(low[i], high[i], 300, dtype=torch.float64) for i in range(2)]
    grid = Table(torch.cartesian_prod(*axes), table.columns)
    cell = math.prod((axis[1] - axis[0]).item() for axis in axes)
    mass = CLASSICAL[name](table, grid, 0).scores.exp().sum().item() * cell
    assert mass == pytest.approx(1, abs=0.01)


def test_a_mixture_is_chosen_where_there_are_clusters():
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(400, 1, generator=generator, dtype=torch.float64)
    rows[::2] += 20
    table = Table(rows, ("a",))
    assert CLASSICAL["gaussian mixture"](table, table, 0).note == "2 components"


def test_test_rows_may_be_a_table_and_are_the_same_for_all():
    names = []
    comparison = compare_densities(
        make_table(), test=make_table(50), flows=["bnaf"], announce=names.append, **QUICK
    )
    assert (comparison.train_rows, comparison.test_rows) == (80, 50)
    assert names == ["bnaf", *CLASSICAL]
    assert len(comparison.entries) == 4


def test_all_flows_are_compared_by_one_word():
    settings = {"settings": TrainingSettings(steps=1), "progress": False}
    comparison = compare_densities(make_table(), flows=["all"], **settings)
    assert {entry.name for entry in comparison.entries} == {*flow_names(), *CLASSICAL}
    assert all(math.isfinite(entry.mean) for entry in comparison.entries)


def test_a_flow_that_fails_is_told_and_the_others_are_ranked(monkeypatch):
    def fail(*arguments):
        raise RuntimeError("no convergence")

    monkeypatch.setattr("bnaf.flows.glow.Glow.make_transform", fail)
    *others, last = compare_densities(make_table(), flows=["glow", "bnaf"], **QUICK).entries
    assert (last.name, last.note) == ("glow", "failed: RuntimeError: no convergence")
    assert all(math.isfinite(entry.mean) for entry in others)


def test_a_comparison_is_the_same_from_run_to_run():
    first, second = (compare_densities(make_table(), flows=["bnaf"], **QUICK) for _ in range(2))
    assert [entry.name for entry in first.entries] == [entry.name for entry in second.entries]
    for one, other in zip(first.entries, second.entries, strict=True):
        assert one.mean == pytest.approx(other.mean, rel=1e-9)  # scikit-learn adds in threads


def test_a_comparison_needs_rows_and_flows_that_exist():
    with pytest.raises(TableError, match="two rows to train on"):
        compare_densities(make_table(), test=0.0, **QUICK)
    with pytest.raises(SettingsError, match="flow must be one of"):
        compare_densities(make_table(), flows=["naf"], **QUICK)


def test_rows_of_undefined_density_are_told():
    model = Model(BNAF(2), columns=["a", "b"])
    with torch.no_grad():
        model.flow.networks.log_gain.fill_(1e38)
    table = Table(torch.ones(4, 2, dtype=torch.float64), ("a", "b"))
    with pytest.raises(TableError, match="4 of 4 rows have an undefined log-density"):
        score_table(model, table)
