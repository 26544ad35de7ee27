"""Numbers made with the authors' code from random weights of order one, in float64."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from bnaf import BNAF, StorageError
from bnaf.block import kernels

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.npz"))
NAMES = {"weight": "_weight", "log_gain": "_diag_weight", "bias": "bias"}
NETWORKS = [
    (6, 40, 181_264),
    (8, 40, 308_884),
    (21, 20, 516_814),
    (43, 5, 170_284),
    (63, 20, 4_461_034),
]


def published_key(name: str) -> str:
    flow, *rest = name.split(".")
    prefix = str(2 * int(flow.removeprefix("flow")))
    if rest == ["gate"]:
        return f"{prefix}.gate"
    layer, kind = rest
    return f"{prefix}.{2 * int(layer.removeprefix('layer'))}.{NAMES[kind]}"


@pytest.fixture(params=["kernels", "plain"], autouse=True)
def mode(request):
    with kernels.disabled() if request.param == "plain" else nullcontext():
        yield


@pytest.fixture(params=GOLDEN, ids=lambda path: path.stem)
def golden(request):
    return {
        name: torch.from_numpy(value)
        for name, value in np.load(request.param).items()
        if value.ndim
    }


@pytest.fixture
def state_dict(golden):
    return {
        published_key(name.removeprefix("param/")): value
        for name, value in golden.items()
        if name.startswith("param/")
    }


def test_value_log_det_and_gradient(golden, state_dict):
    x = golden["x"].requires_grad_()
    y, log_det = BNAF.from_published(state_dict)().transform.call_and_ladj(x)
    (grad_x,) = torch.autograd.grad(y.sum() + log_det.sum(), x)
    torch.testing.assert_close(y, golden["y"], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(log_det, golden["log_det"], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(grad_x, golden["grad_x"], rtol=1e-9, atol=1e-9)


def test_every_parameter_gradient(golden, state_dict):
    flow = BNAF.from_published(state_dict)
    y, log_det = flow().transform.call_and_ladj(golden["x"])
    (y.sum() + log_det.sum()).backward()
    for (
        parameter
    ) in flow.parameters():  # so that a layer shows its gradients as it shows its weights
        parameter.data = parameter.grad
    for name, expected in golden.items():
        if not name.startswith("grad/"):
            continue
        flow_name, *rest = name.removeprefix("grad/").split(".")
        index = int(flow_name.removeprefix("flow"))
        if rest == ["gate"]:
            ours = flow.gates[index : index + 1]
        else:
            layer = flow.networks.layers[int(rest[0].removeprefix("layer"))]
            ours = {
                "weight": lambda layer=layer, index=index: layer.raw_weight()[index],
                "log_gain": lambda layer=layer, index=index: layer.log_gain[index].unsqueeze(1),
                "bias": lambda layer=layer, index=index: layer.bias[index],
            }[rest[1]]()
        torch.testing.assert_close(ours.data, expected, rtol=1e-9, atol=1e-9)


def test_masks_are_ignored(state_dict, golden):
    masked = {**state_dict, "0.0.mask_d": torch.ones(1), "0.0.mask_o": torch.zeros(1)}
    y = BNAF.from_published(masked)().transform(golden["x"])
    torch.testing.assert_close(y, golden["y"], rtol=1e-9, atol=1e-9)


def test_the_sampling_direction_is_the_same_map(state_dict, golden):
    law = BNAF.from_published(state_dict, direction="sampling")()
    torch.testing.assert_close(law.transform.inv(golden["x"]), golden["y"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("features", "width", "count"), NETWORKS)
def test_the_networks_of_the_paper_have_its_number_of_weights(features, width, count):
    flow = BNAF.paper(features, transforms=5, hidden_layers=2, width=width)
    assert flow.parameter_count == count


def test_the_amortised_numbers_of_the_paper():
    flow = BNAF.paper(64, 256, transforms=8, hidden_layers=1, width=4, direction="sampling")
    assert flow.conditioner.prediction_count == 7_680


def test_an_amortised_posterior_does_not_start_as_a_point():
    flow = BNAF.paper(16, 8, transforms=8, hidden_layers=1, width=4, direction="sampling").double()
    draws = flow(torch.zeros(1, 8).double()).rsample((500,))
    assert draws.std(0).median() > 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("0.0.bias"), r"lacks '0.0.bias'"),
        (
            lambda tensors: tensors.update({"epoch": torch.ones(1)}),
            r"'epoch' is not of the authors'",
        ),
        (
            lambda tensors: tensors.update({"0.0.bias": torch.ones(99)}),
            r"Expected tensors of shapes",
        ),
        (lambda tensors: tensors.clear(), r"must hold flows '0', '2'"),
    ],
)
def test_foreign_state_dicts_are_refused(state_dict, change, message):
    change(state_dict)
    with pytest.raises(StorageError, match=message):
        BNAF.from_published(state_dict)


def test_gates_contradict_a_plain_residual(state_dict):
    if "0.gate" not in state_dict:
        pytest.skip("one flow has no gate")
    with pytest.raises(StorageError, match='say "gated"'):
        BNAF.from_published(state_dict, residual="normal")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"4.gate": torch.zeros(1)}, "got 4.gate as well"),
        ({"1.gate": torch.zeros(1)}, "Key '1.gate' is not of the authors' code"),
        ({"0.0._weight": torch.zeros(3)}, "Expected tensors of shapes"),
    ],
)
def test_what_does_not_belong_is_refused(change, message):
    flows = [torch.zeros(2, 2), torch.zeros(2, 2)]
    state_dict = {}
    for flow in (0, 2):
        for layer, weight in enumerate(flows):
            state_dict[f"{flow}.{2 * layer}._weight"] = weight
            state_dict[f"{flow}.{2 * layer}._diag_weight"] = torch.zeros(2, 1)
            state_dict[f"{flow}.{2 * layer}.bias"] = torch.zeros(2)
    state_dict["0.gate"] = torch.zeros(1)
    assert BNAF.from_published(state_dict).settings["transforms"] == 2
    with pytest.raises(StorageError, match=message):
        BNAF.from_published({**state_dict, **change})
