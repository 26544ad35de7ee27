"""Small VAEs that several tests make: a linear Gaussian model, whose evidence is known."""

import os
import signal

import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal

from bnaf import BNAF, TrainingSettings, fit
from bnaf.flows.iaf import IAF
from bnaf.flows.planar import Planar
from bnaf.flows.sylvester import Sylvester
from bnaf.training.progress import Silence
from bnaf.vae import VAE, NegativeELBO, Posterior

LATENTS, PIXELS, NOISE, CONTEXT = 2, 3, 0.5, 4
SAMPLING = {"direction": "sampling"}
POSTERIORS = {
    "gaussian": lambda d, c: None,
    "planar": lambda d, c: Planar(d, c, transforms=3, **SAMPLING),
    "iaf": lambda d, c: IAF(d, c, transforms=2, width=12, **SAMPLING),
    "orthogonal": lambda d, c: Sylvester(d, c, transforms=2, **SAMPLING),
    "householder": lambda d, c: Sylvester(d, c, transforms=2, basis="householder", **SAMPLING),
    "triangular": lambda d, c: Sylvester(d, c, transforms=2, basis="triangular", **SAMPLING),
    "bnaf": lambda d, c: BNAF(
        d, c, transforms=2, hidden_layers=1, width=4, context="amortised", **SAMPLING
    ),
    "bnaf_biases": lambda d, c: BNAF(d, c, transforms=2, hidden_layers=1, width=4, **SAMPLING),
    "bnaf_paper": lambda d, c: BNAF.paper(
        d, c, transforms=2, hidden_layers=1, width=4, **SAMPLING
    ),
}


class LinearGaussian(nn.Module):
    """Decoder of x = z W + noise, with columns of W that are orthogonal."""

    def __init__(self):
        super().__init__()
        weight = torch.tensor([[0.8, -0.6, 0.5], [0.3, 0.9, 0.6]], dtype=torch.float64)
        weight[1] -= (weight[0] @ weight[1]) / (weight[0] @ weight[0]) * weight[0]
        self.register_buffer("weight", weight)

    def forward(self, z):
        return Independent(Normal(z @ self.weight, NOISE), 1)

    def evidence(self):
        covariance = self.weight.T @ self.weight + NOISE**2 * torch.eye(PIXELS)
        return MultivariateNormal(torch.zeros(PIXELS, dtype=torch.float64), covariance)


def linear_vae(shift=0.0):
    """Return a VAE whose posterior is the true one, but for a shift of its mean."""
    decoder = LinearGaussian()
    posterior = Posterior(LATENTS, PIXELS).double()
    precision = 1 + decoder.weight.square().sum(1) / NOISE**2
    with torch.no_grad():
        posterior.mean.weight.copy_(decoder.weight / NOISE**2 / precision.unsqueeze(1))
        posterior.mean.bias.fill_(shift)
        posterior.variance.weight.zero_()
        posterior.variance.bias.copy_((1 / precision).expm1().log())
    return VAE(nn.Identity(), posterior, decoder)


def small_vae(name="bnaf"):
    flow = POSTERIORS[name](LATENTS, CONTEXT)
    posterior = Posterior(LATENTS, CONTEXT, flow=flow)
    vae = VAE(nn.Linear(PIXELS, CONTEXT), posterior, LinearGaussian())
    return vae.double()


def rows_of(vae, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, LATENTS, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, PIXELS, generator=generator, dtype=torch.float64)
    return z @ vae.decoder.weight + NOISE * noise


class Killing(Silence):
    """Display that kills its own process at some step."""

    interval = 0.0

    def __init__(self, step):
        self.step = step

    def show(self, view):
        if view.step >= self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train_small(checkpoint, kill_at=None, **settings):
    """Train a small VAE with a warm-up, and return it with its record."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vae = small_vae()
    record = fit(
        vae,
        rows_of(vae, 120),
        valid=rows_of(vae, 40, seed=1),
        objective=NegativeELBO(vae, warm_up=15),
        optimiser=lambda weights: torch.optim.Adamax(weights, lr=0.01),
        settings=TrainingSettings(**{"steps": 30, "batch": 30, "evaluate_every": 4} | settings),
        checkpoint=checkpoint,
        checkpoint_every=0.0,
        progress=Killing(kill_at) if kill_at else False,
    )
    return vae, record
