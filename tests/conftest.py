import pytest
import torch
from cases import build
from hypothesis import settings

settings.register_profile("bnaf", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("bnaf")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=[False, True], ids=["", "context"])
def conditional(request):
    return request.param


@pytest.fixture
def case(name, conditional):
    return build(name, conditional)
