"""Fit a flow to a two-dimensional density, then draw the data, samples and the density it learned.

Run it from the root of the repository::

    python examples/toy_density.py --out demo
    python examples/toy_density.py --out demo --data checkerboard --steps 3000
"""

import argparse
import math
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bnaf import BNAF, Model
from bnaf.datasets.toy import TOY_DATA, draw_toy
from bnaf.plots import MODEL, new_figure, plot_density, plot_points, styled, write_figure

BATCH = 512
TEST_ROWS = 100_000
SHOWN_ROWS = 5_000
LIMIT = 4.5  # the figures show the square [-LIMIT, LIMIT] in both features


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        description="Fit a flow to a toy density and draw what it learned."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for density.png")
    parser.add_argument("--data", choices=TOY_DATA, default="8gaussians", help="toy density")
    parser.add_argument("--steps", type=int, default=1500, help="steps of training (default 1500)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws (default 0)")
    return parser.parse_args()


def fit(flow: BNAF, data: str, steps: int) -> None:
    """Train a flow by maximum likelihood, on fresh rows in every step.

    Args:
        flow: What is trained, in place.
        data: Name of the toy density.
        steps: Number of steps.
    """
    optimiser = torch.optim.Adam(flow.parameters(), lr=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps, 1))
    for step in range(1, steps + 1):
        loss = -flow().log_prob(draw_toy(data, BATCH)).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimiser.step()
        schedule.step()
        if step == 1 or step % 250 == 0 or step == steps:
            print(f"step {step:>5}   loss {loss.item():.4f} nats")


@torch.no_grad()
def mean_nll(flow: BNAF, rows: Tensor) -> tuple[float, float]:
    """Return the mean negative log-likelihood of some rows, and its standard error."""
    nll = -flow().log_prob(rows)
    return nll.mean().item(), nll.std().item() / math.sqrt(len(rows))


def draw_figure(flow: BNAF, data: str) -> Figure:
    """Return the data, samples of the flow and its density, side by side."""
    limits = (-LIMIT, LIMIT)
    figure = new_figure(12, 3.8)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.25))
    plot_points(left, draw_toy(data, SHOWN_ROWS)).set(title=f"Data: {data}")
    plot_points(middle, flow().sample((SHOWN_ROWS,)), colour=MODEL).set(title="Samples")
    plot_density(right, Model(flow, columns=["x₁", "x₂"]), limits=(limits, limits))
    right.set(title="Density of the flow")
    for axes in (left, middle):
        axes.set(xlabel="x₁", ylabel="x₂", xlim=limits, ylim=limits)
    return figure


def main() -> None:
    """Fit, evaluate and draw."""
    arguments = read_arguments()
    torch.manual_seed(arguments.seed)
    flow = BNAF(2, transforms=4, hidden_layers=2, width=20)
    print(f"fitting {flow.parameter_count:,} parameters to {arguments.data}")
    start = time.perf_counter()
    fit(flow, arguments.data, arguments.steps)
    print(f"trained in {time.perf_counter() - start:.0f} s")
    nll, error = mean_nll(flow, draw_toy(arguments.data, TEST_ROWS))
    print(f"negative log-likelihood of {TEST_ROWS:,} fresh points: {nll:.4f} ± {error:.4f} nats")
    entropy = TOY_DATA[arguments.data].entropy()
    print(f"entropy of the data, the least there is: {entropy:.4f} nats")
    path = arguments.out / "density.png"
    arguments.out.mkdir(parents=True, exist_ok=True)
    with styled():
        write_figure(draw_figure(flow, arguments.data), path, overwrite=True)
    print(f"wrote {path}: data, samples and density")


if __name__ == "__main__":
    main()
