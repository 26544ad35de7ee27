"""Sample a posterior that is hard for Hamiltonian Monte Carlo in the coordinates of a flow.

Neal's funnel has a neck that is a hundred times as narrow as its mouth, so that no step suits
both. A guide is fitted to it first; then NUTS runs in the guide's base space, where what the guide
has learned is straight (NeuTra, Hoffman et al., 2019). It prints the effective draws with and
without the flow, and the deviation of the log-scale, which is 3.

Run it from the root of the repository, with Pyro (``pip install "bnaf[pyro]"``)::

    python examples/neutra.py
"""

import argparse

import pyro
import torch
from pyro import distributions as dist
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.reparam import NeuTraReparam
from pyro.ops.stats import effective_sample_size
from torch import Tensor

from bnaf.integrations.pyro import AutoBNAF


def funnel() -> None:
    """Sample a log-scale, and four values of that scale."""
    log_scale = pyro.sample("log_scale", dist.Normal(0.0, 3.0))
    scale = (log_scale / 2).exp().unsqueeze(-1)
    pyro.sample("values", dist.Normal(torch.zeros(4), scale).to_event(1))


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="NUTS through a flow, on Neal's funnel.")
    parser.add_argument("--steps", type=int, default=2000, help="of the fit (default 2000)")
    parser.add_argument("--draws", type=int, default=500, help="of each chain (default 500)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws (default 0)")
    return parser.parse_args()


def fit_guide(steps: int) -> AutoBNAF:
    """Return a guide fitted to the funnel."""
    guide = AutoBNAF(funnel, init_scale=1.0)
    loss = Trace_ELBO(num_particles=32, vectorize_particles=True, max_plate_nesting=0)
    svi = SVI(funnel, guide, pyro.optim.ClippedAdam({"lr": 0.02, "clip_norm": 10.0}), loss)
    for step in range(1, steps + 1):
        found = svi.step()
        if step == 1 or step % 500 == 0 or step == steps:
            print(f"step {step:>5}   -ELBO {found:.3f} nats")
    guide.requires_grad_(False)
    return guide


def draw(kernel: NUTS, draws: int) -> dict[str, Tensor]:
    """Return the draws of a chain, after as many steps that set it up."""
    chain = MCMC(kernel, num_samples=draws, warmup_steps=draws, disable_progbar=True)
    chain.run()
    return chain.get_samples()


def describe(name: str, log_scale: Tensor) -> None:
    """Print how many draws are worth something, and the deviation that they have."""
    effective = effective_sample_size(log_scale.unsqueeze(0), 0, 1).item()
    print(f"{name}: {effective:.0f} effective draws of {len(log_scale)}, ", end="")
    print(f"deviation of the log-scale {log_scale.std().item():.2f}")


def main() -> None:
    """Draw from the funnel with and without a flow."""
    arguments = read_arguments()
    pyro.set_rng_seed(arguments.seed)
    describe("NUTS alone", draw(NUTS(funnel), arguments.draws)["log_scale"])
    neutra = NeuTraReparam(fit_guide(arguments.steps))
    straight = poutine.reparam(funnel, config=lambda _: neutra)
    (latent,) = draw(NUTS(straight), arguments.draws).values()  # all variables in one row
    with torch.no_grad():
        values = neutra.transform_sample(latent)
    describe("NUTS through the flow", values["log_scale"])


if __name__ == "__main__":
    main()
