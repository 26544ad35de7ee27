"""Variational inference with Pyro: our guide beside its own, on a banana and on eight schools.

The rate of every guide falls to a twentieth on the way. The number is -ELBO of many fresh draws.
The evidence of the banana is one, so that its -ELBO is the divergence from guide to posterior;
that of the schools is the same for all guides.

``make bench-integrations`` runs it, in the environment of ``make test-integrations``; a case that
is in the report already is not run again::

    python benchmarks/pyro_guides.py --out results/pyro_guides.json
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyro
import torch
from pyro import distributions as dist
from pyro.distributions.transforms import block_autoregressive, iterated
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoIAFNormal, AutoNormalizingFlow
from shared import Record, read_records, use_two_threads, write_report

from bnaf.integrations.pyro import AutoBNAF, FlowTransform
from bnaf.integrations.zuko import ZukoFlow

EVALUATIONS, DRAWS = 20, 1000  # of the ELBO at the end
EFFECTS = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def banana() -> None:
    """Sample a curved law of two variables."""
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    pyro.sample("y", dist.Normal(x**2, 0.5))


def schools() -> None:
    """Sample effects of coaching, which are seen with errors, around a mean."""
    mean = pyro.sample("mean", dist.Normal(0.0, 10.0))
    spread = pyro.sample("spread", dist.HalfCauchy(10.0))
    with pyro.plate("schools", 8):
        effect = pyro.sample("effect", dist.Normal(mean, spread))
        pyro.sample("seen", dist.Normal(effect, ERRORS), obs=EFFECTS)


def pyro_bnaf(model: Callable[..., Any]) -> Any:
    """Return a guide of Pyro's own block neural autoregressive flow."""
    transform = partial(iterated, 2, block_autoregressive, activation="tanh")
    return AutoNormalizingFlow(model, transform)


def zuko_iaf(model: Callable[..., Any]) -> Any:
    """Return a guide of zuko's inverse autoregressive flow: its MAF, turned round."""
    from zuko.flows import MAF

    def make(features: int) -> FlowTransform:
        maf = MAF(features, transforms=3)
        return FlowTransform(ZukoFlow(features, transform=maf.transform, direction="sampling"))

    return AutoNormalizingFlow(model, make)


MODELS = {"banana": banana, "eight schools": schools}
GUIDES: dict[str, tuple[Callable[..., Any], float]] = {
    "bnaf": (AutoBNAF, 0.05),
    "bnaf, whole gradients": (partial(AutoBNAF, path_gradients=False), 0.05),
    "Pyro IAF": (partial(AutoIAFNormal, num_transforms=2), 0.01),
    "Pyro B-NAF": (pyro_bnaf, 0.01),
    "zuko IAF": (zuko_iaf, 0.01),
}
"""How each guide is made, and the rate that it is trained at."""


def train(model: Callable[..., Any], guide: str, steps: int, particles: int, seed: int) -> Record:
    """Train a guide, and return its -ELBO."""
    pyro.clear_param_store()
    pyro.set_rng_seed(seed)
    make, rate = GUIDES[guide]
    made = make(model)
    how: dict[str, Any] = {"vectorize_particles": True, "max_plate_nesting": 1}
    made()  # guides of Pyro make their weights when they are called first
    optimiser = pyro.optim.ExponentialLR(
        {"optimizer": torch.optim.Adam, "optim_args": {"lr": rate}, "gamma": 0.05 ** (1 / steps)}
    )
    svi = SVI(model, made, optimiser, Trace_ELBO(num_particles=particles, **how))
    started = time.perf_counter()
    for _ in range(steps):
        svi.step()
        optimiser.step()
    seconds = time.perf_counter() - started
    judge = Trace_ELBO(num_particles=DRAWS, **how)
    with torch.no_grad():
        losses = torch.tensor([judge.loss(model, made) for _ in range(EVALUATIONS)])
    error = losses.std().item() / EVALUATIONS**0.5
    return {"loss": losses.mean().item(), "standard_error": error, "seconds": seconds}


def read_arguments() -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description="Guides of Pyro, trained alike.")
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=[*MODELS])
    parser.add_argument("--guides", nargs="+", choices=[*GUIDES], default=[*GUIDES])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--particles", type=int, default=64)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, required=True, help="JSON, rewritten after each case")
    return parser.parse_args()


def main() -> None:
    """Train every guide on every model."""
    arguments = read_arguments()
    use_two_threads()
    records = read_records(arguments.out)
    for model in arguments.models:
        for guide in arguments.guides:
            for seed in arguments.seeds:
                case: Record = {"model": model, "guide": guide, "seed": seed}
                case |= {"steps": arguments.steps, "particles": arguments.particles}
                if any(case.items() <= record.items() for record in records):
                    continue
                case |= train(MODELS[model], guide, arguments.steps, arguments.particles, seed)
                records.append(case)
                print(case, flush=True)
                write_report(arguments.out, records)


if __name__ == "__main__":
    main()
