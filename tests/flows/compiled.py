"""Compile the objective of some flows as one graph, in a process of its own."""

import sys

import torch
from torch import Tensor, nn

from bnaf import BNAF, Flow, ShapeError


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


def main(backend: str) -> None:
    torch.manual_seed(0)
    check(BNAF(3, width=3, transforms=2), backend)
    check(BNAF.paper(2, 2, transforms=1, width=3), backend)
    try:
        BNAF(3)().log_prob(torch.zeros(2))
    except ShapeError:
        print("compiled")


if __name__ == "__main__":
    main(sys.argv[1])
