"""The report of a model of columns of every kind."""

import json
from datetime import datetime

import pytest
from kinds import fit_kinds, kinds_frame

from bnaf.report import assess, render_report

FRAME = kinds_frame(100)
SHOWN = ("city", "visits", "day", "unit")


@pytest.fixture(scope="module")
def found():
    hostile = FRAME.assign(city=FRAME["city"].str.replace("Rome", "<b>Rome</b>"))
    hostile = hostile[[*SHOWN]]
    model = fit_kinds(hostile, valid=0.1, test=0.3)
    return assess(model, hostile, least=40)


@pytest.fixture(scope="module")
def page(found):
    return render_report(
        found, table_name="t.csv", model_name="m.safetensors", created=datetime(2020, 1, 2)
    )


def test_a_model_is_held_against_independent_columns(found):
    assert found.baseline == "independent columns"
    assert [entry.part for entry in found.standings] == ["training", "validation", "test"]
    assert all(entry.gain is not None for entry in found.standings)


def test_unlikely_rows_have_values_as_they_are_written(found):
    for row in found.least:
        values = dict(zip(SHOWN, row.values, strict=True))
        expected = FRAME.loc[row.number - 1]
        assert values["visits"] == expected["visits"]
        assert values["day"] == str(expected["day"])
        assert values["unit"] == "kg"


def test_unlikely_rows_say_which_cell_is_unlikely(found):
    for row in found.least:
        assert row.column in SHOWN
        assert row.why.startswith(row.column)
        assert row.why.endswith("nats given the cells before")


def test_all_that_is_found_can_be_json(found):
    facts = json.loads(json.dumps(found.as_dict()))
    assert facts["baseline"] == "independent columns"


def test_a_page_shows_how_columns_were_read(page):
    assert "read as" in page
    assert "category of 3 levels" in page
    assert "constant: kg" in page


def test_levels_stand_in_a_page_as_text(page):
    assert "&lt;b&gt;Rome&lt;/b&gt;" in page
    assert "<b>Rome" not in page
    assert "Łódź" in page
