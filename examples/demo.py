"""From nothing to two fitted densities: what ``make demo`` runs.

Fits a flow to a two-dimensional toy density, and another to a table that comes with scikit-learn,
each beside a mixture of Gaussians that sees the same rows and whose number of components is chosen
by rows set aside. Writes models, samples, figures and a report.

Run it from the root of the repository::

    python examples/demo.py --out demo
"""

import argparse
import time
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer

import bnaf
from bnaf.datasets.toy import toy_named
from bnaf.evaluation.classical import Classical, fit_gaussian, fit_mixture
from bnaf.evaluation.scores import standard_error
from bnaf.plots import (
    MODEL,
    new_figure,
    pairs_figure,
    plot_density,
    plot_points,
    styled,
    write_figure,
)
from bnaf.report import assess, write_report
from bnaf.tables.reading import read_table
from bnaf.tables.splits import RowSplit
from bnaf.tables.table import Table
from bnaf.tables.writing import write_table

TOY = "2spirals"
COMPONENTS = (1, 2, 4, 8, 16, 32, 64, 128)
SHOWN = 5_000


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="Fit two densities, and show what came out.")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for all files")
    parser.add_argument("--seconds", type=float, default=90, help="budget of the toy density")
    parser.add_argument("--steps", type=int, default=2000, help="most steps for the table")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of the toy density")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws (default 0)")
    return parser.parse_args()


def show(name: str, scores: torch.Tensor, note: str) -> None:
    """Print one line of a comparison."""
    error = standard_error(scores)
    print(f"  {name:<18} {scores.mean().item():>9.4f} ± {error:.4f} nats per row   {note}")


def compare(model: bnaf.Model, table: Table) -> Table:
    """Print test rows under a model, a mixture and a Gaussian, and return those rows.

    What the fit set aside to tell when to stop, the others are fitted to.
    """
    train, valid, test = RowSplit.from_dict(model.record["split"]).sets()
    seen, unseen = table.take(torch.cat([train, valid])), table.take(test)
    mixture = fit_mixture(seen, unseen, 0, components=COMPONENTS)
    rivals: dict[str, Classical] = {
        "gaussian mixture": mixture,
        "gaussian": fit_gaussian(seen, unseen, 0),
    }
    print(f"  mean log-likelihood of {len(unseen):,} rows that none of them saw:")
    weights = f"{model.flow.parameter_count:,} weights, {model.record['steps']:,} steps"
    own = model.log_prob(unseen)
    show("bnaf", own, weights)
    for name, rival in rivals.items():
        show(name, rival.scores, rival.note)
    show("bnaf - mixture", own - mixture.scores, "row by row")
    return unseen


def fit_toy(arguments: argparse.Namespace) -> None:
    """Fit the toy density, and draw data, samples and density."""
    toy = toy_named(TOY)
    print(f"A toy density: {arguments.rows:,} points of {TOY}")
    table = Table(toy.draw(arguments.rows), ("x", "y"))
    settings = bnaf.TrainingSettings(seconds=arguments.seconds, seed=arguments.seed)
    model = bnaf.Model.fit(table, test=0.1, settings=settings)
    compare(model, table)
    print(f"  {'best there is':<18} {-toy.entropy():>9.4f}            minus the entropy")
    samples = model.sample_table(SHOWN, seed=arguments.seed)
    with styled():
        figure = new_figure(12, 3.9)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.25))
        plot_points(left, table.rows[:SHOWN]).set(title="Data", xlabel="x", ylabel="y")
        plot_points(middle, samples.rows, colour=MODEL).set(title="Samples", xlabel="x")
        plot_density(right, model).set(title="Density")
        limits = {"xlim": right.get_xlim(), "ylim": right.get_ylim()}
        for axes in (left, middle):
            axes.set(**limits)
        write_figure(figure, arguments.out / "toy.png", overwrite=True)
    bnaf.save(model, arguments.out / "toy.safetensors")


def fit_table(arguments: argparse.Namespace) -> None:
    """Fit a table, and write all that one would keep of it."""
    frame = load_breast_cancer(as_frame=True).data.filter(like="mean ")
    table = read_table(frame)
    out = arguments.out
    print(
        f"A table: {len(table)} tumours, {table.features} measures (scikit-learn: breast_cancer)"
    )
    settings = bnaf.TrainingSettings(steps=arguments.steps, seed=arguments.seed)
    model = bnaf.Model.fit(table, valid=0.15, test=0.2, settings=settings)
    test = compare(model, table)
    write_table(table, out / "cancer.csv", overwrite=True)
    bnaf.save(model, out / "cancer.safetensors")
    samples = model.sample_table(1000, seed=arguments.seed)
    write_table(samples, out / "cancer-samples.csv", overwrite=True)
    with styled():
        columns = ["mean radius", "mean texture", "mean smoothness", "mean concavity"]
        write_figure(pairs_figure(model, test, columns), out / "cancer-pairs.png", overwrite=True)
    found = assess(model, table)
    names = {"table_name": "cancer.csv", "model_name": "cancer.safetensors"}
    write_report(found, out / "cancer.html", overwrite=True, **names)
    print(f"  calibration: {found.verdict.sentence}")


def main() -> None:
    """Fit both, and say what was written."""
    arguments = read_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(arguments.seed)
    start = time.perf_counter()
    fit_toy(arguments)
    fit_table(arguments)
    print(f"Done in {time.perf_counter() - start:.0f} s. In {arguments.out}/:")
    for name, what in (
        ("toy.png", "data, samples and density of the toy"),
        ("toy.safetensors", "its model"),
        ("cancer.html", "the report of the table: open it in a browser"),
        ("cancer.safetensors", "its model"),
        ("cancer.csv", "the table"),
        ("cancer-samples.csv", "1,000 samples"),
        ("cancer-pairs.png", "pairs of columns, data against samples"),
    ):
        print(f"  {name:<20} {what}")


if __name__ == "__main__":
    main()
