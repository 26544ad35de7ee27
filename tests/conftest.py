import pytest
import torch
from cases import build
from hypothesis import settings

from bnaf import native

settings.register_profile("bnaf", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("bnaf")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=["kernels", "plain", "context"])
def conditional(request):
    """Whether the case has a context; those without run with and without the kernels."""
    if request.param == "kernels" and not native.available():
        pytest.skip("the kernels are not compiled: python -m bnaf.native says why")
    if request.param == "plain":
        with native.disabled():
            yield False
    else:
        yield request.param == "context"


@pytest.fixture
def case(name, conditional):
    return build(name, conditional)
