"""VAEs in model files."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from vaes import CONTEXT, PIXELS, POSTERIORS, LinearGaussian, rows_of, small_vae

import bnaf
from bnaf import BNAF, StorageError
from bnaf._random import private_draws
from bnaf.model.files import digest_contents
from bnaf.vae import load_vae, save_vae


def parts():
    return nn.Linear(PIXELS, CONTEXT), LinearGaussian()


def rewrite(path, change):
    """Alter the header of a file, and let its digest agree."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["bnaf"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(header, tensors)
    text = json.dumps(header)
    save_file(tensors, path, {"bnaf": text, "sha256": digest_contents(text, tensors)})


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_vae_comes_back_as_it_was(tmp_path, name):
    vae = small_vae(name)
    vae.record = {"epochs": 3}
    save_vae(vae, tmp_path / "vae")
    twin = load_vae(tmp_path / "vae", *parts())
    assert twin.record == {"epochs": 3}
    x = rows_of(vae, 4)
    bounds = []
    for one in (vae, twin):
        with private_draws(0):
            bounds.append(one.elbo(x))
    assert torch.equal(*bounds)


def test_a_prior_is_kept_and_types_can_be_changed(tmp_path):
    vae = small_vae()
    vae.prior = BNAF(2, transforms=1, width=4).double()
    save_vae(vae, tmp_path / "vae")
    twin = load_vae(
        tmp_path / "vae", *parts(), BNAF(2, transforms=1, width=4), dtype=torch.float32
    )
    assert twin.elbo(rows_of(vae, 3).float()).dtype == torch.float32
    with pytest.raises(StorageError, match=r"other modules .* Unexpected key.*prior"):
        load_vae(tmp_path / "vae", *parts())


def test_modules_of_other_shapes_are_refused(tmp_path):
    save_vae(small_vae(), tmp_path / "vae")
    with pytest.raises(StorageError, match=r"other modules .* mismatch for encoder.weight"):
        load_vae(tmp_path / "vae", nn.Linear(5, CONTEXT), LinearGaussian())


def test_each_door_names_the_other(tmp_path):
    vae = small_vae()
    with pytest.raises(StorageError, match=r"for a VAE use bnaf\.vae\.save_vae"):
        bnaf.save(vae, tmp_path / "vae")
    save_vae(vae, tmp_path / "vae")
    with pytest.raises(StorageError, match=r"holds a VAE.*bnaf\.vae\.load_vae"):
        bnaf.load(tmp_path / "vae")
    bnaf.save(BNAF(2), tmp_path / "flow")
    with pytest.raises(StorageError, match="expects 'posterior' of type dict"):
        load_vae(tmp_path / "flow", *parts())


def test_files_that_were_altered_are_refused(tmp_path):
    path = tmp_path / "vae"

    def refused(match, change):
        save_vae(small_vae(), path)
        rewrite(path, change)
        with pytest.raises(StorageError, match=match):
            load_vae(path, *parts())

    def set_width(header, tensors):
        header["settings"]["width"] = 10**6

    def set_features(header, tensors):
        header["posterior"]["features"] = 10**9

    def set_bounds(header, tensors):
        header["posterior"]["variance_bounds"] = [1, "x", 3]

    def set_weight(header, tensors):
        tensors["posterior.mean.bias"][0] = torch.nan

    def drop_weight(header, tensors):
        del tensors["posterior.variance.bias"]

    refused("has settings that make no BNAF", set_width)
    refused(r"expects a tensor of shape \(1000000000, 4\)", set_features)
    refused("has a posterior that cannot be made", set_bounds)
    refused("expects finite weights", set_weight)
    refused(r"other modules .* Missing key.*posterior.variance.bias", drop_weight)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StorageError, match="truncated"):
        load_vae(path, *parts())


def test_weights_of_whole_numbers_are_refused(tmp_path):
    save_vae(small_vae("gaussian"), tmp_path / "vae")

    def change(header, tensors):
        tensors["posterior.mean.weight"] = tensors["posterior.mean.weight"].long()

    rewrite(tmp_path / "vae", change)
    with pytest.raises(StorageError, match=r"of a floating-point type, got torch\.int64"):
        load_vae(tmp_path / "vae", *parts())
