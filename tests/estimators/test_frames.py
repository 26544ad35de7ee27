"""Estimators of rows of every kind: frames, text, categories, dates and empty cells."""

import pickle

import numpy as np
import pandas as pd
import pytest
from kinds import kinds_frame, knotted_frame
from near import assert_near
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from bnaf import SettingsError, ShapeError, TableError, TableWarning
from bnaf.estimators import ConditionalFlowDensity, FlowDensity, FlowOutlierDetector

SMALL = {
    "settings": {"width": 3, "transforms": 1},
    "training": {"steps": 5},
    "random_state": 0,
}
FRAME = kinds_frame(80)[["city", "visits", "income", "day", "weight"]]
X = FRAME[["city", "income"]]
Y = FRAME["visits"] + np.where(FRAME["city"] == "Rome", 30.0, 0.0)
NUMBER = pd.Series(np.random.default_rng(5).normal(size=80) + (FRAME["city"] == "Rome") * 3.0)
LEVEL = np.where(FRAME["income"] == 0, "none", np.where(FRAME["income"] > 1.5, "high", "low"))


@pytest.fixture(scope="module")
def density():
    return FlowDensity(**SMALL).fit(FRAME)


@pytest.fixture(scope="module")
def regressor():
    return ConditionalFlowDensity(**SMALL).fit(X, NUMBER)


@pytest.fixture(scope="module")
def classifier():
    return ConditionalFlowDensity(**SMALL).fit(FRAME[["city", "visits"]], LEVEL)


def test_a_density_scores_rows_as_its_model_does(density):
    scores = density.score_samples(FRAME)
    assert_near(scores, density.model_.log_prob(FRAME).numpy())
    assert density.score(FRAME) == pytest.approx(scores.mean())


def test_columns_are_found_by_name(density):
    shuffled = FRAME[[*FRAME.columns[::-1]]]
    with pytest.raises(ValueError, match="feature names"):
        density.score_samples(shuffled)


def test_a_density_samples_frames_like_those_of_the_fit(density):
    drawn = density.sample(7, random_state=0)
    pd.testing.assert_series_equal(drawn.dtypes, FRAME.dtypes)
    assert len(drawn) == 7


def test_polars_and_pandas_give_the_same_scores(density):
    polars = pytest.importorskip("polars")
    same = polars.from_pandas(FRAME)
    scores = FlowDensity(**SMALL).fit(same).score_samples(same)
    assert_near(scores, density.score_samples(FRAME))


def test_nan_in_an_array_is_an_empty_cell():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    rows[::5, 1] = np.nan
    density = FlowDensity(**SMALL).fit(rows)
    assert np.isfinite(density.score_samples(rows)).all()
    assert density.sample(40, random_state=0).isna().any().tolist() == [False, True]


def test_numbers_of_an_array_have_a_density_however_they_repeat():
    rows = np.random.default_rng(0).integers(0, 9, (60, 2)).astype(float)
    rows[0, 0] = np.nan
    kinds = FlowDensity(**SMALL).fit(rows).model_.encoding.schema.kinds
    assert [kind.name for kind in kinds] == ["number", "number"]


def test_infinity_in_an_array_is_refused():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    rows[3, 1], rows[4, 0] = np.inf, np.nan
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        FlowDensity(**SMALL).fit(rows)


def test_arrays_of_text_are_read_column_by_column():
    rows = FRAME[["city", "visits"]].to_numpy()
    density = FlowDensity(**SMALL).fit(rows)
    named = FlowDensity(**SMALL).fit(pd.DataFrame({"x0": rows[:, 0], "x1": FRAME["visits"]}))
    assert density.model_.encoding.read_as["x0"] == named.model_.encoding.read_as["x0"]
    assert np.isfinite(density.score_samples(rows)).all()


def test_other_numbers_of_columns_are_refused():
    rows = FRAME[["city", "visits"]].to_numpy()
    density = FlowDensity(**SMALL).fit(rows)
    with pytest.raises((ShapeError, ValueError), match=r"features|columns"):
        density.score_samples(rows[:, :1])


def test_a_detector_calls_the_share_it_was_told_outliers():
    detector = FlowOutlierDetector(contamination=0.1, **SMALL).fit(FRAME)
    assert (detector.predict(FRAME) == -1).sum() == 8
    assert detector.decision_function(FRAME).min() < 0


def test_a_detector_finds_a_knot_of_rows_of_every_kind():
    frame, knot = knotted_frame(400, 24), np.arange(400) < 24
    fits = [
        FlowOutlierDetector(trim=trim, contamination=0.06, training={"steps": 60}).fit(frame)
        for trim in (None, 0)
    ]
    found, missed = ((fit.predict(frame) == -1)[knot].mean() for fit in fits)
    assert found > 0.8
    assert missed < 0.5


@pytest.mark.parametrize(("trim", "rows"), [(0, 80), (0.25, 60)])
def test_a_detector_fits_the_rows_that_are_not_trimmed(trim, rows):
    detector = FlowOutlierDetector(trim=trim, **SMALL).fit(FRAME)
    assert detector.model_.record["split"]["rows"] == rows


def test_a_level_that_is_trimmed_away_leaves_a_finite_threshold():
    frame = pd.DataFrame({"level": ["a"] * 70 + ["b"] * 10, "x": X["income"]})
    detector = FlowOutlierDetector(trim=0.5, contamination=0.1, **SMALL).fit(frame)
    assert np.isfinite(detector.offset_)
    assert not np.isnan(detector.decision_function(frame)).any()


def test_rows_that_weigh_nothing_are_left_out():
    weights = np.r_[np.ones(60), np.zeros(20)]
    weighed = FlowDensity(**SMALL).fit(X, sample_weight=weights)
    told = weighed.model_.encoding.read_as
    assert told == FlowDensity(**SMALL).fit(X[:60]).model_.encoding.read_as


@pytest.mark.parametrize("weights", [np.full(80, 2.0), np.arange(1.0, 81)])
def test_as_many_rows_are_set_aside_with_weights_as_without(weights):
    fits = [FlowDensity(**SMALL).fit(X, sample_weight=each) for each in (None, weights)]
    assert fits[0].model_.record["split"] == fits[1].model_.record["split"]


def test_weights_that_are_all_alike_are_none():
    fits = [FlowDensity(**SMALL).fit(X, sample_weight=each) for each in (None, np.full(80, 2.0))]
    np.testing.assert_array_equal(*(each.score_samples(X) for each in fits))


def test_a_law_given_text_has_quantiles_that_undo_its_cdf(regressor):
    levels = (0.1, 0.5, 0.9)
    quantiles = regressor.predict_quantiles(X, levels)
    assert quantiles.shape == (80, 3)
    for place, level in enumerate(levels):
        np.testing.assert_allclose(regressor.cdf(X, quantiles[:, place]), level, atol=1e-8)


def test_marks_given_text_have_quantiles_among_them_and_no_draws():
    marks = np.clip(np.round(NUMBER / NUMBER.std()), -1, 2)
    laws = [ConditionalFlowDensity(**SMALL, draws=draws).fit(X, marks) for draws in (1, 300)]
    first, second = (law.predict_quantiles(X, (0.2, 0.7)) for law in laws)
    np.testing.assert_array_equal(first, second)
    assert {*np.unique(first)} <= {*np.unique(marks)}
    for place, level in enumerate((0.2, 0.7)):
        at, below = first[:, place], first[:, place] - 1
        assert (laws[0].cdf(X, at) >= level - 1e-8).all()
        assert (laws[0].cdf(X, np.maximum(below, -1)) <= level + 1e-8)[below >= -1].all()


def test_a_density_given_text_is_the_slope_of_its_cdf(regressor):
    step = 1e-4
    rise = regressor.cdf(X, NUMBER + step) - regressor.cdf(X, NUMBER - step)
    density = np.exp(regressor.log_prob(X, NUMBER))
    np.testing.assert_allclose(rise / (2 * step), density, rtol=1e-4, atol=1e-8)


def test_predictions_given_text_have_one_entry_per_row(regressor):
    assert regressor.predict(X).shape == regressor.predict_std(X).shape == (80,)
    assert regressor.predict_interval(X, 0.8).shape == (80, 2)
    assert regressor.crps(X, NUMBER).shape == (80,)
    assert regressor.sample(X, 3, random_state=0).shape == (80, 3)
    assert np.isfinite(regressor.score(X, NUMBER))


def test_quantiles_of_whole_numbers_are_whole():
    law = ConditionalFlowDensity(**SMALL).fit(X, Y.astype(int))
    quantiles = law.predict_quantiles(X, (0.2, 0.8))
    assert (quantiles == quantiles.round()).all()
    assert (law.cdf(X, quantiles[:, 0]) >= 0.2).all()


def test_probabilities_of_classes_sum_to_one(classifier):
    given = FRAME[["city", "visits"]]
    probabilities = classifier.predict_proba(given)
    assert classifier.classes_.tolist() == ["high", "low", "none"]
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    best = classifier.classes_[probabilities.argmax(1)]
    assert (classifier.predict(given) == best).all()


def test_probabilities_of_classes_are_those_that_rows_are_scored_by(classifier):
    given = FRAME[["city", "visits"]]
    probabilities = classifier.predict_proba(given)
    scores = np.exp(classifier.log_prob(given, LEVEL))
    own = probabilities[np.arange(80), np.searchsorted(classifier.classes_, LEVEL)]
    assert (scores <= own + 1e-12).all()  # what was never seen has a little of the mass
    np.testing.assert_allclose(scores, own, rtol=0.1)


def test_levels_are_drawn_as_they_are_written(classifier):
    drawn = classifier.sample(FRAME[["city", "visits"]], 4, random_state=0)
    assert drawn.shape == (80, 4)
    assert set(drawn.ravel()) <= {"high", "low", "none"}


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(LEVEL, dtype="category"),
        pd.Series(LEVEL, dtype=object),
        pd.Series(LEVEL == "none"),
        pd.Series(np.where(LEVEL == "none", 3, 12), dtype="category"),
        LEVEL == "none",
    ],
    ids=["category", "objects", "booleans", "numbers", "an array of booleans"],
)
def test_levels_come_as_categories_objects_and_booleans(y):
    law = ConditionalFlowDensity(**SMALL).fit(X, y)
    probabilities = law.predict_proba(X)
    assert probabilities.shape == (80, len(set(y)))
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert set(law.predict(X)) <= set(y)
    assert set(law.sample(X, 2, random_state=0).ravel()) <= set(y)


def test_a_category_may_be_given_numbers_alone():
    given = np.random.default_rng(0).normal(size=(80, 2))
    law = ConditionalFlowDensity(**SMALL).fit(given, LEVEL)
    np.testing.assert_allclose(law.predict_proba(given).sum(1), 1.0)


def test_numbers_have_no_probabilities_of_classes(regressor):
    assert not hasattr(regressor, "predict_proba")


def test_an_estimator_of_frames_is_cloned_pickled_and_cross_validated(density):
    again = pickle.loads(pickle.dumps(density))
    np.testing.assert_array_equal(again.score_samples(FRAME), density.score_samples(FRAME))
    assert np.isfinite(cross_val_score(clone(density), FRAME, cv=2)).all()


def test_a_second_fit_forgets_the_classes_of_the_first(classifier):
    law = clone(classifier).fit(X, LEVEL).fit(X, NUMBER)
    assert not hasattr(law, "classes_")
    assert law.predict(X).dtype == np.float64


def test_empty_cells_of_y_are_refused():
    with pytest.raises(TableError, match="y has 8 empty cells"):
        ConditionalFlowDensity(**SMALL).fit(X, FRAME["city"])


def test_as_many_rows_of_x_as_of_y_are_expected():
    with pytest.raises(TableError, match="as many rows, got 79 and 80"):
        ConditionalFlowDensity(**SMALL).fit(X, NUMBER[:79])


@pytest.mark.parametrize(
    "name", ["predict_std", "predict_quantiles", "predict_interval", "cdf", "crps"]
)
def test_what_is_of_numbers_alone_is_refused_of_a_category(classifier, name):
    more = (LEVEL,) if name in ("cdf", "crps") else ()
    with pytest.raises(SettingsError, match=f"{name} is of numbers, got .*; predict_proba"):
        getattr(classifier, name)(FRAME[["city", "visits"]], *more)


def test_a_category_among_columns_of_y_has_no_mean():
    both = pd.DataFrame({"level": LEVEL, "number": NUMBER})
    law = ConditionalFlowDensity(**SMALL).fit(FRAME[["city", "visits"]], both)
    with pytest.raises(SettingsError, match=r"predict is of numbers, got .*; fit it alone"):
        law.predict(FRAME[["city", "visits"]])


def test_probabilities_of_classes_come_with_one_warning_of_what_is_unusual(classifier):
    given = FRAME[["city", "visits"]].assign(city="Ulm")
    with pytest.warns(TableWarning) as told:
        classifier.predict_proba(given)
    assert [str(each.message).partition(": ")[2] for each in told] == ["80 of levels never seen."]


def test_a_density_takes_columns_and_rows_by_name(density):
    expected = density.score_samples(FRAME)
    assert_near(density.score_samples(FRAME.to_dict("list")), expected)
    assert_near(density.score_samples(FRAME.to_dict("records")), expected)
    assert_near(FlowDensity(**SMALL).fit(FRAME.to_dict("list")).score_samples(FRAME), expected)


def test_a_density_of_numbers_takes_columns_by_name():
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    density = FlowDensity(**SMALL).fit(rows.to_dict("list"))
    assert_near(density.score_samples(rows.to_dict("records")), density.score_samples(rows))


def test_a_conditional_density_takes_columns_by_name(classifier, regressor):
    given = FRAME[["city", "visits"]]
    named = classifier.predict_proba(given.to_dict("list"))
    assert_near(named, classifier.predict_proba(given))
    assert_near(regressor.predict(X.to_dict("list")), regressor.predict(X))


def test_a_detector_scores_rows_whose_empty_cells_it_has_trimmed():
    rows = np.random.default_rng(0).normal(size=(200, 2))
    rows[0, 0] = np.nan
    detector = FlowOutlierDetector(**SMALL).fit(rows)
    assert np.isfinite(detector.score_samples(rows)).all()


def test_columns_whose_names_are_numbers_are_those_of_the_fit():
    frame = pd.DataFrame({0: X["city"], 1: X["income"]})
    model = ConditionalFlowDensity(**SMALL).fit(frame, NUMBER)
    assert np.isfinite(model.predict(frame)).all()


def test_a_column_that_numbers_the_rows_counts_for_scikit_learn():
    frame = FRAME.reset_index(drop=True).reset_index(names="Unnamed: 0")
    density = FlowDensity(**SMALL).fit(frame)
    assert density.n_features_in_ == 6
    assert np.isfinite(density.score_samples(frame)).all()
    with pytest.raises(TableError, match="it counts the rows"):
        ConditionalFlowDensity(**SMALL).fit(frame[["Unnamed: 0", "city"]], NUMBER)


def test_arrays_whose_only_value_is_missing_in_places_are_fitted():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    rows[:, 1] = np.where(np.arange(60) % 3, 1.0, np.nan)
    assert np.isfinite(FlowDensity(**SMALL).fit(rows).score_samples(rows)).all()


def test_columns_of_y_beside_text_stay_numbers():
    draws = np.random.default_rng(0)
    X = pd.DataFrame({"age": draws.normal(size=80), "city": ["Rome", "Oslo"] * 40})
    y = pd.DataFrame({"plan": ["a", "b", "c", "a"] * 20, "fee": draws.normal(size=80)})
    law = ConditionalFlowDensity(training={"steps": 3}).fit(X, y)
    assert law.model_.encoding.read_as["fee"].startswith("numbers")
    drawn = law.sample(X, 2, random_state=0)
    assert {*drawn[..., 0].ravel()} <= {"a", "b", "c"}


def test_dates_as_y_are_drawn_and_have_no_mean():
    dates = pd.Series(pd.date_range("2024-01-01", periods=80), name="day")
    X = pd.DataFrame({"city": ["Rome", "Oslo"] * 40})
    law = ConditionalFlowDensity(training={"steps": 3}).fit(X, dates)
    assert law.sample(X, 2, random_state=0).dtype.kind in "MO"
    with pytest.raises(SettingsError, match="got dates as y; sample draws some"):
        law.predict(X)


def test_several_members_of_rows_of_every_kind_are_refused():
    with pytest.raises(SettingsError, match="members must be 1 for columns of several kinds"):
        ConditionalFlowDensity(**SMALL, members=3).fit(X, NUMBER)
