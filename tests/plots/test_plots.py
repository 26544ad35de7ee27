"""Figures: what is drawn, where, and under which labels."""

from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from cases import randomise
from kinds import fit_kinds, kinds_frame
from near import assert_near
from PIL import Image
from scipy.stats import norm

import bnaf
from bnaf import plots
from bnaf.evaluation.calibration import Calibration, check_calibration
from bnaf.flows.planar import Planar
from bnaf.model.standardisation import Standardisation
from bnaf.plots.images import plot_images
from bnaf.tables.table import Table

NAMES = ("a", "b", "c")


def model_of(*names, types=None):
    flow = bnaf.BNAF(len(names), width=4, transforms=2).double()
    randomise(flow)
    return bnaf.Model(flow, columns=names, types=types)


@pytest.fixture(scope="module")
def fitted():
    rows = torch.randn(300, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table = Table(rows * torch.tensor([1.0, 30.0]), ("a", "b"))
    settings = bnaf.TrainingSettings(steps=20)
    return bnaf.Model.fit(table, valid=0.2, settings=settings, progress=False), table


@pytest.fixture
def axes():
    return plots.new_figure(4, 3).subplots()


def labels(axes):
    return axes.get_xlabel(), axes.get_ylabel()


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def integrate_out(model, grid, places):
    """The density of two of three columns, by the sum over a fine grid of the third."""
    (third,) = {0, 1, 2} - set(places)
    first, second = ((edges[:-1] + edges[1:]) / 2 for edges in (grid.first, grid.second))
    samples = model.sample(4000, seed=1)[:, third]
    values = torch.linspace(samples.min() - 1, samples.max() + 1, 300, dtype=torch.float64)
    rows = torch.empty(len(second), len(first), len(values), 3, dtype=torch.float64)
    rows[..., places[0]] = torch.from_numpy(first)[None, :, None]
    rows[..., places[1]] = torch.from_numpy(second)[:, None, None]
    rows[..., third] = values
    return (model.log_prob(rows).exp().sum(-1) * (values[1] - values[0])).numpy()


def test_density_of_two_columns_is_that_of_the_model():
    model = model_of("a", "b")
    grid = plots.evaluate_density(model, pixels=50)
    row = torch.tensor([(grid.first[7] + grid.first[8]) / 2, (grid.second[30:32]).mean()])
    assert grid.density[30, 7] == pytest.approx(model.log_prob(row).exp().item())
    turned = plots.evaluate_density(model, ["b", "a"], pixels=50)
    assert_near(turned.density, grid.density.T)


@pytest.mark.parametrize("columns", [("a", "b"), ("c", "a")])
def test_density_of_two_columns_of_three_is_their_marginal(columns):
    model = model_of(*NAMES)
    places = [NAMES.index(name) for name in columns]
    middle = torch.tensor([0.1, 0.9], dtype=torch.float64)
    limits = model.sample(4000, seed=2)[:, places].quantile(middle, 0).T.tolist()
    grid = plots.evaluate_density(
        model, columns, limits=tuple(map(tuple, limits)), pixels=30, draws=400_000
    )
    exact = integrate_out(model, grid, places)
    assert np.abs(grid.density - exact).mean() < 0.08 * exact.mean()


def test_the_marginal_of_a_normal_law_is_normal():
    flow = Planar(3, transforms=1).double()
    for parameter in flow.parameters():
        torch.nn.init.zeros_(parameter)  # the identity
    location = torch.tensor([5.0, 0.0, -2.0], dtype=torch.float64)
    scale = torch.tensor([0.1, 1.0, 40.0], dtype=torch.float64)
    model = bnaf.Model(flow, columns=NAMES, standardisation=Standardisation(location, scale))
    grid = plots.evaluate_density(model, ["c", "a"], pixels=40, draws=400_000)
    first, second = ((edges[:-1] + edges[1:]) / 2 for edges in (grid.first, grid.second))
    exact = norm.pdf(second, 5.0, 0.1)[:, None] * norm.pdf(first, -2.0, 40.0)
    assert np.abs(grid.density - exact).max() < 0.08 * exact.max()


def test_levels_hold_their_share_of_the_mass():
    grid = plots.evaluate_density(model_of("a", "b"), draws=4_000)
    inside = grid.density[grid.density >= grid.level(0.5)].sum() * grid.cell
    assert inside == pytest.approx(0.5, abs=0.01)
    assert grid.level(1.0) is None


def test_density_is_labelled_with_columns_and_nats(axes):
    assert plots.plot_density(axes, model_of("a", "b")) is axes
    assert labels(axes) == ("a", "b")
    assert axes.figure.axes[1].get_ylabel() == "log-density (nats)"


def test_density_takes_values_of_given_columns():
    flow = bnaf.BNAF(2, 1, width=3).double()
    randomise(flow)
    model = bnaf.Model(flow, columns=["a", "b"], given_columns=["g"])
    low, high = (
        plots.evaluate_density(
            model,
            given=Table(torch.tensor([[value]]), ("g",)),
            limits=((-3, 3), (-3, 3)),
            pixels=20,
        )
        for value in (-1.0, 1.0)
    )
    row = torch.tensor([low.first[3:5].mean(), low.second[9:11].mean()])
    expected = model.log_prob(row, torch.tensor([-1.0])).exp().item()
    assert low.density[9, 3] == pytest.approx(expected)
    assert not np.allclose(low.density, high.density)


@pytest.mark.parametrize("columns", [["a"], ["a", "a"], ["a", "z"], ["a", "b", "c"]])
def test_density_expects_two_columns_of_the_model(axes, columns):
    with pytest.raises(bnaf.SettingsError, match="expects two of a, b, c, got a"):
        plots.plot_density(axes, model_of(*NAMES), columns)


def test_a_density_of_two_columns_expects_two(axes):
    with pytest.raises(bnaf.SettingsError, match="got one of a; a pair plot draws its histogram"):
        plots.plot_density(axes, model_of("a"))


def test_pairs_show_data_below_the_diagonal_and_samples_above(fitted):
    model, table = fitted
    grid = plots.new_figure(4, 4).subplots(2, 2)
    samples = model.sample_table(300, seed=0)
    assert plots.plot_pairs(grid, table, samples) is grid
    np.testing.assert_allclose(grid[1, 0].lines[0].get_xydata(), table.rows.numpy())
    np.testing.assert_allclose(grid[0, 1].lines[0].get_xydata(), samples.rows.numpy()[:, ::-1])
    assert labels(grid[1, 0]) == ("a", "b")
    assert legend(grid[0, 0]) == ["data", "samples"]


def test_pairs_show_as_many_samples_as_data(fitted):
    model, table = fitted
    grid = plots.new_figure(4, 4).subplots(2, 2)
    plots.plot_pairs(grid, table.take(torch.arange(50)), model.sample_table(400, seed=0))
    assert [len(grid[place].lines[0].get_xdata()) for place in ((0, 1), (1, 0))] == [50, 50]


def test_pairs_round_samples_of_integer_columns():
    model = model_of("a", "k", types=["float64", "int8"])
    grid = plots.new_figure(4, 4).subplots(2, 2)
    plots.plot_pairs(grid, model.sample_table(50, seed=1), model.sample_table(50, seed=0))
    shown = grid[0, 1].lines[0].get_xdata()
    np.testing.assert_array_equal(shown, shown.round())


def test_pairs_expect_a_square_of_axes(fitted):
    model, table = fitted
    with pytest.raises(bnaf.SettingsError, match="expects 2 by 2 axes"):
        plots.plot_pairs(plots.new_figure(4, 4).subplots(2, 3), table, model.sample_table(5))


def test_training_is_drawn_in_the_units_of_the_table(axes, fitted):
    model, _ = fitted
    assert plots.plot_training(axes, model) is axes
    last = model.record["history"][-1]
    ends = [line.get_ydata()[-1] for line in axes.lines[:2]]
    expected = [model.standardisation.log_det - last[key] for key in ("loss", "valid")]
    assert ends == pytest.approx(expected)
    assert labels(axes) == ("step", "log-likelihood (nats per row)")
    assert legend(axes) == ["training", "validation", "kept"]


def test_training_expects_a_record(axes):
    with pytest.raises(bnaf.SettingsError, match="record of its training"):
        plots.plot_training(axes, model_of("a", "b"))


def test_bars_of_calibration_average_to_one(axes):
    model = model_of("a", "b")
    check = check_calibration(model, model.sample_table(400, seed=1), draws=1000)
    assert plots.plot_shares(axes, check.columns[1]) is axes
    heights = [bar.get_height() for bar in axes.containers[0]]
    assert np.mean(heights) == pytest.approx(1)
    assert labels(axes) == ("b", "rows / expected")


def test_calibration_draws_the_gap_and_names_the_worst(axes):
    model = model_of(*NAMES)
    check = check_calibration(model, model.sample_table(200, seed=1), draws=1000)
    assert plots.plot_calibration(axes, check.whole_row) is axes
    worst = max(check.whole_row, key=lambda test: test.gap)
    drawn = {line.get_label(): np.abs(line.get_ydata()).max() for line in axes.lines}
    assert drawn[worst.name] == pytest.approx(worst.gap)
    assert set(legend(axes)) == {"chance", "z1", "z2", "z3", "distance"}


def test_scores_are_histograms_in_nats_beside_those_of_samples(axes):
    scores, own = torch.randn(100).double(), torch.arange(1000).double()
    scores[3] = -torch.inf
    assert plots.plot_scores(axes, {"test": scores}, samples=own) is axes
    assert axes.get_xlabel() == "log-density (nats)"
    assert legend(axes) == ["test", "samples of the model", "1 in 100"]
    rare = next(line for line in axes.lines if line.get_label() == "1 in 100")
    assert rare.get_xdata()[0] == pytest.approx(9.99)


def test_style_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)
    with plots.styled():
        plots.new_figure(2, 2).subplots()
    assert dict(matplotlib.rcParams) == before


HOSTILE = ["$x^2$", "$off", "a\nb\x00\x1b", "<script>", "日本語", "_hidden", "w" * 300, "\ud800"]


@pytest.mark.parametrize("format", ["png", "svg"])
def test_any_name_of_a_column_can_be_drawn(tmp_path, format):
    shares = torch.rand(20, dtype=torch.float64)
    figure = plots.new_figure(12, 2)
    panels = figure.subplots(1, len(HOSTILE))
    for panel, name in zip(panels, HOSTILE, strict=True):
        plots.plot_shares(panel, Calibration(name, shares, gap=0.1, p_value=0.5))
    plots.plot_calibration(panels[0], [Calibration("$off", shares, gap=0.1, p_value=0.5)])
    assert panels[1].get_xlabel() == "$off"
    plots.write_figure(figure, tmp_path / f"f.{format}")
    content = (tmp_path / f"f.{format}").read_bytes()
    if format == "svg":
        assert b"<script>" not in content
        ElementTree.fromstring(content)


def test_a_figure_is_overwritten_only_on_request(tmp_path, axes):
    path = tmp_path / "f.png"
    plots.write_figure(axes.figure, path)
    before = path.read_bytes()
    assert before.startswith(b"\x89PNG")
    with pytest.raises(bnaf.StorageError, match="exists, expected a new file"):
        plots.write_figure(axes.figure, path)
    axes.plot([0, 1])
    plots.write_figure(axes.figure, path, overwrite=True)
    assert path.read_bytes() != before
    assert list(tmp_path.iterdir()) == [path]


def test_a_png_of_few_colours_is_smaller(tmp_path, axes):
    axes.imshow(np.random.default_rng(0).random((40, 40)))
    for name, colours in (("many.png", None), ("few.png", 16), ("few.svg", 16)):
        plots.write_figure(axes.figure, tmp_path / name, colours=colours)
    with Image.open(tmp_path / "many.png") as many, Image.open(tmp_path / "few.png") as few:
        assert few.size == many.size
        assert len(few.getcolors()) <= 16
    assert (tmp_path / "few.png").stat().st_size < (tmp_path / "many.png").stat().st_size
    assert (tmp_path / "few.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("name", ["f.gif", "f", "f.html"])
def test_a_figure_of_another_format_is_refused(tmp_path, axes, name):
    with pytest.raises(bnaf.SettingsError, match="written as png, svg, pdf"):
        plots.write_figure(axes.figure, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_images_stand_in_lines_with_gaps_between(axes):
    images = torch.rand(2, 3, 20)
    plot_images(axes, images, (4, 5), brightest=1.0)
    mosaic = axes.images[0].get_array()
    assert mosaic.shape == (2 * 4 + 2, 3 * 5 + 4)
    np.testing.assert_allclose(mosaic[6:10, 7:12], images[1, 1].view(4, 5))
    assert np.ma.is_masked(mosaic[4, 0])


def test_columns_of_every_kind_are_drawn_by_the_shares_of_their_cells(axes):
    model = fit_kinds(kinds_frame())
    plots.plot_density(axes, model, ["city", "visits"], seed=0)
    drawn = model.sample_table(plots.density.MOST_ROWS, seed=0).to_pandas()
    mesh = axes.collections[0]
    edges = mesh.get_coordinates()[:, 0, 1]
    inside = drawn[drawn["visits"].between(edges[0], edges[-1])]
    empty = inside["city"].isna().sum() / len(drawn)
    assert mesh.get_array()[:, -1].sum() == pytest.approx(empty, abs=1e-3)
    named = [text.get_text() for text in axes.get_xticklabels()]
    assert named == [*model.encoding.labels["city"], "empty"]
    assert labels(axes) == ("city", "visits")


def test_columns_of_every_kind_are_drawn_given_others(axes):
    model = fit_kinds(kinds_frame())
    plots.plot_density(axes, model, ["city", "visits"], given={"city": "Rome"}, seed=0)
    shares = axes.collections[0].get_array().sum(0)
    rome = model.encoding.labels["city"].index("Rome")
    assert all(shares[rome] > 20 * shares[place] for place in range(3) if place != rome)


def test_dates_are_drawn_as_dates(axes):
    model = fit_kinds(kinds_frame())
    plots.plot_density(axes, model, ["day", "price"], seed=0)
    assert all(text.get_text().startswith("20") for text in axes.get_xticklabels())


@pytest.mark.parametrize("columns", [["unit", "weight"], ["income", "member"]])
def test_every_kind_of_column_can_be_drawn(axes, columns):
    plots.plot_density(axes, fit_kinds(kinds_frame()), columns, seed=0)
    assert labels(axes) == tuple(columns)


def test_data_stand_beside_a_density_on_the_same_scales(fitted):
    kinds = fit_kinds(kinds_frame())
    for model, rows in (fitted, (kinds, kinds.read(kinds_frame()))):
        left, right = plots.density_figure(model, rows=rows).axes[:2]
        assert left.get_xlim() == right.get_xlim()
        assert left.get_ylim() == right.get_ylim()
        assert left.get_xlabel() == right.get_xlabel()


def test_a_density_beside_data_is_given_nothing_else():
    model = fit_kinds(kinds_frame())
    with pytest.raises(bnaf.SettingsError, match="rows or given columns, got both"):
        plots.density_figure(model, given={"city": "Rome"}, rows=model.read(kinds_frame()))
