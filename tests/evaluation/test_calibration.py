"""Calibration: uniform where the model is right, found where it is wrong."""

import re

import numpy as np
import pytest
import torch
from cases import randomise
from scipy import stats

import bnaf
from bnaf.evaluation.calibration import check_calibration
from bnaf.flows.planar import Planar
from bnaf.model.standardisation import Standardisation
from bnaf.tables.table import Table


def model_of(*names, given=(), types=None, scale=1.0):
    flow = bnaf.BNAF(len(names), len(given), width=4, transforms=2).double()
    randomise(flow)
    scales = Standardisation(
        torch.zeros(len(names), dtype=torch.float64),
        torch.full((len(names),), scale, dtype=torch.float64),
    )
    return bnaf.Model(
        flow, columns=names, types=types, standardisation=scales, given_columns=given
    )


def altered(table, change):
    rows = table.rows.clone()
    change(rows)
    return Table(rows, table.columns, table.types)


def test_base_noise_gives_the_density():
    model = model_of("a", "b", "c", scale=3.0)
    rows = torch.randn(5, 3, dtype=torch.float64)
    z = model.base_noise(rows)
    law = model.flow()
    torch.testing.assert_close(z, law.transform(rows / 3))
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1)
    _, log_det = law.transform.call_and_ladj(rows / 3)
    torch.testing.assert_close(model.log_prob(rows), normal + log_det - 3 * np.log(3.0))


def test_base_noise_of_the_models_own_rows_is_normal():
    model = model_of("a", "b", given=["g"])
    given = torch.randn(2000, 1, dtype=torch.float64)
    rows = model.sample(1, given, seed=3)[0]
    z = model.base_noise(rows, given)
    assert z.shape == (2000, 2)
    assert stats.kstest(z.flatten().numpy(), "norm").pvalue > 0.01


@pytest.mark.parametrize("types", [("float64", "float64"), ("int8", "bool")])
def test_rows_of_the_model_raise_no_alarm(types):
    model = model_of("a", "b", types=types, scale=4.0)
    drawn = model.sample_table(500, seed=1)
    if types[0] == "int8":  # as they would stand in a file
        drawn = altered(drawn, lambda rows: rows[:, 0].round_())
        check = check_calibration(model, drawn)
        assert min(test.p_value for test in check.columns) > 0.05
    else:
        assert check_calibration(model, drawn).judge().grade == "none"


def test_rows_of_a_conditional_model_raise_no_alarm():
    model = model_of("a", "b", given=["g"])
    given = torch.randn(250, 1, dtype=torch.float64)
    rows = torch.cat([model.sample(1, given, seed=1)[0], given], -1)
    check = check_calibration(model, Table(rows, ("a", "b", "g")))
    assert check.judge().grade == "none"


def test_of_many_rows_some_are_tested():
    model = standard_normal("a")
    assert check_calibration(model, model.sample_table(20_100, seed=1)).rows == 20_000


def test_a_column_that_is_off_is_named():
    model = model_of("a", "b", "c")
    table = model.sample_table(600, seed=1)
    spread = table.rows[:, 1].std()
    shifted = altered(table, lambda rows: rows[:, 1].add_(spread))
    check = check_calibration(model, shifted)
    verdict = check.judge()
    assert verdict.grade == "large"
    assert re.search(r"^Found in \d+ of 7 tests: .*column b", verdict.text)
    assert f"chance alone stays below {check.smallest_gap:.1%}" in verdict.text
    assert verdict.meaning.startswith("Take probabilities of these columns")
    assert verdict.sentence == f"miscalibrated. {verdict.text} {verdict.meaning}"
    tests = {test.name: test for test in check.columns}
    assert tests["b"].p_value < 1e-6
    assert tests["a"].p_value > 0.05
    assert tests["b"].gap == pytest.approx(max(test.gap for test in check.columns))


def standard_normal(*names):
    """A model that says every column is standard normal, apart from all others."""
    flow = Planar(len(names), transforms=1).double()
    for parameter in flow.parameters():
        torch.nn.init.zeros_(parameter)
    return bnaf.Model(flow, columns=names)


def test_relations_that_are_off_are_found_where_columns_are_right():
    model = standard_normal("a", "b")
    table = model.sample_table(1000, seed=1)
    tight = altered(table, lambda rows: rows[:, 1].mul_(0.28).add_(0.96 * rows[:, 0]))
    check = check_calibration(model, tight)
    assert min(test.p_value for test in check.columns) > 0.05
    assert check.whole_row[-1].p_value < 1e-6
    verdict = check.judge()
    assert "nearer the centre than the model says" in verdict.text
    assert verdict.meaning.startswith("No column by itself is off")


def test_a_small_gap_among_many_rows_is_called_small():
    model = standard_normal("a")
    table = model.sample_table(20_000, seed=1)
    shifted = altered(table, lambda rows: rows.add_(0.07))  # up to 0.07 / sqrt(2 pi) of the rows
    check = check_calibration(model, shifted)
    assert check.whole_row[0].gap == pytest.approx(0.028, abs=0.01)
    assert check.judge().grade == "small"
    assert re.search(r"Found in \d of 3 tests: column a\. At worst", check.judge().text)


def test_gap_and_p_value_are_those_of_kolmogorov_and_smirnov():
    model = model_of("a")
    check = check_calibration(model, model.sample_table(80, seed=4))
    z = model.base_noise(model.sample_table(80, seed=4))[:, 0].numpy()
    expected = stats.kstest(z, "norm")
    (first, _) = check.whole_row
    assert first.gap == pytest.approx(expected.statistic)
    raw = sorted(
        stats.kstest(test.values.numpy(), "uniform").pvalue for test in check.tests
    )  # Holm: the smallest of three counts three times
    assert min(test.p_value for test in check.tests) == pytest.approx(min(1, 3 * raw[0]), abs=0.02)


def test_alarms_are_as_rare_as_they_should_be():
    model = model_of("a", "b")
    rows = model.sample(2000, seed=9).reshape(40, 50, 2)
    grades = [
        check_calibration(model, Table(part, ("a", "b")), draws=2000, seed=index).judge().grade
        for index, part in enumerate(rows)
    ]
    assert 40 - grades.count("none") <= 6


def test_few_rows_say_what_they_could_not_have_noticed():
    model = model_of("a", "b")
    few, many = (check_calibration(model, model.sample_table(n, seed=1)) for n in (10, 2000))
    assert few.smallest_gap > 0.4 > 0.05 > many.smallest_gap
    assert f"a gap above {few.smallest_gap:.1%}" in few.judge().text
