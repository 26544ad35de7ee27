"""What torch and Fabric keep private still does what is asked of it."""

import pickle

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.distributions import Distribution

from bnaf import _torch


def test_transforms_of_torch_func_and_forward_mode_are_noticed():
    seen = []

    def look(x):
        seen.append((_torch.transformed(), _torch.traced()))
        return x.sum()

    x = torch.zeros(2)
    look(x)
    torch.func.grad(look)(x)
    with torch.autograd.forward_ad.dual_level():
        look(x)
    assert seen == [(False, False), (True, True), (True, True)]


def test_gamma_draws_follow_from_the_generator_that_is_given():
    for draw in _torch.GAMMA_DRAWS:
        one, same, other = (
            draw(torch.ones(2, 3), generator=torch.Generator().manual_seed(seed))
            for seed in (1, 1, 2)
        )
        assert torch.equal(one, same)
        assert not torch.equal(one, other)


def test_gradients_that_come_many_at_a_time_are_noticed():
    seen = []

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.append(_torch.batched(grad))
            return grad * 2

    x = torch.zeros(3, requires_grad=True)
    y = Watch.apply(x)
    torch.autograd.grad(y, x, torch.ones(3), retain_graph=True)
    torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)
    assert seen == [False, True]


def test_changes_in_place_are_counted():
    weight = torch.nn.Parameter(torch.ones(2))
    before = _torch.changes(weight)
    torch.optim.SGD([weight], lr=0.1).step()
    assert _torch.changes(weight) == before
    weight.grad = torch.ones(2)
    for optimiser in (torch.optim.SGD([weight], lr=0.1), torch.optim.Adam([weight])):
        before = _torch.changes(weight)
        optimiser.step()
        assert _torch.changes(weight) > before
    with torch.inference_mode():
        assert _torch.changes(torch.ones(1)) is None


def test_lists_of_tensors_are_moved_and_copied_at_once():
    targets, ends = [torch.zeros(2), torch.ones(1)], [torch.ones(2), torch.zeros(1)]
    _torch.lerp_all(targets, ends, 0.25)
    assert [target.tolist() for target in targets] == [[0.25, 0.25], [0.75]]
    _torch.copy_all(targets, ends)
    assert [target.tolist() for target in targets] == [[1.0, 1.0], [0.0]]


def test_the_norm_is_that_of_all_entries():
    parts = [torch.randn(3, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)]
    expected = torch.cat([part.flatten() for part in parts]).norm()
    torch.testing.assert_close(_torch.total_norm(parts), expected)


@pytest.mark.parametrize("fused", [False, True])
def test_only_some_optimisers_are_told_of_their_gradients_on_the_device(fused):
    weight = torch.nn.Parameter(torch.ones(2))
    assert _torch.obeys_on_device(torch.optim.Adam([weight], fused=fused)) == fused
    assert not _torch.obeys_on_device(torch.optim.SGD([weight], lr=0.1))


def test_fused_adam_divides_by_the_scale_and_obeys_the_verdict():
    def step(scale, found, grad):
        weight = torch.nn.Parameter(torch.ones(2))
        adam = torch.optim.Adam([weight], lr=0.1, eps=1.0, fused=True)
        weight.grad = grad.clone()
        adam.grad_scale, adam.found_inf = scale, torch.tensor(found)
        adam.step()
        return weight.detach()

    grad = torch.tensor([3.0, -0.5])
    torch.testing.assert_close(step(torch.tensor(4.0), 0.0, grad), step(None, 0.0, grad / 4))
    assert torch.equal(step(None, 1.0, grad), torch.ones(2))


@pytest.mark.parametrize("before", [False, True])
def test_torchs_checks_of_arguments_are_as_before(before):
    default = Distribution._validate_args
    try:
        Distribution.set_default_validate_args(before)
        with _torch.kept_validation():
            Distribution.set_default_validate_args(not before)
        assert Distribution._validate_args == before
    finally:
        Distribution.set_default_validate_args(default)


def test_fabric_looks_for_no_callbacks_of_others_and_reaches_other_processes():
    fabric = _torch.QuietFabric(accelerator="cpu", devices=1, callbacks=["mine"])
    assert fabric._callbacks == ["mine"]
    assert pickle.loads(pickle.dumps(_torch.QuietFabric)) is _torch.QuietFabric
    assert not _torch.starts_processes(fabric)
    spawning = _torch.QuietFabric(accelerator="cpu", devices=2, strategy="ddp_spawn")
    assert _torch.starts_processes(spawning)


def test_a_gradient_is_that_of_torch_and_has_a_graph_of_its_own():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, dtype=torch.float64)
    found = _torch.differentiable_gradient(lambda x: [x**3], [x], [True], [weights])
    torch.testing.assert_close(found[0], 3 * x**2 * weights)
    (second,) = torch.autograd.grad(found[0].sum(), x)
    torch.testing.assert_close(second, 6 * x * weights)


def test_modes_that_look_at_every_operator_are_noticed():
    assert not _torch.dispatched()
    with FakeTensorMode():
        assert _torch.dispatched()


def test_loops_in_graphs_end_by_their_values():
    from bnaf._torch import loop_in_graph

    start = (torch.zeros((), dtype=torch.int64), torch.ones(3))
    count, doubled = loop_in_graph(
        lambda count, x: x.max() < 10, lambda count, x: (count + 1, 2 * x), start
    )
    assert count == 4
    assert doubled.tolist() == [16.0] * 3
