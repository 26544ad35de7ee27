import os

import pytest
import torch
from cases import BASELINES, FLOWS, build
from hypothesis import settings

from bnaf.block import kernels

settings.register_profile("bnaf", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("bnaf")
for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):  # under which Typer colours help
    os.environ.pop(name, None)


def pytest_report_header():
    """Name the flows that every property is tested of."""
    return f"flows under the property tests: {', '.join(FLOWS)}"


def pytest_collection_modifyitems(items):
    """Run the flows that have no kernels once, not with and without."""
    items[:] = [
        item
        for item in items
        if not (
            (spec := getattr(item, "callspec", None))
            and spec.params.get("name") in BASELINES
            and spec.params.get("conditional") == "plain"
        )
    ]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


class Clock:
    """Clock that stands still but when told to go on, so that no test depends on a machine."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds

    def go_on(self, seconds):
        self.seconds += seconds


@pytest.fixture
def clock(monkeypatch):
    """The clock by which runs spend their time."""
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    return clock


@pytest.fixture(params=["kernels", "plain", "context"])
def conditional(request, name):
    """Whether the case has a context; those without run with and without the kernels."""
    if request.param == "kernels" and not kernels.available() and name not in BASELINES:
        pytest.skip("the kernels are not compiled: python -m bnaf.block.kernels says why")
    if request.param == "plain":
        with kernels.disabled():
            yield False
    else:
        yield request.param == "context"


@pytest.fixture
def case(name, conditional):
    return build(name, conditional)
