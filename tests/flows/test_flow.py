"""The contract of a flow: what stands once for all of them."""

import copy
import pickle

import numpy as np
import pytest
import torch
from cases import DENSITY, FLOWS, size_of
from torch import nn

from bnaf import BNAF, DtypeError, SettingsError, ShapeError, StaleLawError, TransformFlow
from bnaf.flows.registry import flow_named, flow_names
from bnaf.laws.affine import ScaleTransform


class Shift(TransformFlow):
    """The least there is to a flow: a constructor, and how its transform is made."""

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        size: int = 1,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        self.shift = nn.Parameter(size * torch.ones(features))
        self.slopes = nn.Parameter(torch.ones(context_features, features))

    def make_transform(self, context):
        shift = self.shift if context is None else self.shift + context @ self.slopes
        return ScaleTransform(torch.zeros_like(shift), shift)


@pytest.mark.parametrize("direction", ["density", "sampling"])
def test_a_new_flow_needs_no_more_than_its_transform(direction):
    flow = Shift(2, 3, size=np.int64(4), direction=direction)
    assert flow.settings == {
        "features": 2,
        "context_features": 3,
        "size": 4,
        "direction": direction,
    }
    assert flow.parameter_count == 8
    law = flow(torch.zeros(5, 3))
    centre = 4.0 if direction == "sampling" else -4.0
    expected = torch.distributions.Normal(centre, 1.0).log_prob(torch.zeros(2)).sum()
    torch.testing.assert_close(law.log_prob(torch.zeros(5, 2)), expected.expand(5))
    assert law.sample((7,)).shape == (7, 5, 2)
    assert flow.missing_mass(context=torch.zeros(5, 3)) == (0.0, 0.0)
    assert repr(flow).startswith("Shift(features=2, context_features=3, size=4")
    with pytest.raises(ShapeError, match="expects a context of 3 features"):
        flow()
    with pytest.raises(ShapeError, match=r"takes no context; .* context_features=3"):
        Shift(2)(torch.zeros(5, 3))


def test_settings_outlive_copies_and_pickles():
    flow = Shift(2, size=3)
    for again in (copy.deepcopy(flow), pickle.loads(pickle.dumps(BNAF(2, width=3)))):
        assert again.settings == (flow if isinstance(again, Shift) else BNAF(2, width=3)).settings


def test_settings_cannot_be_changed_from_outside():
    flow = Shift(2)
    flow.settings["features"] = 7
    assert flow.settings["features"] == 2


def test_wrong_arguments_are_told_as_python_tells_them():
    with pytest.raises(TypeError, match="unexpected keyword argument 'sise'"):
        Shift(2, sise=3)
    with pytest.raises(SettingsError, match="direction must be one of 'density', 'sampling'"):
        Shift(2, direction="up")


@pytest.mark.parametrize("name", flow_names())
@pytest.mark.parametrize("number", [np.int64, np.uint8, np.array, torch.tensor])
def test_whatever_numpy_takes_for_a_whole_number_is_one(name, number):
    size = size_of(flow_named(name))
    flow = flow_named(name)(number(3), number(2), **{size: number(2)})
    assert (flow.features, flow.context_features, flow.settings[size]) == (3, 2, 2)
    assert all(type(flow.settings[key]) is int for key in ("features", size))
    assert flow.settings == type(flow)(**flow.settings).settings


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("way", ["map", "invert", "__call__", "call_and_ladj"])
def test_every_transform_checks_its_rows(name, way):
    transform = FLOWS[name]()().transform
    for one in (transform, transform.inv):
        with pytest.raises(ShapeError, match="expects 3 features in the last dimension"):
            getattr(one, way)(torch.zeros(5, 2))
        with pytest.raises(ShapeError, match="expects 3 features in the last dimension"):
            getattr(one, way)(torch.tensor(1.0))
        with pytest.raises(DtypeError, match=r"of the flow's type torch\.float32, got torch\.fl"):
            getattr(one, way)(torch.zeros(5, 3, dtype=torch.float64))


@pytest.mark.parametrize("name", FLOWS)
def test_the_inverse_of_a_transform_is_one_object(name):
    transform = FLOWS[name]()().transform
    inverse = transform.inv
    assert transform.inv is inverse
    assert inverse.inv is transform
    assert inverse.inverted is not transform.inverted


@pytest.mark.parametrize("name", DENSITY)
def test_both_ways_of_a_transform_tell_where_they_lead(name):
    transform = FLOWS[name]().double()().transform
    x = torch.randn(4, 3, dtype=torch.float64)
    there = transform.map(x)
    back = transform.invert(there.rows, ladj=True)
    assert there.inside is None or there.inside.all()
    assert back.inside is None or back.inside.all()
    torch.testing.assert_close(back.rows, x)
    torch.testing.assert_close(back.log_det, -there.log_det)
    again = transform.inv.map(there.rows)
    torch.testing.assert_close(again.rows, back.rows)
    torch.testing.assert_close(again.log_det, back.log_det)


def test_rows_that_are_not_reached_are_told_in_both_directions():
    flow = BNAF.paper(2, transforms=1, width=4).double()
    transform = flow().transform
    near = transform(torch.zeros(1, 2, dtype=torch.float64)).detach()
    far = torch.cat([near, near + 1e6])
    for passage in (transform.invert(far), transform.inv.map(far)):
        assert passage.inside.tolist() == [True, False]


@pytest.mark.parametrize("name", FLOWS)
def test_laws_are_pickled_and_copied_whole(name):
    law = FLOWS[name]().requires_grad_(False)()
    law.transform.inv  # noqa: B018 (which is then known)
    x = torch.randn(4, 3)
    for again in (pickle.loads(pickle.dumps(law)), copy.deepcopy(law)):
        assert again.transform.inv is not law.transform.inv
        assert again.transform.inv.inv is again.transform
        torch.testing.assert_close(again.log_prob(x), law.log_prob(x))


def test_a_first_batch_is_checked():
    flow = flow_named("glow")(3, 2)
    with pytest.raises(ShapeError, match="expects a context of 2 features"):
        flow.start_from(torch.zeros(5, 3))
    with pytest.raises(ShapeError, match="expects 3 features"):
        flow.start_from(torch.zeros(5, 2), torch.zeros(5, 2))


@pytest.mark.parametrize("setting", ["context_layers", "context_width"])
def test_settings_of_a_context_are_checked_without_one_too(setting):
    with pytest.raises(SettingsError, match=f"{setting} must be a whole number"):
        BNAF(2, **{setting: -1})


@pytest.mark.parametrize("name", FLOWS)
def test_a_law_is_a_snapshot_or_refuses_to_be_used(case):
    law, rows = case.flow(case.context), case.rows(4)
    before, noise = law.log_prob(rows), law.base_noise(rows).detach()
    with torch.no_grad():
        for parameter in case.flow.parameters():
            parameter.add_(0.1)
    if case.flow.snapshots:
        assert torch.equal(law.log_prob(rows), before)
        assert torch.equal(law.base_noise(rows), noise)
        return
    uses = (lambda: law.log_prob(rows), law.sample, law.expand((2,)).sample)
    for use in (*uses, lambda: law.transform(rows), lambda: law.at_normal_scores(noise)):
        with pytest.raises(StaleLawError, match="call the flow again"):
            use()


def test_a_flow_that_promises_no_snapshots_has_laws_that_notice_a_change():
    flow, rows = Shift(2), torch.randn(3, 2)
    law = flow()
    law.log_prob(rows)
    with torch.no_grad():
        flow.shift.add_(1)
    for use in (lambda: law.log_prob(rows), law.sample, law.expand((2,)).sample):
        with pytest.raises(StaleLawError, match="call the flow again"):
            use()
    flow().log_prob(rows)
