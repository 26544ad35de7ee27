"""Neural posterior estimation with sbi: our flow beside its own, on four simulators.

Every estimator is trained by sbi's ``NPE`` as it comes. ``log q`` is the mean log-density of the
parameters behind data that no estimator saw; where one estimator has more of it, it is nearer to
the posterior, by as many nats. ``C2ST`` is how often a classifier tells such pairs of parameters
and data from pairs whose parameters the estimator drew: 0.5 is a perfect posterior.

``make bench-integrations`` runs it, in the environment of ``make test-integrations``; a case that
is in the report already is not run again::

    python benchmarks/simulators.py --out results/simulators.json
"""

import math
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from shared import Record, read_records, use_two_threads, write_report
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal, Uniform

HIDDEN = 2000  # pairs that estimators are judged by


class Task(NamedTuple):
    """A prior of parameters, and a simulator of data given them."""

    prior: Distribution
    simulate: Callable[[Tensor], Tensor]


def uniform(low: float, high: float, features: int) -> Distribution:
    """Return a uniform law on a cube."""
    return Independent(
        Uniform(torch.full((features,), float(low)), torch.full((features,), float(high))), 1
    )


def two_moons(theta: Tensor) -> Tensor:
    """Return points of a thin crescent, moved by what folds the parameters into two moons."""
    angle = math.pi * (torch.rand(len(theta)) - 0.5)
    radius = 0.1 + 0.01 * torch.randn(len(theta))
    moon = torch.stack([radius * angle.cos() + 0.25, radius * angle.sin()], 1)
    sums, differences = theta.sum(1).abs(), theta[:, 1] - theta[:, 0]
    return moon + torch.stack([-sums, differences], 1) / math.sqrt(2)


def slcp(theta: Tensor) -> Tensor:
    """Return four points of a Gaussian of the plane, whose five parameters enter unevenly."""
    mean, deviations = theta[:, None, :2], theta[:, None, 2:4].square()
    correlation = theta[:, None, 4].tanh()
    noise = torch.randn(len(theta), 4, 2)
    second = correlation * noise[..., 0] + (1 - correlation**2).sqrt() * noise[..., 1]
    points = mean + deviations * torch.stack([noise[..., 0], second], -1)
    return points.flatten(1)


def gaussian_mixture(theta: Tensor) -> Tensor:
    """Return a point near the parameters: at a distance of about one, or of a tenth."""
    deviation = torch.where(torch.rand(len(theta), 1) < 0.5, 1.0, 0.1)
    return theta + deviation * torch.randn_like(theta)


def lotka_volterra(theta: Tensor) -> Tensor:
    """Return logarithms of prey and predators at ten times, with noise; parameters are logs too.

    The equation is solved for logarithms, by Runge and Kutta's method in steps of 0.05.
    """
    a, b, c, d = theta.exp().unbind(1)

    def change(state: Tensor) -> Tensor:
        prey, predators = state.clamp(max=20).exp().unbind(1)
        return torch.stack([a - b * predators, d * prey - c], 1)

    state = torch.tensor([30.0, 1.0]).log().expand(len(theta), 2)
    seen, step = [], 0.05
    for number in range(1, 401):
        k1 = change(state)
        k2 = change(state + step / 2 * k1)
        k3 = change(state + step / 2 * k2)
        k4 = change(state + step * k3)
        state = state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        if number % 40 == 0:
            seen.append(state)
    return torch.cat(seen, 1) + 0.1 * torch.randn(len(theta), 20)


RATES = Independent(Normal(torch.tensor([-0.125, -3.0, -0.125, -3.0]), 0.5), 1)
TASKS = {
    "two moons": Task(uniform(-1, 1, 2), two_moons),
    "SLCP": Task(uniform(-3, 3, 5), slcp),
    "Gaussian mixture": Task(uniform(-10, 10, 2), gaussian_mixture),
    "Lotka-Volterra": Task(RATES, lotka_volterra),
}
ESTIMATORS = ["bnaf", "nsf", "maf"]


def train(task: Task, estimator: str, simulations: int, seed: int, **more: Any) -> Record:
    """Train an estimator with sbi's settings as they come, and judge it."""
    from sbi.inference import NPE

    from bnaf.integrations.sbi import posterior_flow  # first: it leaves torch's checks alone

    torch.manual_seed(seed)
    theta = task.prior.sample((simulations + HIDDEN,))
    x = task.simulate(theta)
    builder = posterior_flow(**more) if estimator == "bnaf" else estimator
    trainer = NPE(density_estimator=builder, show_progress_bars=False)
    started = time.perf_counter()
    trainer.append_simulations(theta[:simulations], x[:simulations])
    density = trainer.train()
    seconds = time.perf_counter() - started
    hidden, data = theta[simulations:], x[simulations:]
    density.eval()
    with torch.no_grad():
        log_q = density.log_prob(hidden.unsqueeze(0), data)[0]
        drawn = density.sample((1,), data)[0]
    return {
        "log_q": log_q.mean().item(),
        "standard_error": log_q.std().item() / math.sqrt(len(log_q)),
        "c2st": tell_apart(torch.cat([hidden, data], 1), torch.cat([drawn, data], 1)),
        "seconds": seconds,
        "epochs": trainer.summary["epochs_trained"][-1],
    }


def tell_apart(pairs: Tensor, drawn: Tensor) -> float:
    """Return how often a network tells pairs from drawn ones, on parts that it did not see."""
    from sklearn.model_selection import cross_val_score
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = torch.cat([pairs, drawn]).numpy()
    labels = [0] * len(pairs) + [1] * len(drawn)
    network = MLPClassifier([64, 64], early_stopping=True, max_iter=200, random_state=0)
    classifier = make_pipeline(StandardScaler(), network)
    return float(cross_val_score(classifier, rows, labels, cv=5).mean())


def read_arguments() -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description="Posteriors of four simulators by sbi.")
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS])
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=ESTIMATORS)
    parser.add_argument("--simulations", type=int, default=4000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, required=True, help="JSON, rewritten after each case")
    return parser.parse_args()


def main() -> None:
    """Train every estimator on every task."""
    arguments = read_arguments()
    use_two_threads()
    records = read_records(arguments.out)
    for seed in arguments.seeds:
        for task in arguments.tasks:
            for estimator in arguments.estimators:
                case: Record = {"task": task, "estimator": estimator, "seed": seed}
                case["simulations"] = arguments.simulations
                if any(case.items() <= record.items() for record in records):
                    continue
                case |= train(TASKS[task], estimator, arguments.simulations, seed)
                records.append(case)
                print(case, flush=True)
                write_report(arguments.out, records)


if __name__ == "__main__":
    main()
