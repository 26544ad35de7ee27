"""Checkpoints as the authors' scripts save them."""

import re
from collections import OrderedDict

import pytest
import torch
from commands import run, succeed

import bnaf
from bnaf import BNAF, StorageError
from bnaf.block.published import read_checkpoint


def state_dict(draw=torch.randn):
    """Return a network of two flows and two features, in the order of its modules."""
    tensors = OrderedDict()
    for flow in (0, 2):
        if flow == 0:
            tensors["0.gate"] = draw(1)
        for layer, (rows, columns) in enumerate([(6, 2), (2, 6)]):
            prefix = f"{flow}.{2 * layer}."
            tensors[prefix + "_weight"] = draw(rows, columns)
            tensors[prefix + "_diag_weight"] = draw(rows, 1)
            tensors[prefix + "bias"] = draw(rows)
            tensors[prefix + "mask_d"] = tensors[prefix + "mask_o"] = torch.ones(rows, columns)
    return tensors


def checkpoint(averages=True):
    """Return what is saved; the optimiser knows weights by number, as old torch had them."""
    raw, mean = state_dict(), state_dict()
    names = [name for name in raw if "mask" not in name]
    numbers = [140_000 - 7 * index for index in range(len(names))]
    state = {
        number: {"step": 9} | ({"exp_avg_param": mean[name]} if averages else {})
        for number, name in zip(numbers, names, strict=True)
    }
    optimizer = {"state": state, "param_groups": [{"lr": 0.01, "params": numbers}]}
    return {"model": raw, "optimizer": optimizer, "epoch": 3}, raw, mean


def save(held, path, old=False):
    torch.save(held, path, _use_new_zipfile_serialization=not old)
    return path


def same(ours, theirs):
    return all(
        torch.equal(ours[name], part) for name, part in theirs.items() if "mask" not in name
    )


@pytest.mark.parametrize("old", [False, True], ids=["zip", "before torch 1.6"])
def test_the_averages_are_what_is_read(tmp_path, old):
    held, _, mean = checkpoint()
    assert same(read_checkpoint(save(held, tmp_path / "c.pt", old)), mean)


def test_the_weights_of_the_last_step_are_there_too(tmp_path):
    held, raw, _ = checkpoint()
    assert same(read_checkpoint(save(held, tmp_path / "c.pt"), averaged=False), raw)


def test_a_state_dict_alone_is_read(tmp_path):
    raw = state_dict()
    assert same(read_checkpoint(save(raw, tmp_path / "c.pt")), raw)


class Touch:
    """Object whose pickle writes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("old", [False, True])
def test_what_a_pickle_would_run_is_not_run(tmp_path, old):
    held, trace = checkpoint()[0], tmp_path / "run"
    path = save(held | {"more": Touch(trace)}, tmp_path / "c.pt", old)
    with pytest.raises(StorageError, match="no checkpoint of tensors alone"):
        read_checkpoint(path)
    assert not trace.exists()


def test_few_bytes_that_claim_to_be_many_are_refused(tmp_path):
    held = {"0.0._weight": torch.zeros(1, 1).expand(10**6, 10**6)}
    with pytest.raises(StorageError, match=r"claim 4,000,000,000,000 bytes"):
        read_checkpoint(save(held, tmp_path / "c.pt"))


@pytest.mark.parametrize("held", [[1.0], {"model": [1.0]}, {"model": {"a": 1}}])
def test_what_holds_no_tensors_by_name_is_refused(tmp_path, held):
    with pytest.raises(StorageError, match="holds no tensors by name"):
        read_checkpoint(save(held, tmp_path / "c.pt"))


def test_text_is_refused(tmp_path):
    (tmp_path / "c.pt").write_text("a,b\n1,2\n")
    with pytest.raises(StorageError, match=r"c.pt is no checkpoint"):
        read_checkpoint(tmp_path / "c.pt")


def test_the_command_writes_the_flow_of_the_averages(tmp_path):
    held, _, mean = checkpoint()
    path = save(held, tmp_path / "c.pt")
    said = succeed("import", path, tmp_path / "m.safetensors").stdout
    x = torch.randn(5, 2)
    expected = BNAF.from_published(mean)().log_prob(x)
    torch.testing.assert_close(bnaf.load(tmp_path / "m.safetensors")().log_prob(x), expected)
    assert re.search(r"2 features, 69 weights", said)


def test_the_command_names_the_option_where_there_are_no_averages(tmp_path):
    path = save(checkpoint(averages=False)[0], tmp_path / "c.pt")
    result = run("import", path, tmp_path / "m.safetensors")
    assert result.exit_code == 1
    assert result.stderr.endswith("take those of the last step with --raw.\n")
    succeed("import", path, tmp_path / "m.safetensors", "--raw")
