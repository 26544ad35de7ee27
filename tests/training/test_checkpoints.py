"""Checkpoints: what is damaged is refused, and one run at a time writes them."""

import json

import pytest
import torch
from fits import banana, quietly, small_flow
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from bnaf import StorageError, TrainingSettings
from bnaf._digest import digest_contents
from bnaf.training import MaximumLikelihood

ROWS = banana(100)
LOGS = TrainingSettings(steps=12, evaluate_every=6)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.ckpt"
    quietly(small_flow(), ROWS, checkpoint=path, settings=LOGS)
    return path


def resume(path):
    return quietly(small_flow(), ROWS, checkpoint=path, settings=LOGS)


def test_a_flipped_bit_is_never_resumed_from(checkpoint, tmp_path):
    content = checkpoint.read_bytes()
    path = tmp_path / "run.ckpt"
    for place in range(0, len(content), max(1, len(content) // 150)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match=r"Remove it to start anew"):
            resume(path)


def test_a_truncated_checkpoint_is_refused(checkpoint, tmp_path):
    content = checkpoint.read_bytes()
    path = tmp_path / "run.ckpt"
    for length in (0, 5, 8, 200, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(StorageError, match=r"Remove it to start anew"):
            resume(path)


def put(*names, value):
    def change(facts, tensors):
        for name in names[:-1]:
            facts = facts[name]
        facts[names[-1]] = value

    return change


def drop(name):
    def change(facts, tensors):
        del facts[name]

    return change


def swap(ending, function):
    def change(facts, tensors):
        for name in [name for name in tensors if name.endswith(ending)]:
            tensors[name] = function(tensors[name])

    return change


FORGED = {
    "no state": drop("state"),
    "no identity": drop("identity"),
    "no plateau": drop("plateau"),
    "steps in words": put("state", "step", value="many"),
    "history of words": put("state", "history", value=["a", "b"]),
    "an unknown counter": put("state", "extra", value=1),
    "logs elsewhere": put("state", "log_version", value="../../elsewhere"),
    "another version": put("version", value="4.0"),
    "weights of another shape": swap("networks.weight", lambda tensor: tensor[:, 1:]),
    "moments of another shape": swap("exp_avg", lambda tensor: tensor.flatten()[1:]),
    "moments of whole numbers": swap("exp_avg_sq", torch.Tensor.long),
    "steps of whole numbers": swap("optimiser.0.step", torch.Tensor.long),
    "weights that are undefined": swap("networks.weight", lambda tensor: tensor * torch.nan),
    "an average that is infinite": swap("average.values.0", lambda tensor: tensor / 0),
    "skipped steps that are no number": swap("sums", lambda tensor: tensor * torch.nan),
    "no sums": lambda facts, tensors: tensors.pop("sums"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_refused(checkpoint, tmp_path, name):
    with safe_open(checkpoint, framework="pt") as file:
        facts = json.loads(file.metadata()["bnaf.checkpoint"])
    tensors = load_file(checkpoint)
    FORGED[name](facts, tensors)
    tensors = {key: tensor.contiguous() for key, tensor in tensors.items()}
    text, path = json.dumps(facts), tmp_path / "run.ckpt"
    save_file(tensors, path, {"bnaf.checkpoint": text, "sha256": digest_contents(text, tensors)})
    with pytest.raises(StorageError, match=r"Remove it to start anew"):
        resume(path)


class Twice(MaximumLikelihood):
    """Likelihood in whose first step another fit begins with the same checkpoint."""

    def __init__(self, flow, path):
        super().__init__(flow)
        self.path, self.refusal = path, None

    def losses(self, batch):
        if self.refusal is None:
            with pytest.raises(StorageError) as caught:
                quietly(small_flow(), ROWS, checkpoint=self.path)
            self.refusal = str(caught.value)
        return super().losses(batch)


def test_a_second_fit_with_the_same_checkpoint_is_refused(tmp_path):
    flow, path = small_flow(), tmp_path / "run.ckpt"
    objective = Twice(flow, path)
    quietly(flow, ROWS, objective=objective, checkpoint=path)
    assert "run.ckpt is being written by another run; wait for its end" in objective.refusal
    assert [file.name for file in tmp_path.iterdir()] == ["run.ckpt"]
