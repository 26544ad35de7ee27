"""The report: which rows it is about, what it says of them, and the page it becomes."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser

import pandas as pd
import pytest
import torch

import bnaf
from bnaf.report import assess, render_report, write_report
from bnaf.report.care import find_care
from bnaf.report.parts import find_parts
from bnaf.report.words import say_gain, say_rows
from bnaf.tables.splits import RowSplit
from bnaf.tables.table import Table

HOSTILE = ('<script>alert(1)</script>"', "$x & 'y'\x00\n", "onload=</title><b>")
WHEN = datetime(2020, 1, 2)


def table_of(names, rows=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, len(names), generator=generator, dtype=torch.float64)
    values[:, -1] += values[:, 0]
    return Table(values * 10, names)


def fit(table, **settings):
    return bnaf.Model.fit(
        table, settings=bnaf.TrainingSettings(steps=15, seed=3), progress=False, **settings
    )


@pytest.fixture(scope="module")
def table():
    return table_of(("a", "b", "c"))


@pytest.fixture(scope="module")
def model(table):
    return fit(table, valid=0.1, test=0.2)


@pytest.fixture(scope="module")
def found(model, table):
    return assess(model, table)


@pytest.fixture(scope="module")
def page(found):
    return render_report(found, table_name="t.csv", model_name="m.safetensors", created=WHEN)


class Tags(HTMLParser):
    """The elements of a page, their attributes, and the text of its cells."""

    def __init__(self, page):
        super().__init__()
        self.found, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_a_split_is_found_again(model, table):
    split = RowSplit.from_dict(json.loads(json.dumps(model.record["split"])))
    assert (split.rows, split.valid, split.test, split.seed) == (400, 40, 80, 3)
    train, valid, test = split.sets()
    assert sorted(torch.cat([train, valid, test]).tolist()) == list(range(400))
    torch.testing.assert_close(model.standardisation.location, table.rows[train].mean(0))


def test_a_model_knows_its_table_by_its_moments(model, table):
    def is_same(rows):
        return find_parts(model, rows).same_table

    assert is_same(table)
    assert not is_same(table.take(torch.arange(399)))
    assert not is_same(table.take(torch.arange(400).flip(0)))
    assert not is_same(Table(table.rows + 1e-6, table.columns))


def test_a_model_holds_no_digest_of_its_table(model):
    assert model.record["split"].keys() == {"rows", "valid", "test", "seed"}
    of_old = model.record["split"] | {"digest": "0" * 64}
    assert RowSplit.from_dict(of_old) == RowSplit.from_dict(model.record["split"])


def test_a_private_report_shows_no_rows(model, table):
    found = assess(model, table, private=True)
    page = render_report(found)
    assert found.least == ()
    assert found.as_dict()["least"] == []
    assert "The rows themselves are left out of this report" in page
    assert "Pairs of columns" not in page
    open_page = render_report(assess(model, table))
    assert "The rows themselves" not in open_page
    shown = f"{table.rows[assess(model, table).least[0].number - 1, 0]:.6g}"
    assert shown in open_page
    assert shown not in page


def test_a_frame_is_assessed_as_a_table_is(model, table):
    frame = pd.DataFrame(table.rows.numpy(), columns=list(table.columns))
    found = assess(model, frame)
    assert found.parts.same_table
    assert found.as_dict() == assess(model, table).as_dict()


@pytest.mark.parametrize(
    "change", [{"valid": -1}, {"test": 400}, {"rows": "many"}, {"more": 1}, {"seed": None}]
)
def test_facts_that_are_no_split_are_refused(model, change):
    with pytest.raises(bnaf.TableError, match="facts of a split"):
        RowSplit.from_dict(model.record["split"] | change)


@pytest.mark.parametrize("facts", ["x", [[1]], None, 3])
def test_what_is_no_mapping_is_no_split(facts):
    with pytest.raises(bnaf.TableError, match="facts of a split"):
        RowSplit.from_dict(facts)


def test_the_test_rows_of_a_fit_are_never_seen(table):
    rows = table.rows.clone()
    first = fit(table, test=0.2)
    _, _, test = RowSplit.from_dict(first.record["split"]).sets()
    rows[test] = 1e6
    second = fit(Table(rows, table.columns), test=0.2)
    torch.testing.assert_close(first.flow.state_dict(), second.flow.state_dict(), rtol=0, atol=0)


def test_rows_of_the_fit_are_told_apart(found, model, table):
    assert found.parts.same_table
    assert [(part.name, len(part.rows)) for part in found.parts.parts] == [
        ("training", 280),
        ("validation", 40),
        ("test", 80),
    ]
    part = found.parts.judged
    assert part.name == "test"
    torch.testing.assert_close(part.rows.rows, table.rows[part.numbers - 1])


@pytest.mark.parametrize(("known", "same"), [(True, False), (False, None)])
def test_rows_of_another_table_are_taken_together(model, known, same):
    record = dict(model.record) if known else {}
    other = bnaf.Model(model.flow, columns=model.columns, record=record)
    found = assess(other, table_of(("c", "a", "b"), rows=60, seed=5))
    assert found.parts.same_table is same
    assert [(part.name, len(part.rows)) for part in found.parts.parts] == [("all", 60)]


def test_new_rows_are_what_a_model_is_judged_by(model, table):
    found = assess(model, table, new_rows=table_of(("b", "c", "a"), rows=30, seed=7))
    assert found.parts.judged.name == "new"
    assert found.standing.rows == found.check.rows == 30


def test_standings_are_means_with_standard_errors(found, model, table):
    _, _, test = RowSplit.from_dict(model.record["split"]).sets()
    scores = model.log_prob(table.take(test))
    mean, error = found.standing.model
    assert mean == pytest.approx(scores.mean().item())
    assert error == pytest.approx(scores.std().item() / math.sqrt(80))


def test_the_baseline_is_the_gaussian_of_the_training_rows(found, model, table):
    train, _, test = RowSplit.from_dict(model.record["split"]).sets()
    rows = table.rows[train]
    law = torch.distributions.MultivariateNormal(rows.mean(0), rows.T.cov(correction=0))
    expected = law.log_prob(table.rows[test])
    gains = model.log_prob(table.take(test)) - expected
    assert found.standing.baseline[0] == pytest.approx(expected.mean().item(), abs=1e-4)
    assert found.standing.gain[0] == pytest.approx(gains.mean().item(), abs=1e-4)
    assert found.standing.gain[1] == pytest.approx(gains.std().item() / math.sqrt(80), rel=1e-3)


def test_the_baseline_of_a_conditional_model_is_a_linear_regression(table):
    model = fit(table, given=["a"], test=0.5)
    found = assess(model, table)
    train, _, test = RowSplit.from_dict(model.record["split"]).sets()
    inputs = torch.cat([torch.ones(400, 1), table.rows[:, :1]], 1).double()
    slopes = torch.linalg.lstsq(inputs[train], table.rows[train, 1:]).solution
    noise = table.rows[:, 1:] - inputs @ slopes
    law = torch.distributions.MultivariateNormal(
        torch.zeros(2).double(), noise[train].T.cov(correction=0)
    )
    expected = law.log_prob(noise[test]).mean().item()
    assert found.standing.baseline[0] == pytest.approx(expected, abs=1e-4)
    page = render_report(found)
    assert "linear regression with Gaussian noise" in page
    assert "p(b, c | a)" in page


def test_validation_rows_of_another_file_are_told(table):
    model = fit(table, valid=table_of(("a", "b", "c"), rows=50, seed=8))
    valid = model.standardisation.log_det - model.record["valid"]
    said = say_rows(assess(model, table))
    assert f"came from elsewhere; the fit left them at a log-likelihood of −{-valid:.3f}" in said


def test_least_likely_rows_are_those_of_lowest_density(found, model, table):
    scores = model.log_prob(table)
    order = scores.argsort()[:10]
    assert [row.number - 1 for row in found.least] == order.tolist()
    assert found.least[0].log_density == pytest.approx(scores.min().item())
    assert found.least[0].values == tuple(table.rows[order[0]].tolist())


def test_what_is_unlikely_about_a_row_is_said(model, table):
    rows = table.rows[:20].clone()
    rows[3, 1] = 1e4
    rows[5] = torch.tensor([25.0, 0.0, -30.0])
    found = assess(model, table, new_rows=Table(rows, table.columns))
    least = {(row.part, row.number): row for row in found.least}
    assert least["new", 4].column == "b"
    assert least["new", 4].why == "b: above more than 99.9% of samples"


def test_a_long_or_hostile_name_leaves_sentences_readable():
    table = table_of(("a\x00" * 150, "b"), rows=60)
    found = assess(fit(table, test=0.5), Table(table.rows + 500, table.columns))
    assert re.search(r"column a�a.{,26}…", found.verdict.text)
    assert {row.why[-11:] for row in found.least} == {" of samples"}


CARE = {
    "constant": (lambda rows: rows[:, 1].fill_(3.0), "b", "One value in all rows."),
    "ties": (lambda rows: rows[:, 1].clamp_(0, 1).round_(), "b", "2 distinct values"),
    "far": (
        lambda rows: rows[5, 2].fill_(1e5),
        "c",
        "more than 10 deviations from the mean, in 1 of 400",
    ),
    "same": (lambda rows: rows[:, 2].copy_(-2 * rows[:, 0]), "c", "Correlation 1.00000 with a"),
}


@pytest.mark.parametrize("name", CARE)
def test_columns_that_need_care_are_named(found, model, table, name):
    change, column, said = CARE[name]
    rows = table.rows.clone()
    change(rows)
    check = judged_fine(found.check)
    care = find_care(model, Table(rows, table.columns), check)
    assert [(entry.column, said in entry.found) for entry in care] == [(column, True)]
    assert find_care(model, table, check) == []


def judged_fine(check):
    columns = tuple(replace(test, p_value=1.0) for test in check.columns)
    return replace(check, columns=columns)


def test_columns_that_are_miscalibrated_need_care(found, model, table):
    worst = replace(found.check.columns[1], gap=0.31, p_value=0.001)
    check = replace(judged_fine(found.check), columns=(worst,))
    (care,) = find_care(model, table, check)
    assert care.column == "b"
    assert "off by up to 31.0%" in care.found


def test_few_rows_need_care(found, model, table):
    care = find_care(model, table.take(torch.arange(25)), found.check)
    assert care[-1].found == "25 rows for 3 columns"


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        ((math.log(3), 0.1), "Clearly better than a Gaussian: a row is 3.0 times as likely"),
        ((0.1, 0.1), "Not told apart from a Gaussian"),
        ((-0.5, 0.1), "Worse than a Gaussian: there a row is 1.6 times as likely"),
        ((-math.inf, math.nan), "too few, or too unlikely"),
        (None, "There is no Gaussian to compare with"),
    ],
)
def test_the_gain_is_said_in_plain_words(found, gain, said):
    standing = found.standing._replace(gain=gain)
    assert said in say_gain(standing)


def test_what_no_gaussian_stands_beside_is_a_dash(found):
    bare = found.standing._replace(baseline=None, gain=None)
    page = render_report(replace(found, standings=(bare,), private=True))
    assert page.count(">–</td>") == 2


def test_facts_are_ready_for_json(found):
    facts = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert facts["judged_by"] == "test"
    assert [standing["part"] for standing in facts["standings"]] == [
        *("training", "validation", "test")
    ]
    assert len(facts["calibration"]["columns"]) == 3
    assert set(facts["least"][0]["values"]) == {"a", "b", "c"}


def test_the_page_asks_nothing_of_a_network(page):
    tags = Tags(page)
    addresses = [
        value
        for _, attributes in tags.found
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset")
    ]
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert "@import" not in page
    assert "url(" not in page


def test_the_page_has_figures_tables_and_all_sections(page):
    tags = Tags(page)
    images = tags.all("img")
    assert len(images) == 5
    assert all(image["alt"] and image["src"].startswith("data:image/svg") for image in images)
    sections = {section.get("id") for section in tags.all("section")}
    assert {"standing", "fitted", "pairs", "calibration", "least", "care", "load"} <= sections
    assert {link["href"][1:] for link in tags.all("a")} <= sections
    assert len(tags.all("table")) == 4
    assert "bnaf.load(&#39;m.safetensors&#39;)" in page


def test_a_model_of_two_columns_has_its_density_drawn():
    table = table_of(("a", "b"), rows=60)
    page = render_report(assess(fit(table), table))
    assert "Heat map of the density" in page
    assert "was fitted to these very rows" in page


def test_figures_follow_light_and_dark_mode(page):
    for image in Tags(page).all("img"):
        drawing = base64.b64decode(image["src"].partition(",")[2]).decode()
        assert "prefers-color-scheme:dark" in drawing
        assert "var(--c0)" in drawing
        assert "#1b2733" not in drawing.partition("</style>")[2]


def test_names_are_text_and_never_markup():
    table = table_of(HOSTILE, rows=60)
    model = fit(table)
    name = '"><img src=x onerror=alert(1)>.csv'
    page = render_report(assess(model, table), table_name=name, model_name=f"'; rm -rf {name}")
    tags = Tags(page)
    assert len(tags.all("script")) == len(tags.all("title")) == 1
    assert not tags.all("b")
    assert all(image["src"].startswith("data:") for image in tags.all("img"))
    assert not [name for _, found in tags.found for name in found if name.startswith("on")]
    assert "\x00" not in page
    assert HOSTILE[0] in tags.texts
    assert "alert(1)" in page


def test_the_script_is_the_one_the_page_allows(page):
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(
        meta["content"]
        for meta in Tags(page).all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_the_same_seed_gives_the_same_page(found, page):
    again = render_report(found, table_name="t.csv", model_name="m.safetensors", created=WHEN)
    assert again == page


def test_a_report_is_overwritten_only_on_request(found, tmp_path):
    path = tmp_path / "r.html"
    write_report(found, path)
    before = path.read_text()
    assert before.startswith("<!DOCTYPE html>")
    with pytest.raises(bnaf.StorageError, match="exists, expected a new file"):
        write_report(found, path, table_name="other")
    assert path.read_text() == before
    write_report(found, path, table_name="other", overwrite=True)
    assert "Density of other" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_a_row_out_of_reach_does_not_break_the_page(table):
    flow = bnaf.BNAF.paper(3, transforms=1, width=4, direction="sampling")
    model = bnaf.Model(
        flow, columns=table.columns
    )  # its range is bounded, its density -inf beyond
    found = assess(model, table.take(torch.arange(30)))
    assert found.standing.model[0] == -math.inf
    page = render_report(found)
    assert "−∞" in page
    assert 'data-value="-Infinity"' in page


@pytest.mark.parametrize("value", [1.9e149, 1e155, 1e300, -1.7e308])
def test_a_row_of_any_size_is_reported(model, value):
    row = torch.tensor([[value, 1.0, 2.0]], dtype=torch.float64)
    page = render_report(assess(model, Table(row, model.columns)))
    assert "Least likely rows" in page
