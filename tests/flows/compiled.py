"""Compile the objective of some flows as one graph, in a process of its own."""

import sys

import torch
from torch import Tensor, nn

from bnaf import BNAF, Flow, ShapeError
from bnaf._random import library_draws, private_draws


class Objective(nn.Module):
    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, rows: Tensor, context: Tensor | None = None) -> Tensor:
        return -self.flow(context).log_prob(rows).mean()


def check(flow: Flow, backend: str) -> None:
    objective = Objective(flow)
    rows = torch.randn(20, flow.features)
    arguments = (rows, torch.randn(20, 2)) if flow.context_features else (rows,)
    plain = objective(*arguments)
    expected = torch.autograd.grad(plain, list(flow.parameters()))
    compiled = torch.compile(objective, fullgraph=True, backend=backend)(*arguments)
    grads = torch.autograd.grad(compiled, list(flow.parameters()))
    torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(grads, expected, strict=True):
        assert (ours - theirs).norm() <= 1e-3 * theirs.norm() + 1e-4


class Drawing(nn.Module):
    """What draws within a fit: a law of ours, and the dropout of a context network."""

    def __init__(self) -> None:
        super().__init__()
        settings = {"transforms": 1, "width": 3, "context_width": 8, "context_dropout": 0.5}
        self.flow = BNAF(2, 2, direction="sampling", **settings)

    def forward(self, context: Tensor) -> Tensor:
        return self.flow(context).rsample_and_log_prob((2,))[1]


def check_draws(backend: str) -> None:
    drawing, context = Drawing(), torch.randn(5, 2)
    # inductor has a generator of its own unless it is told to take torch's
    options = {"fallback_random": True} if backend == "inductor" else None
    compiled = torch.compile(drawing, fullgraph=True, backend=backend, options=options)
    with private_draws(1):
        expected = drawing(context)
    before = torch.get_rng_state()
    with library_draws(1):
        found = compiled(context)
    with library_draws(2):
        other = compiled(context)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.equal(other, found)
    assert not torch.equal(found[0], found[1])


class Sampler(nn.Module):
    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, z: Tensor, context: Tensor) -> Tensor:
        return self.flow(context).transform.inv(z)


def check_export(module: nn.Module) -> None:
    """Export with a batch that is left open, tracing as torch does by default."""
    count = torch.export.Dim("count", min=2)
    example = (torch.randn(16, 3), torch.randn(16, 2))
    shapes = ({0: count}, {0: count})
    exported = torch.export.export(module, example, dynamic_shapes=shapes, strict=False)
    arguments = (torch.randn(7, 3), torch.randn(7, 2))
    torch.testing.assert_close(exported.module()(*arguments), module(*arguments))


class Drawer(nn.Module):
    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, like: Tensor) -> Tensor:
        return self.flow().sample((like.shape[0],))


def check_open_draws() -> None:
    """Export draws whose number is left open."""
    drawer = Drawer(BNAF(3, width=3, transforms=1, direction="sampling"))
    shapes = ({0: torch.export.Dim("count")},)
    exported = torch.export.export(drawer, (torch.zeros(16),), dynamic_shapes=shapes)
    assert exported.module()(torch.zeros(7)).shape == (7, 3)


def main(backend: str) -> None:
    torch.manual_seed(0)
    check_open_draws()
    check_export(Objective(BNAF(3, 2, width=3, transforms=2)))
    check_export(Sampler(BNAF(3, 2, width=3, transforms=1, direction="sampling")))
    check_draws(backend)
    check(BNAF(3, width=3, transforms=2), backend)
    check(BNAF.paper(2, 2, transforms=1, width=3), backend)
    try:
        BNAF(3)().log_prob(torch.zeros(2))
    except ShapeError:
        print("compiled")


if __name__ == "__main__":
    main(sys.argv[1])
