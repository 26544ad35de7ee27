"""Estimators: scikit-learn's contract, densities that are right, and weights that are repeats."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from cases import size_of
from near import assert_near
from sklearn.base import clone
from sklearn.covariance import EmpiricalCovariance
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_iris,
    load_wine,
    make_regression,
)
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_validate, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bnaf import BNAF, Model, SettingsError, ShapeError, TrainingSettings, load, save
from bnaf.errors import TableWarning
from bnaf.estimators import (
    ConditionalFlowDensity,
    FlowDensity,
    FlowOutlierDetector,
    crps_scorer,
)
from bnaf.estimators._fitting import spread_base, weighted_threshold
from bnaf.estimators._rows import merge_rows
from bnaf.flows.ensemble import Ensemble
from bnaf.flows.registry import flow_name, flow_named, flow_names
from bnaf.model.standardisation import Standardisation
from bnaf.tables.table import Table

QUICK = {"steps": 10}
ESTIMATORS = [FlowDensity, ConditionalFlowDensity, FlowOutlierDetector]
FIRST = np.random.default_rng(0)
X = FIRST.normal(size=(60, 3)) @ FIRST.normal(size=(3, 3)) * [1, 10, 100]
Y = X[:, 0] + 0.1 * FIRST.normal(size=60)


@pytest.fixture
def rng():
    """A generator for one test, whichever others ran before in its process."""
    return np.random.default_rng(1)


def score(estimator, rows=X):
    """Numbers that tell one fitted estimator from another."""
    if isinstance(estimator, ConditionalFlowDensity):
        return estimator.predict(rows)
    return estimator.score_samples(rows)


@pytest.mark.filterwarnings("ignore::bnaf.errors.TableWarning")  # of the checks' own tables
@parametrize_with_checks(
    [
        FlowDensity(training={"steps": 40}),
        ConditionalFlowDensity(training={"steps": 30}, draws=64, members=1),
        FlowOutlierDetector(training={"steps": 40}),
    ]
)
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_fits_repeat_and_leave_global_generators_alone(kind):
    np.random.seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    one, two, other = (kind(training=QUICK, random_state=seed).fit(X, Y) for seed in (3, 3, 4))
    np.testing.assert_array_equal(score(one), score(two))
    assert (score(one) != score(other)).all()
    if hasattr(one, "sample"):
        arguments = (X,) if kind is ConditionalFlowDensity else ()
        draws = [one.sample(*arguments, n=4, random_state=seed) for seed in (0, 0, 1, None)]
        np.testing.assert_array_equal(draws[0], draws[1])
        assert (draws[0] != draws[2]).all()
        assert (draws[0] != draws[3]).all()
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_weights_are_repeats_in_any_order_to_the_last_bit(kind, rng):
    weights = rng.integers(0, 4, size=len(X))
    order = rng.permutation(np.repeat(np.arange(len(X)), weights))
    weighted = kind(training=QUICK).fit(X, Y, sample_weight=weights)
    repeated = kind(training=QUICK).fit(X[order], Y[order])
    np.testing.assert_array_equal(score(weighted), score(repeated))
    if kind is FlowOutlierDetector:
        assert weighted.offset_ == repeated.offset_


def test_weights_are_repeats_where_rows_are_set_aside(rng):
    rows = rng.normal(size=(1500, 1))
    weights = rng.integers(1, 3, size=len(rows))
    weighted = FlowDensity(training=QUICK).fit(rows, sample_weight=weights)
    repeated = FlowDensity(training=QUICK).fit(np.repeat(rows, weights, axis=0))
    np.testing.assert_array_equal(weighted.score_samples(rows), repeated.score_samples(rows))
    assert weighted.model_.record["valid"] is not None


def test_weighted_moments_are_those_of_repeated_rows():
    rows, weights = torch.tensor([[1.0, 5.0], [2.0, 5.0], [9.0, 7.0]]), torch.tensor([2.0, 1, 0])
    weighted = Standardisation.from_rows(rows, weights)
    repeated = Standardisation.from_rows(rows[[0, 0, 1]])
    torch.testing.assert_close(weighted.location, repeated.location)
    torch.testing.assert_close(weighted.scale, repeated.scale)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_clones_and_pickles_are_like_the_original(kind, tmp_path):
    estimator = kind(training=TrainingSettings(steps=10), settings={"width": 3}, random_state=1)
    fitted = clone(estimator).fit(X, Y)
    assert not hasattr(estimator, "model_")
    np.testing.assert_array_equal(score(pickle.loads(pickle.dumps(fitted))), score(fitted))
    save(fitted.model_, tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").columns == fitted.model_.columns


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_names_of_pandas_columns_are_kept(kind):
    frame = pd.DataFrame(X, columns=["a", "b", "y0"])
    fitted = kind(training=QUICK).fit(frame, pd.Series(Y, name="target"))
    assert fitted.feature_names_in_.tolist() == ["a", "b", "y0"]
    model = fitted.model_
    conditional = kind is ConditionalFlowDensity
    assert model.columns == (("target",) if conditional else ("a", "b", "y0"))
    assert model.given_columns == (("a", "b", "y0") if conditional else ())
    with pytest.raises(ValueError, match="feature names should match"):
        score(fitted, frame[["b", "a", "y0"]])
    if conditional:
        assert kind(training=QUICK).fit(frame, Y).model_.columns == ("y_0",)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("flow", flow_names())
def test_any_flow_of_the_registry(kind, flow):
    size = size_of(flow_named(flow))
    fitted = kind(flow, settings={size: 2}, training=QUICK).fit(X, Y)
    made = fitted.model_.flow
    made = made.parts[0] if isinstance(made, Ensemble) else made
    assert flow_name(made) == flow
    assert made.settings[size] == 2
    assert np.isfinite(score(fitted, X[:1])).all()  # means of slow flows take their time


def test_pipelines_searches_and_cross_validation():
    pipeline = make_pipeline(StandardScaler(), FlowDensity(training=QUICK))
    grid = {"flowdensity__settings": [{"width": 2}, {"width": 4}]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X)
    assert search.best_params_["flowdensity__settings"]["width"] in (2, 4)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score(X) == pytest.approx(search.score_samples(X).mean())
    law = ConditionalFlowDensity(training={"steps": 80}, members=2)
    judged = cross_validate(law, X, Y, cv=3, scoring={"own": type(law).score, "r2": "r2"})
    assert judged["test_own"].shape == (3,)
    assert (judged["test_r2"] > 0.5).all()


def test_a_density_in_the_units_of_the_data(rng):
    rows = rng.normal(size=(800, 2)) * [3, 200] + 1000
    density = FlowDensity(random_state=0).fit(rows)
    exact = -np.square((rows - 1000) / [3, 200]).sum(1) / 2 - np.log(2 * np.pi * 600)
    assert density.score(rows) == pytest.approx(exact.mean(), abs=0.1)
    draws = density.sample(4000, random_state=0)
    np.testing.assert_allclose(draws.mean(0), rows.mean(0), atol=20)
    np.testing.assert_allclose(draws.std(0), rows.std(0), rtol=0.1)


@pytest.mark.slow
def test_quantiles_of_a_heteroscedastic_law(rng):
    x = rng.uniform(-1, 1, size=(1000, 1))
    spread = np.exp(x[:, 0])
    y = 3 * x[:, 0] + spread * rng.normal(size=1000)
    law = ConditionalFlowDensity(random_state=0).fit(x, y)
    grid = np.array([[-0.8], [0.0], [0.8]])
    quantiles = law.predict_quantiles(grid, (0.1, 0.5, 0.9))
    exact = 3 * grid + np.exp(grid) * [-1.2816, 0, 1.2816]
    assert (np.abs(quantiles - exact) < 0.3 * np.exp(grid)).all()  # in deviations of the law
    assert (np.diff(quantiles) > 0).all()
    np.testing.assert_allclose(law.predict(grid), 3 * grid[:, 0], atol=0.3)
    draws = law.sample(grid, 2000, random_state=0)
    assert draws.shape == (3, 2000)
    np.testing.assert_allclose(draws.mean(1), law.predict(grid), atol=0.2)
    entropy = np.mean(np.log(spread)) + 0.5 * np.log(2 * np.pi * np.e)
    assert -law.score(x, y) == pytest.approx(entropy, abs=0.1)


def test_predictions_do_not_depend_on_the_batch():
    law = ConditionalFlowDensity(training=QUICK).fit(X, np.stack([Y, -Y], 1))
    for predict in (law.predict, law.predict_quantiles):
        together = predict(X)
        alone = np.concatenate([predict(row[np.newaxis]) for row in X[:9]])
        assert_near(together[:9], alone, share=1e-8)


def test_several_columns_of_y():
    law = ConditionalFlowDensity(training={"steps": 80}).fit(X, np.stack([Y, X[:, 1]], 1))
    assert law.n_outputs_ == 2
    assert law.predict(X).shape == (60, 2)
    assert law.predict_quantiles(X, [0.2, 0.5, 0.8]).shape == (60, 3, 2)
    assert law.sample(X, 5).shape == (60, 5, 2)
    assert law.log_prob(X, np.stack([Y, X[:, 1]], 1)).shape == (60,)
    assert r2_score(np.stack([Y, X[:, 1]], 1), law.predict(X)) > 0.5
    with pytest.raises(ShapeError, match="y must have the 2 columns given to fit, got 1"):
        law.log_prob(X, Y)


def test_quantiles_of_one_column_are_those_of_its_cdf():
    law = ConditionalFlowDensity(training=QUICK).fit(X, Y)
    levels = np.array([1e-6, 0.05, 0.5, 0.95, 1 - 1e-6])
    quantiles = law.predict_quantiles(X, levels)
    for level, column in zip(levels, quantiles.T, strict=True):
        assert_near(law.cdf(X, column), level, share=1e-8 if level > 0.01 else 1e-4)
    assert_near(law.predict_interval(X, 0.9), quantiles[:, [1, 3]], share=1e-9)


def test_predictions_of_one_column_need_no_draws():
    fits = [ConditionalFlowDensity(training=QUICK, draws=draws).fit(X, Y) for draws in (1, 300)]
    for predict in ("predict", "predict_std", "predict_quantiles"):
        one, other = (getattr(law, predict)(X) for law in fits)
        np.testing.assert_array_equal(one, other)


def test_the_ends_of_the_levels_are_infinite():
    law = ConditionalFlowDensity(training=QUICK).fit(X, Y)
    quantiles = law.predict_quantiles(X, (0, 0.5, 1))
    assert (quantiles[:, 0] == -np.inf).all()
    assert np.isfinite(quantiles[:, 1]).all()
    assert (quantiles[:, 2] == np.inf).all()


def test_moments_and_crps_are_integrals_of_the_law():
    law = ConditionalFlowDensity(training=QUICK).fit(X, Y)
    given, y = X[:1], Y[:1]
    grid = np.linspace(-40, 40, 20_001) * Y.std() + Y.mean()
    density = np.exp(law.log_prob(np.repeat(given, len(grid), 0), grid))
    mean = np.trapezoid(density * grid, grid)
    variance = np.trapezoid(density * (grid - mean) ** 2, grid)
    np.testing.assert_allclose(law.predict(given), mean, rtol=0, atol=1e-3 * Y.std())
    np.testing.assert_allclose(law.predict_std(given), variance**0.5, rtol=1e-3)
    excess = (law.cdf(np.repeat(given, len(grid), 0), grid) - (grid >= y)) ** 2
    np.testing.assert_allclose(law.crps(given, y), np.trapezoid(excess, grid), rtol=1e-2)
    assert crps_scorer(law, X, Y) == -law.crps(X, Y).mean()


@pytest.mark.parametrize("name", ["cdf", "crps"])
def test_what_is_of_one_column_refuses_several(name):
    targets = np.stack([Y, -Y], 1)
    law = ConditionalFlowDensity(training=QUICK).fit(X, targets)
    with pytest.raises(SettingsError, match=f"{name} is of one column of y, got 2"):
        getattr(law, name)(X, targets)


@pytest.mark.filterwarnings("ignore::bnaf.errors.TableWarning")  # of rows that repeat
def test_rows_that_repeat_train_as_the_rows_they_stand_for(rng):
    rows = rng.integers(3, size=(1200, 2)).astype(float)
    law = ConditionalFlowDensity(training=QUICK, members=2).fit(rows[:, :1], rows[:, 1])
    assert law.model_.record["split"]["rows"] == 1200
    model = Model.fit(
        Table(
            torch.from_numpy(rows[np.lexsort((rows[:, 0], rows[:, 1]))]),
            ("x0", "y0"),
            cells={"y0": torch.arange(-0.5, 3)},
        ),
        given=["x0"],
        settings=TrainingSettings(**QUICK),
        members=2,
        progress=False,
    )
    theirs = model.log_prob(torch.from_numpy(rows[:, 1:]), torch.from_numpy(rows[:, :1]))
    ours = law.model_.log_prob(torch.from_numpy(rows[:, 1:]), torch.from_numpy(rows[:, :1]))
    assert_near(ours.numpy(), theirs.numpy())


@pytest.mark.slow
def test_means_predict_what_scikit_learn_asks_of_regressors():
    rows, y = make_regression(
        n_samples=200, n_features=10, n_informative=1, bias=5.0, noise=20, random_state=42
    )
    law = ConditionalFlowDensity(random_state=0).fit(rows, y)
    assert r2_score(y, law.predict(rows)) > 0.5


def test_outliers_are_found(rng):
    rows = rng.normal(size=(400, 2))
    angles = rng.uniform(0, 2 * np.pi, size=20)
    rows[:20] = 6 * np.stack([np.cos(angles), np.sin(angles)], 1)
    detector = FlowOutlierDetector(contamination=0.05, random_state=0)
    found = detector.fit_predict(rows) == -1
    assert found.sum() == 20
    assert found[:20].sum() >= 15
    far = np.array([[20.0, -20.0], [0.0, 0.0]])
    assert detector.predict(far).tolist() == [-1, 1]


def test_a_knot_of_outliers_among_the_rows_is_found(rng):
    knot = np.arange(400) < 24
    rows = rng.normal(size=(400, 3))
    rows[knot] = [4.0, -4.0, 4.0] + 0.1 * rng.normal(size=(24, 3))
    scores = FlowOutlierDetector(training={"steps": 60}).fit(rows).score_samples(rows)
    assert scores[knot].max() < np.quantile(scores[~knot], 0.02) - 5  # untrimmed: - 1


@pytest.mark.parametrize("trim", [-0.1, 0.6, "auto"])
def test_what_is_trimmed_is_a_share(trim):
    with pytest.raises(SettingsError, match=r"trim must be a number from 0 to 0.5 or None, got"):
        FlowOutlierDetector(trim=trim).fit(X)


@pytest.mark.parametrize("share", [0, 0.6, "most", None])
def test_contamination_is_a_share(share):
    with pytest.raises(SettingsError, match="must be 'auto' or a number above 0 and at most"):
        FlowOutlierDetector(contamination=share).fit(X)


def test_thresholds_leave_the_share_below(rng):
    scores = rng.normal(size=300)
    for share in (1 / 300, 0.1, 0.5):
        below = (scores < weighted_threshold(scores, np.ones(300), share)).sum()
        assert below == round(300 * share)
    assert weighted_threshold(np.array([3.0]), np.ones(1), 0.5) == 3


@pytest.mark.parametrize("features", [1, 3])
def test_base_draws_are_evenly_normal(features):
    z = spread_base(512, features)
    assert z.shape == (512, features)
    torch.testing.assert_close(z.mean(0), torch.zeros(features).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(z.std(0), torch.ones(features).double(), atol=0.02, rtol=0)


@pytest.mark.filterwarnings("ignore::bnaf.errors.TableWarning")  # of constant columns
def test_constant_columns_are_no_obstacle():
    rows = np.c_[X, np.full(60, 7.0)]
    assert np.isfinite(FlowDensity(training=QUICK).fit(rows).score(rows))
    law = ConditionalFlowDensity(training={"steps": 100}).fit(rows, np.full(60, 5.0))
    np.testing.assert_allclose(law.predict(rows), 5, atol=0.5)


def test_what_cannot_be_fitted_is_said():
    with pytest.raises(ValueError, match="1 sample"):
        FlowDensity().fit(X[:1])
    with pytest.raises(ValueError, match="weight"):
        FlowDensity().fit(X, sample_weight=np.zeros(60))
    with pytest.raises(SettingsError, match=r"training must be bnaf\.TrainingSettings, a dict"):
        FlowDensity(training=3).fit(X)
    with pytest.raises(SettingsError, match="flow must be one of"):
        FlowDensity("naf").fit(X)
    with pytest.raises(SettingsError, match="draws must be a whole number"):
        ConditionalFlowDensity(draws=0).fit(X, Y)
    law = ConditionalFlowDensity(training=QUICK).fit(X, Y)
    with pytest.raises(SettingsError, match="quantiles must be numbers between 0 and 1"):
        law.predict_quantiles(X, [5])


@pytest.mark.slow
def test_a_small_table_is_not_memorised():
    rows, y = load_diabetes(return_X_y=True)
    train, test, y_train, y_test = train_test_split(rows, y, test_size=0.25, random_state=0)
    law = ConditionalFlowDensity(random_state=0).fit(train, y_train)
    line = LinearRegression().fit(train, y_train)
    scale = np.std(y_train - line.predict(train))
    normal = -np.square((y_test - line.predict(test)) / scale) / 2 - np.log(scale)
    # about as good as a line with normal errors; memorised, it is 7 nats worse
    assert law.score(test, y_test) > (normal - 0.5 * np.log(2 * np.pi)).mean() - 0.4
    assert r2_score(y_test, law.predict(test)) > line.score(test, y_test) - 0.15
    assert law.model_.record["split"]["valid"] == 0  # nor are rows set aside for it


@pytest.mark.filterwarnings("ignore::bnaf.errors.TableWarning")  # of rounded columns
@pytest.mark.parametrize("load_rows", [load_iris, load_wine, load_breast_cancer, load_diabetes])
def test_bundled_tables_are_fitted_better_than_by_a_gaussian(load_rows):
    train, test = train_test_split(load_rows().data, test_size=0.25, random_state=0)
    density = FlowDensity(random_state=0).fit(train)
    assert density.score(test) > EmpiricalCovariance().fit(train).score(test)


def test_the_score_of_rows_weighs_them(rng):
    density = FlowDensity(training=QUICK).fit(X)
    weights = rng.integers(0, 4, size=len(X))
    repeated = density.score(np.repeat(X, weights, axis=0))
    assert density.score(X, sample_weight=weights) == pytest.approx(repeated)
    assert density.score(X) == pytest.approx(density.score(X, sample_weight=np.ones(len(X))))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_settings_are_reached_by_name(kind):
    estimator = kind(settings={"width": 4}, training=TrainingSettings(steps=3))
    estimator.set_params(settings__width=2, settings__transforms=1, training__seed=5)
    assert estimator.settings == {"width": 2, "transforms": 1}
    assert estimator.training == TrainingSettings(steps=3, seed=5)
    assert estimator.get_params()["settings__width"] == 2
    assert "settings__width" not in estimator.get_params(deep=False)
    assert kind().set_params(training__steps=4).training == {"steps": 4}
    with pytest.raises(ValueError, match="Invalid parameter 'wdth'"):
        estimator.set_params(wdth=3)


def test_a_search_reaches_the_width_of_the_flow():
    given = {"width": 2, "transforms": 1}
    density = FlowDensity(settings=given, training={"steps": 2})
    search = GridSearchCV(density, {"settings__width": [2, 3]}, cv=2).fit(X)
    width = search.best_params_["settings__width"]
    assert search.best_estimator_.model_.flow.settings["width"] == width
    assert search.best_estimator_.model_.flow.settings["transforms"] == 1
    assert given == {"width": 2, "transforms": 1}


def test_the_automatic_threshold_is_that_of_the_densitys_own_draws():
    rows = np.vstack([X, [[1e3, 1e4, 1e5]]])
    detector = FlowOutlierDetector(contamination="auto", training=QUICK).fit(rows)
    draws = detector.model_.sample(4000, seed=1).numpy()
    assert 0.005 < (detector.predict(draws) == -1).mean() < 0.02
    assert detector.predict(rows)[-1] == -1
    with pytest.raises(SettingsError, match="contamination must be 'auto' or a number above 0"):
        FlowOutlierDetector(contamination="some").fit(X)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_columns_without_a_density_are_warned_of(kind):
    rows, targets = X.copy(), np.round(np.stack([Y, Y], 1))  # one alone would be spread
    rows[:, 0], rows[:, 1] = 1.0, np.round(rows[:, 1] / 30)
    estimator = kind(training={"steps": 1})
    with pytest.warns(TableWarning) as told:
        estimator.fit(rows, targets)
    text = " ".join(str(warning.message) for warning in told)
    if kind is ConditionalFlowDensity:  # what is given needs no density
        assert "'y0'" in text
        assert "x0" not in text
    else:
        assert "'x0': one value in all 60 rows" in text
        assert "'x1' (" in text
    assert "of bnaf.read_table" in text


@pytest.mark.filterwarnings("ignore:The fit has:bnaf.errors.TableWarning")
@pytest.mark.parametrize(("rows", "members"), [(2, 2), (4, 4), (7, 5)])
def test_fits_of_a_few_rows_average_no_more_flows_than_there_are_rows(rows, members):
    law = ConditionalFlowDensity(training={"steps": 2}).fit(X[:rows, :1], Y[:rows])
    flow = law.model_.flow
    assert len(flow.parts if isinstance(flow, Ensemble) else [flow]) == members


@pytest.mark.parametrize("settings", [{"base": "student"}, {"direction": "sampling"}], ids=repr)
def test_flows_that_cannot_be_averaged_are_fitted_alone(settings):
    law = ConditionalFlowDensity(training={"steps": 2}, settings=settings).fit(X[:50], Y[:50])
    assert isinstance(law.model_.flow, BNAF)
    np.testing.assert_allclose(
        law.cdf(X[:5], law.predict_quantiles(X[:5], (0.3,))[:, 0]), 0.3, atol=1e-8
    )


@pytest.mark.parametrize("weights", [None, np.linspace(1, 2, 60)])
def test_one_column_is_averaged_over_members_with_weights_as_without(weights):
    X = np.random.default_rng(0).normal(size=(60, 2))
    law = ConditionalFlowDensity(settings={"width": 2}, training={"steps": 1})
    law.fit(X, X.sum(1), sample_weight=weights)
    assert len(law.model_.flow.parts) == 5


@pytest.fixture(scope="module")
def marks():
    """A law of marks from 3 to 6 given a number."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 1))
    y = np.clip(np.round(4.5 + X[:, 0] + 0.5 * generator.normal(size=400)), 3, 6)
    law = ConditionalFlowDensity(training={"steps": 100}, members=1).fit(X[:300], y[:300])
    return law, X[300:], y[300:]


def test_quantiles_and_draws_of_few_values_are_such_values(marks):
    law, X, _ = marks
    drawn = law.sample(X, 5, random_state=0)
    for values in (law.predict_quantiles(X, (0.01, 0.5, 0.99)), drawn):
        assert np.isin(values, [3, 4, 5, 6]).all()


def test_densities_of_few_values_are_masses_over_widths_and_sum_to_one(marks):
    law, X, _ = marks
    masses = np.exp([law.log_prob(X, np.full(len(X), mark)) for mark in (3.0, 4.0, 5.0, 6.0)])
    below, above = law.cdf(X, np.full(len(X), 2.9)), law.cdf(X, np.full(len(X), 6.0))
    np.testing.assert_allclose(masses.sum(0), above - below, atol=1e-9)
    assert masses.sum(0).mean() > 0.9


def test_beyond_the_cells_of_few_values_the_law_stays_a_density(marks):
    law, X, _ = marks
    for side, (near, far) in {"above": (6.5, 60.0), "below": (2.5, -60.0)}.items():
        points = np.linspace(near, far, 4_001)
        middles, step = (points[1:] + points[:-1]) / 2, abs(points[1] - points[0])
        for row in X[:3]:
            density = np.exp(law.log_prob(np.tile(row, (4_000, 1)), middles))
            mass = np.ptp(law.cdf(np.tile(row, (2, 1)), np.array([near, far])))
            assert abs(density.sum() * step - mass) < 1e-5, side
    assert (law.log_prob(X, np.full(len(X), 1e6)) < law.log_prob(X, np.full(len(X), 6.0))).all()


def test_quantiles_of_few_values_are_the_first_that_reach_their_level(marks):
    law, X, _ = marks
    for level in (0.1, 0.5, 0.9):
        mark = law.predict_quantiles(X, (level,))[:, 0]
        inner = (mark > 3) & (mark < 6)  # beyond, they are those of the outermost cells
        assert (law.cdf(X, mark) >= level - 1e-9)[inner].all()
        assert (law.cdf(X, mark - 1) <= level + 1e-9)[inner].all()


def test_few_values_are_not_taken_for_spikes(marks):
    law, X, y = marks
    assert law.score(X, y) < 0  # the logarithm of a probability
    assert law.score(X, y) > np.log(1 / 4)


def test_means_and_deviations_of_few_values_are_those_of_their_probabilities(marks):
    law, X, _ = marks
    levels = np.stack([law.cdf(X, np.full(len(X), mark)) for mark in (3.0, 4.0, 5.0)])
    masses = np.diff(levels, axis=0, prepend=0, append=1)  # what is beyond counts as outermost
    values = np.array([3.0, 4.0, 5.0, 6.0])
    mean = values @ masses
    np.testing.assert_allclose(law.predict(X), mean)
    np.testing.assert_allclose(law.predict_std(X) ** 2, values**2 @ masses - mean**2, atol=1e-12)


@pytest.mark.parametrize("target", [2.0, 3.0, 3.7, 5.0, 6.0, 9.5])
def test_rank_scores_of_few_values_are_integrals_over_their_steps(marks, target):
    law, X, _ = marks
    X, t = X[:5], np.arange(1, 11, 1e-3) + 5e-4
    levels = np.stack([law.cdf(X, np.full(len(X), mark)) for mark in (3.0, 4.0, 5.0)], 1)
    levels = np.c_[np.zeros(len(X)), levels, np.ones(len(X))]
    steps = levels[:, np.searchsorted([3.0, 4.0, 5.0, 6.0], t, "right")]
    expected = ((steps - (t >= target)) ** 2).sum(1) * 1e-3
    np.testing.assert_allclose(law.crps(X, np.full(5, target)), expected, atol=1e-3)


def test_few_values_are_told_by_the_rows_that_they_stand_for():
    X = np.repeat([[0.0], [1.0]], 40, 0)
    y = np.tile([1.0, 2.0, 3.0, 4.0], 20)  # eight rows that differ
    law = ConditionalFlowDensity(training={"steps": 3}).fit(X, y)
    assert np.isin(law.sample(X, random_state=0), y).all()


@pytest.mark.parametrize("weights", [0.5, 3.0, 1e-7])
def test_weights_that_are_all_alike_are_none(weights):
    generator = np.random.default_rng(0)
    X, y = generator.integers(0, 3, (60, 1)).astype(float), generator.normal(size=60)
    y[:20] = y[20:40]
    X[:20] = X[20:40]
    fits = [
        ConditionalFlowDensity(training={"steps": 3}).fit(X, y, sample_weight=each)
        for each in (None, np.full(60, weights))
    ]
    assert np.array_equal(*(law.log_prob(X, y) for law in fits))


@pytest.mark.parametrize("weights", [(1.5, 2.5), (2.0**30, 2.0**31)])
def test_rows_that_are_not_written_out_stand_for_as_many_as_came(weights):
    rows = np.repeat([[1.0, 0.0], [2.0, 1.0], [3.0, 1.0]], (4, 2, 3), 0)
    each = np.resize(weights, len(rows))
    merged = merge_rows(rows, each)
    lines, counts = merged.written_out(1_000)
    assert np.array_equal(lines, rows)
    for row in np.unique(rows, axis=0):
        same = (rows == row).all(1)
        np.testing.assert_allclose(counts[same].sum(), each[same].sum())
    assert merged.stands_for == len(merged.written_out()[0])
    assert merged.take(np.array([True, False, True])).written_out(1_000)[0].shape == (7, 2)


def test_whole_weights_are_written_out():
    lines, counts = merge_rows(np.array([[1.0], [2.0]]), np.array([1.0, 3.0])).written_out(10)
    assert np.array_equal(lines, [[1.0], [2.0], [2.0], [2.0]])
    assert np.array_equal(counts, np.ones(4))


def test_rows_that_come_often_do_not_make_values_few():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(200, 1)), generator.normal(size=200)
    law = ConditionalFlowDensity(training={"steps": 3})
    for fitted in (
        law.fit(X, y, sample_weight=generator.integers(1, 20, 200)),
        clone(law).fit(np.repeat(X, 8, 0), np.repeat(y, 8)),
    ):
        assert not np.isin(fitted.sample(X, random_state=0), y).any()


def test_values_that_rounding_keeps_apart_are_none_of_few():
    X = np.random.default_rng(0).normal(size=(60, 1))
    y = np.tile([0.3, 0.1 + 0.2, 0.7], 20)
    with pytest.warns(TableWarning, match="heavy ties"):
        law = ConditionalFlowDensity(training={"steps": 3}).fit(X, y)
    assert law._steps is None
    assert np.isfinite(law.log_prob(X, y)).all()


def test_integrals_over_few_values_are_the_same_some_rows_at_a_time(marks, monkeypatch):
    law, X, y = marks
    whole = law.predict(X), law.predict_std(X), law.crps(X, y)
    monkeypatch.setattr("bnaf.estimators._steps.POINTS", 20)
    parts = law.predict(X), law.predict_std(X), law.crps(X, y)
    for found, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
