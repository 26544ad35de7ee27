"""Small fits that several tests make."""

import torch

from bnaf import BNAF, TrainingSettings, fit

QUICK = TrainingSettings(steps=12)


def small_flow(context_features=0, **settings):
    return BNAF(
        2, context_features, **{"transforms": 1, "hidden_layers": 1, "width": 4, **settings}
    )


def square(x):
    return (x**2).sum(-1)


def banana(count, seed=0):
    rows = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return torch.stack([rows[:, 0], rows[:, 0].square() - 1 + 0.3 * rows[:, 1]], 1)


def quietly(flow, rows, **options):
    return fit(flow, rows, **{"settings": QUICK, "progress": False, **options})


def weights_of(flow):
    return torch.cat([weight.detach().flatten() for weight in flow.parameters()])


def same_start(build, count):
    flows = [build() for _ in range(count)]
    for flow in flows[1:]:
        flow.load_state_dict(flows[0].state_dict())
    return flows
