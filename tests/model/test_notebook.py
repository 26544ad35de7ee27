"""What notebooks show of a model."""

import torch

from bnaf import BNAF, Model
from bnaf.estimators import ConditionalFlowDensity, FlowDensity
from bnaf.model.notebook import MOST_COLUMNS, show_model

QUICK = {"steps": 3}


def test_a_model_shows_its_weights_likelihood_and_columns():
    rows = torch.randn(60, 2, dtype=torch.float64)
    model = FlowDensity(training=QUICK, random_state=0).fit(rows.numpy()).model_
    page = model._repr_html_()
    assert f"{model.flow.parameter_count:,} weights" in page
    assert "log-likelihood (training): " in page
    assert "<td>x0</td>" in page
    assert page.count("<svg") == 2


def test_it_is_the_same_every_time_and_disturbs_no_generator():
    model = Model(BNAF(2))
    before = torch.get_rng_state()
    assert show_model(model) == show_model(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_names_are_no_markup():
    page = show_model(Model(BNAF(1), columns=["<script>"]))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_given_columns_are_named_without_pictures():
    page = show_model(Model(BNAF(1, 1), columns=["price"], given_columns=["day"]))
    assert "<td>day</td>" in page
    assert "<svg" not in page


def test_of_many_columns_the_first_are_shown():
    page = show_model(Model(BNAF(MOST_COLUMNS + 7, transforms=1, width=1)))
    assert page.count("<svg") == MOST_COLUMNS
    assert "and 7 more" in page


def test_flows_that_are_not_onto_are_shown():
    assert show_model(Model(BNAF.paper(2, transforms=1, hidden_layers=1, width=2)))


def test_estimators_show_their_model_once_they_are_fitted():
    rows = torch.randn(40, 2, dtype=torch.float64).numpy()
    density = FlowDensity(training=QUICK)
    assert "<svg width" not in density._repr_html_()
    assert density.fit(rows)._repr_html_().endswith(show_model(density.model_))
    given = ConditionalFlowDensity(training=QUICK, members=1).fit(rows[:, :1], rows[:, 1])
    assert given._repr_mimebundle_()["text/html"].endswith(show_model(given.model_))
