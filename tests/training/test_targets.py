"""Flows trained end to end on problems whose answer is known."""

import torch
from torch.distributions import Normal

from bnaf import BNAF
from bnaf.datasets.toy import draw_toy


def train(flow, draw, steps, rate=0.02):
    optimiser = torch.optim.Adam(flow.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        rows, context = draw()
        loss = -flow(context).log_prob(rows).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimiser.step()
        schedule.step()
    return loss.item()


def test_a_conditional_flow_recovers_heteroscedastic_quantiles():
    flow = BNAF(1, 1, transforms=2, width=8, context_width=32)

    def draw():
        context = 4 * torch.rand(512, 1) - 2
        return context.sin() + (0.2 + 0.3 * context.abs()) * torch.randn(512, 1), context

    train(flow, draw, 700)
    context = torch.tensor([[-1.5], [-0.5], [0.5], [1.5]])
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    with torch.no_grad():
        z = Normal(0.0, 1.0).icdf(levels).view(-1, 1, 1).expand(5, 4, 1)
        quantiles = flow(context).transform.inv(z).squeeze(-1)
    spread = 0.2 + 0.3 * context.abs()
    exact = context.sin().T + spread.T * Normal(0.0, 1.0).icdf(levels).unsqueeze(1)
    assert ((quantiles - exact).abs() / spread.T).max() < 0.25


def test_tails_of_a_fitted_flow_are_sane():
    flow = BNAF(2, transforms=2, width=24)
    loss = train(flow, lambda: (draw_toy("8gaussians", 512), None), 800, rate=0.05)
    assert loss < 3.1
    x = flow().sample((100_000,))
    data = draw_toy("8gaussians", 100_000)
    assert x.isfinite().all()
    assert (x.abs() < 10 * (data.max() - data.min())).all()
    assert flow().log_prob(x).isfinite().all()
