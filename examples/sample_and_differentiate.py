"""Sample a fitted flow, and differentiate through its samples.

Fits a flow to the two spirals by maximum likelihood, draws 50,000 samples from it by its numerical
inverse, and draws data and samples side by side. Then it changes a copy of the flow so that the
expected squared distance of a sample to a point falls, by gradients that flow through the samples.

Run it from the root of the repository::

    python examples/sample_and_differentiate.py --out demo
"""

import argparse
import copy
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bnaf import BNAF
from bnaf.datasets.toy import toy_named
from bnaf.plots import INK, MODEL, new_figure, plot_points, styled, write_figure

BATCH = 512
SAMPLES = 50_000
DRAWS = 1_000  # samples of an expectation, in each step
TARGET = torch.tensor([1.5, 0.0])
LIMIT = 5.0


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        description="Sample a flow fitted to two spirals, and differentiate through its samples."
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for spirals.png")
    parser.add_argument("--steps", type=int, default=4000, help="steps of the fit (default 4000)")
    parser.add_argument("--moves", type=int, default=30, help="steps through samples")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws (default 0)")
    return parser.parse_args()


def fit(flow: BNAF, steps: int) -> None:
    """Train a flow by maximum likelihood, on fresh rows in every step."""
    spirals = toy_named("2spirals")
    optimiser = torch.optim.Adam(flow.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps, 1))
    for step in range(1, steps + 1):
        loss = -flow().log_prob(spirals.draw(BATCH)).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimiser.step()
        schedule.step()
        if step == 1 or step % 500 == 0 or step == steps:
            print(f"step {step:>5}   loss {loss.item():.4f} nats")


def expectation(samples: Tensor) -> Tensor:
    """Return the mean squared distance of samples to the target."""
    return (samples - TARGET).square().sum(-1).mean()


def minimise(flow: BNAF, moves: int) -> list[float]:
    """Lower the expectation by gradients through samples, and return its course."""
    optimiser = torch.optim.Adam(flow.parameters(), lr=0.01)
    course = []
    for _ in range(moves):
        value = expectation(flow().rsample((DRAWS,)))
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        course.append(value.item())
    return course


def draw_figure(data: Tensor, samples: Tensor, moved: Tensor, course: list[float]) -> Figure:
    """Return data, samples, samples of the moved flow and the course of the expectation."""
    figure = new_figure(16, 4)
    first, second, third, last = figure.subplots(1, 4)
    plot_points(first, data).set(title="Data: two spirals")
    plot_points(second, samples, colour=MODEL).set(title=f"{len(samples):,} samples of the flow")
    plot_points(third, moved, colour=MODEL).set(title="Samples after minimising")
    third.plot(*TARGET.tolist(), "+", color=INK, markersize=12, markeredgewidth=2)
    for axes in (first, second, third):
        axes.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), xlabel="x₁", ylabel="x₂")
    last.plot(course)
    last.set(xlabel="step", ylabel="E |x - target|²", title="Expectation over samples")
    return figure


def main() -> None:
    """Fit, sample, minimise and draw."""
    arguments = read_arguments()
    torch.manual_seed(arguments.seed)
    flow = BNAF(2, transforms=5, hidden_layers=2, width=20)
    start = time.perf_counter()
    fit(flow, arguments.steps)
    print(f"fitted {flow.parameter_count:,} weights in {time.perf_counter() - start:.0f} s")
    law = flow()
    start = time.perf_counter()
    samples = law.sample((SAMPLES,))
    seconds = time.perf_counter() - start
    with torch.no_grad():
        entropy = -law.log_prob(samples).mean().item()
    print(f"drew {SAMPLES:,} samples in {seconds:.2f} s; entropy of the flow {entropy:.4f} nats")
    print(f"entropy of the data: {toy_named('2spirals').entropy():.4f} nats")
    moved = copy.deepcopy(flow)
    course = minimise(moved, arguments.moves)
    print(f"expectation over samples: {course[0]:.3f} before, {course[-1]:.3f} after")
    path = arguments.out / "spirals.png"
    data = toy_named("2spirals").draw(SAMPLES)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with styled():
        figure = draw_figure(data, samples, moved().sample((SAMPLES,)), course)
        write_figure(figure, path, overwrite=True)
    print(f"wrote {path}: data, samples, and samples after minimising")


if __name__ == "__main__":
    main()
