"""Flows inside zuko's, and zuko's inside ours."""

import subprocess
import sys

import pytest
import torch
from cases import randomise

pytest.importorskip("zuko", reason="zuko is not installed: make test-integrations")

import zuko

from bnaf import BNAF, TrainingSettings, fit
from bnaf.integrations.zuko import LazyFlow, ZukoFlow

FEATURES, CONTEXT = 3, 2


def base():
    zeros = torch.zeros(FEATURES, dtype=torch.float64)
    return zuko.lazy.UnconditionalDistribution(
        zuko.distributions.DiagNormal, zeros, torch.ones_like(zeros), buffer=True
    )


@pytest.fixture(params=["density", "sampling"])
def flow(request):
    flow = BNAF(FEATURES, CONTEXT, width=4, transforms=2, direction=request.param).double()
    randomise(flow)
    return flow


@pytest.fixture
def context():
    return torch.randn(5, CONTEXT, dtype=torch.float64)


@pytest.fixture
def rows():
    return torch.randn(5, FEATURES, dtype=torch.float64)


def test_zukos_flow_of_our_transform_is_our_law(flow, context, rows):
    theirs = zuko.flows.Flow([LazyFlow(flow)], base())
    torch.testing.assert_close(theirs(context).log_prob(rows), flow(context).log_prob(rows))


def test_its_weights_are_those_of_the_flow(flow):
    theirs = zuko.flows.Flow([LazyFlow(flow)], base())
    assert set(theirs.parameters()) == set(flow.parameters())


def test_it_draws_rows_with_their_densities(flow, context):
    theirs = zuko.flows.Flow([LazyFlow(flow)], base())
    x, log_prob = theirs(context).rsample_and_log_prob((4,))
    torch.testing.assert_close(log_prob, flow(context).log_prob(x))


def test_ours_stands_among_zukos_transforms(flow, context, rows):
    affine = zuko.flows.MAF(FEATURES, CONTEXT, transforms=1).double().transform
    theirs = zuko.flows.Flow([affine, LazyFlow(flow), affine.inv], base())
    law = theirs(context)
    z = law.transform(rows)
    torch.testing.assert_close(law.transform.inv(z), rows)


def test_the_lazy_inverse_leads_back(flow, context, rows):
    lazy = LazyFlow(flow)
    torch.testing.assert_close(lazy.inv(context)(lazy(context)(rows)), rows)


def test_a_flow_without_context_stands_in_a_conditional_one(context, rows):
    flow = BNAF(FEATURES, width=4).double()
    theirs = zuko.flows.Flow([LazyFlow(flow)], base())
    torch.testing.assert_close(theirs(context).log_prob(rows), flow().log_prob(rows))


@pytest.mark.parametrize("kind", [zuko.flows.MAF, zuko.flows.NSF])
def test_a_flow_of_zukos_transform_is_zukos_law(kind, context, rows):
    theirs = kind(FEATURES, CONTEXT, transforms=2).double()
    ours = ZukoFlow(FEATURES, CONTEXT, transform=theirs.transform)
    torch.testing.assert_close(ours(context).log_prob(rows), theirs(context).log_prob(rows))


def test_the_sampling_direction_turns_zukos_transform_round(context):
    theirs = zuko.flows.MAF(FEATURES, CONTEXT, transforms=2).double().transform
    law = ZukoFlow(FEATURES, CONTEXT, transform=theirs, direction="sampling")(context)
    x, log_prob = law.rsample_and_log_prob((2,))
    torch.testing.assert_close(law.log_prob(x), log_prob)


def test_a_flow_of_zukos_is_fitted_by_ours():
    rows = 2 + 0.5 * torch.randn(400, FEATURES)
    flow = ZukoFlow(FEATURES, transform=zuko.flows.MAF(FEATURES, transforms=1).transform)
    before = flow().log_prob(rows).mean()
    fit(flow, rows, settings=TrainingSettings(steps=60, learning_rate=0.02), progress=False)
    assert flow().log_prob(rows).mean() > before + 2


@pytest.mark.parametrize("module", ["zuko", "sbi"])
def test_importing_leaves_torchs_checks_as_they_were(module):
    pytest.importorskip(module)
    code = (
        "from torch.distributions import Distribution as law; before = law._validate_args; "
        f"import bnaf.integrations.{module}; print(before, law._validate_args)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
