"""Judging models of rows of every kind: independent columns, and calibration."""

import numpy as np
import pandas as pd
import pytest
import torch
from kinds import fit_kinds, kinds_frame

from bnaf import Model
from bnaf.columns.schema import Schema
from bnaf.evaluation.calibration import check_calibration
from bnaf.evaluation.independent import score_independent
from bnaf.flows.mixed import Mixed
from bnaf.model.kinds import KindEncoding, code_moments
from bnaf.tables.frames import read_frame
from bnaf.tables.table import Table

FRAME = read_frame(kinds_frame(150)).select(
    ["city", "member", "visits", "price", "income", "weight"]
)


def right_model(frame):
    """Return a model of independent columns, and rows that are drawn from it."""
    schema = Schema.fit(frame)
    codes = schema.codes(frame)
    encoding = KindEncoding(schema, None, *code_moments(codes))
    flow = Mixed(**encoding.parts, width=2, transforms=1, code=2, category_width=8).double()
    flow.start_from(schema.encode(frame).rows)
    return Model(flow, encoding)


@pytest.fixture(scope="module")
def model():
    return right_model(FRAME.select(["city", "member", "visits", "income"]))


def table_of(model, rows):
    return model.read(model.sample_table(rows, seed=3))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("city", ["Oslo", "Rome", "Łódź", None, "Ulm"]),
        ("member", [True, False]),
        ("visits", range(-300, 500)),
        ("price", np.arange(-1600, 3200) / 4),
    ],
)
def test_independent_masses_of_a_discrete_column_sum_to_one(column, values):
    frame = FRAME.select([column])
    schema = Schema.fit(frame)
    rows = read_frame(pd.DataFrame({column: list(values)}))
    (scores,) = score_independent(schema, schema.codes(frame), [schema.codes(rows)])
    assert scores.exp().sum().item() == pytest.approx(1.0, abs=1e-6)


def test_independent_densities_integrate_to_one_beside_atoms_and_empty_cells():
    frame = FRAME.select(["income"])
    schema = Schema.fit(frame)
    grid = torch.linspace(1e-6, 40, 40_001, dtype=torch.float64)
    (scores,) = score_independent(schema, schema.codes(frame), [grid.unsqueeze(1)])
    (atom,) = score_independent(
        schema, schema.codes(frame), [torch.zeros(1, 1, dtype=torch.float64)]
    )
    mass = torch.trapezoid(scores.exp(), grid) + atom.exp()
    assert mass.item() == pytest.approx(1.0, abs=1e-3)


def test_independent_scores_are_sums_over_columns():
    schema = Schema.fit(FRAME)
    codes = schema.codes(FRAME)
    (together,) = score_independent(schema, codes, [codes])
    apart = [
        score_independent(schema.select([name]), part, [part])[0]
        for name, part in zip(schema.names, codes.split(1, 1), strict=True)
    ]
    torch.testing.assert_close(together, torch.stack(apart).sum(0))


def test_rows_of_a_right_model_raise_no_alarm(model):
    check = check_calibration(model, table_of(model, 200), draws=500)
    assert check.judge().grade == "none"
    assert [test.name for test in check.whole_row] == ["log-density"]
    assert len(check.columns) == len(model.columns)


def test_a_column_of_levels_that_is_off_is_named(model):
    table = table_of(model, 200)
    rows = table.rows.clone()
    rows[:, model.columns.index("member")] = 1.0
    check = check_calibration(model, Table(rows, table.columns), draws=500)
    assert check.tests[0].name == "member"
    assert check.judge().grade == "large"


def test_rows_of_a_conditional_model_raise_no_alarm():
    conditional = fit_kinds(FRAME, columns=["visits"], given=["city"])
    given = FRAME.select(["city"]).take(np.arange(40))
    codes = conditional.sample(1, given, seed=3)[0]
    rows = torch.cat([codes, conditional.encoding.codes(given, "given")], 1)
    check = check_calibration(conditional, Table(rows, ("visits", "city")))
    assert check.judge().grade == "none"
