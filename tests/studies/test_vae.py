"""The study of variational auto-encoders: networks, images, runs, results and figures."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from commands import run as run_command
from commands import succeed
from scipy.io import savemat

from bnaf import BNAF, SettingsError, TableError
from bnaf._random import private_draws
from bnaf.datasets.images import IMAGE_FILES, prepare_images
from bnaf.evaluation.scores import standard_error
from bnaf.studies.ledger import Ledger
from bnaf.studies.vae import reproduction
from bnaf.studies.vae.data import evaluation_source, read_images, training_source
from bnaf.studies.vae.drawings import draw_curves, draw_images
from bnaf.studies.vae.networks import (
    Decoder,
    Encoder,
    GatedConv,
    GatedLinear,
    GatedTransposedConv,
    ImageKind,
    LevelConv,
    gate,
)
from bnaf.studies.vae.plans import (
    VaeTrial,
    plan_queue,
    plan_trials,
    read_image_sets,
    read_variants,
)
from bnaf.studies.vae.reproduction import (
    is_finished,
    open_ledger,
    read_results,
    reproduce_vae,
    write_all,
)
from bnaf.studies.vae.running import (
    carry_out,
    combined_error,
    count_amortised,
    count_weights,
    load_trained,
    make_optimiser,
    train,
    vae_file,
)
from bnaf.studies.vae.tables import collect_standings, make_sheets
from bnaf.training import ArrayRows
from bnaf.training.progress import Silence

SETS, VARIANTS = read_image_sets(), read_variants()
KINDS = {"bits": ImageKind(28, 28), "levels": ImageKind(28, 20, 256)}
QUICK = {"test_images": 2, "samples": 3}


@cache
def flows():
    return {name: one.build_flow() for name, one in VARIANTS.items() if one.flow}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Hold the files of two small image sets."""
    folder = tmp_path_factory.mktemp("images")
    draws = np.random.default_rng(0)
    for name in ("caltech", "omniglot"):
        (folder / IMAGE_FILES[name][0]).parent.mkdir()
    bits = {f"{part}_data": draws.integers(0, 2, (5, 784)) for part in ("train", "val", "test")}
    savemat(folder / IMAGE_FILES["caltech"][0], bits)
    grey = {"data": draws.random((784, 1350)), "testdata": draws.random((784, 4))}
    savemat(folder / IMAGE_FILES["omniglot"][0], grey)
    return folder


@pytest.fixture(scope="module")
def images(folder):
    return read_images(SETS["caltech"], folder)


@pytest.fixture(scope="module")
def quick(folder, tmp_path_factory):
    """Hold the results of a quick part of the study, and what the command printed."""
    out = tmp_path_factory.mktemp("study")
    words = ["--data", folder, "--out", out, "--samples", 3, "--test-rows", 2, "--epochs", 2]
    done = succeed("reproduce", "vae", "--dataset", "caltech", "--flow", "gaussian,bnaf", *words)
    (out / "printed.txt").write_text(done.stdout)
    return out


def trial(flow="gaussian", name="caltech", **options):
    return VaeTrial(SETS[name], VARIANTS[flow], **{**QUICK, **options})


def test_numbers_per_image_and_quotients_of_weights_are_the_papers():
    counts = {name: count_amortised(flow) for name, flow in flows().items()}
    expected = {"bnaf": 7_680, "sylvester": 50_688, "householder": 76_800}
    assert {name: counts[name] for name in expected} == expected
    weights = {name: count_weights(flow) for name, flow in flows().items()}
    for name, variant in VARIANTS.items():
        if variant.weights_ratio is not None:
            ratio = weights[name] / weights["bnaf"]
            assert ratio == pytest.approx(variant.weights_ratio, rel=0.01)


def test_the_papers_posterior_is_the_published_network():
    published = BNAF.paper(64, 256, transforms=8, hidden_layers=1, width=4, direction="sampling")
    assert flows()["bnaf"].settings == published.settings | {"init": "identity"}


def test_every_departure_of_a_second_row_has_a_reason():
    ours, paper = (flows()[name].settings for name in ("bnaf-onto", "bnaf"))
    departures = {name for name in ours if ours[name] != paper[name]}
    reasons = VARIANTS["bnaf-onto"].reasons
    assert departures <= {name.strip() for names in reasons for name in names.split(",")}


def test_the_training_is_that_of_the_protocol():
    for variant in VARIANTS.values():
        settings = trial(variant.name).training(41)
        assert (settings.rate, settings.clip, settings.average) == (5e-4, None, None)
        assert (settings.schedule, settings.early_stopping) == ("constant", 100)
        assert not settings.follows_budget
        assert variant.training["batch"] == 100


def test_the_queue_compares_at_equal_epochs_and_then_carries_on():
    queue = plan_queue()
    equal = {(one.images.name, one.variant.name): one.epochs for one in queue[:15]}
    for name in ("caltech", "frey"):
        for flow in ("gaussian", "planar", "iaf", "sylvester", "bnaf"):
            assert equal[name, flow] == SETS[name].epochs
    assert {flow for name, flow in equal if name == "mnist"} == {"gaussian", "bnaf", "sylvester"}
    assert (SETS["caltech"].epochs, SETS["frey"].epochs) == (60, 150)
    carried = [one for one in queue if one.epochs > one.images.epochs]
    assert {one.stem for one in carried} <= {one.stem for one in queue[:15]}
    assert max(one.epochs for one in carried) == 2000


def test_the_queue_is_measured_as_it_is_told(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(reproduction, "is_finished", lambda one, ledger: not asked.append(one))
    reproduce_vae(out=tmp_path, data=tmp_path, **QUICK)
    assert {(one.test_images, one.samples) for one in asked} == {(2, 3)}


def test_one_seed_gives_all_posteriors_the_same_networks():
    gaussian, paper, other = (
        trial(flow, seed=seed).build().state_dict()
        for flow, seed in (("gaussian", 1), ("bnaf", 1), ("gaussian", 2))
    )
    assert all(torch.equal(paper[name], weight) for name, weight in gaussian.items())
    assert not torch.equal(other["posterior.mean.weight"], gaussian["posterior.mean.weight"])


def test_more_epochs_are_the_same_run_and_other_settings_another():
    first = trial("bnaf", epochs=60)
    assert trial("bnaf", epochs=500).stem == first.stem
    assert trial("bnaf", epochs=500).key != first.key
    others = [trial("bnaf", seed=1), trial("gaussian"), trial("bnaf", "frey")]
    assert first.stem not in {other.stem for other in others}
    assert trial(epochs=2).warm_up == 1


def test_names_that_do_not_exist_are_refused():
    with pytest.raises(SettingsError, match=r"dataset must be one of caltech, .* got 'iris'"):
        plan_trials(datasets=["iris"])
    with pytest.raises(SettingsError, match=r"flow must be one of gaussian, .* got 'glow'"):
        plan_trials(flows=["glow"])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_networks_go_from_pixels_to_features_and_from_latents_to_a_law(kind):
    rows = torch.randint(0, kind.levels, (3, kind.pixels)).float()
    assert Encoder(kind)(rows).shape == (3, 256)
    law = Decoder(kind)(torch.randn(3, 64))
    assert law.log_prob(rows).shape == (3,)
    assert law.mean.shape == law.sample().shape == rows.shape
    assert 0 <= law.sample().min() <= law.sample().max() <= kind.levels - 1


def test_a_gated_convolution_is_the_product_of_two():
    layer, x = GatedConv(3, 4, stride=2).double(), torch.randn(2, 3, 9, 7).double()
    values, gates = (
        F.conv2d(x, weight, bias, 2, 2)
        for weight, bias in zip(layer.conv.weight.chunk(2), layer.conv.bias.chunk(2), strict=True)
    )
    torch.testing.assert_close(layer(x), values * gates.sigmoid())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_gradient_of_gates_is_that_of_torch(layout):
    both = torch.randn(2, 6, 3, 4).double().contiguous(memory_format=layout).requires_grad_()
    weight = torch.randn(2, 3, 3, 4).double()
    ours, torchs = (
        torch.autograd.grad((function(both) * weight).sum(), both)[0]
        for function in (gate, lambda both: F.glu(both, 1))
    )
    torch.testing.assert_close(ours, torchs)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_transposed_convolution_grows_images_as_the_published_one(stride):
    layer = GatedTransposedConv(3, 4, stride=stride).double()
    x = torch.randn(2, 3, 7, 5).double()
    weight = layer.conv.weight
    if stride == 1:  # kept as the convolution that it is
        weight = weight.transpose(0, 1).flip(2, 3)
    both = F.conv_transpose2d(x, weight, layer.conv.bias, stride, 2, stride - 1)
    torch.testing.assert_close(layer(x), F.glu(both, 1))
    assert layer(x).shape == (2, 4, 7 * stride, 5 * stride)
    assert layer.conv.weight.abs().max() <= 1 / (4 * 25) ** 0.5


def test_a_linear_map_stands_for_a_convolution_over_all_of_an_image():
    layer, x = GatedLinear(7 * 5 * 3, 4).double(), torch.randn(2, 3, 7, 5).double()
    weight = layer.linear.weight.view(8, 7, 5, 3).permute(0, 3, 1, 2)
    expected = F.glu(F.conv2d(x, weight, layer.linear.bias), 1).flatten(1)
    torch.testing.assert_close(layer(x.permute(0, 2, 3, 1).flatten(1)), expected)


def test_two_convolutions_in_a_row_are_computed_as_one():
    layer, x = LevelConv(3, 6).double(), torch.randn(2, 3, 7, 5).double()
    torch.testing.assert_close(layer(x), layer.mix(layer.spread(x)), rtol=1e-6, atol=1e-8)


def test_grey_images_become_bits_anew_in_every_epoch(folder):
    omniglot = SETS["omniglot"]
    parts = read_images(omniglot, folder)
    assert len(parts.train) == 5
    assert 0 < parts.train[0].mean() < 1
    assert set(parts.test.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(parts.test, read_images(omniglot, folder).test)
    source = training_source(omniglot, parts.train, batch=3, seed=0)
    epochs = [[batch.rows for batch in source.batches(epoch)] for epoch in (0, 1, 0)]
    assert all(torch.equal(a, b) for a, b in zip(epochs[0], epochs[2], strict=True))
    assert not torch.equal(epochs[0][0], epochs[1][0])
    assert set(epochs[0][0].unique().tolist()) == {0.0, 1.0}
    resumed = next(source.batches(0, start=1))
    assert torch.equal(resumed.rows, epochs[0][1])


def test_grey_images_to_test_with_become_the_published_bits(folder):
    grey = prepare_images("omniglot", folder)
    np.random.seed(777)
    published = [np.random.binomial(1, part.rows.float().numpy()) for part in grey[1:]]
    parts = read_images(SETS["omniglot"], folder)
    for ours, bits in zip(parts[1:], published, strict=True):
        np.testing.assert_array_equal(ours, bits)


def test_seeds_take_the_published_splits_in_turn():
    assert [trial(name="frey", seed=seed).split for seed in range(4)] == [0, 1, 2, 0]
    assert {trial(name="caltech", seed=seed).split for seed in range(4)} == {0}


def test_images_that_are_evaluated_come_once_each_some_at_a_time():
    rows = torch.randn(450, 3)
    batches = [batch.rows for batch in evaluation_source(rows).all_batches()]
    assert max(map(len, batches)) <= 200
    assert torch.equal(torch.cat(batches), rows)
    assert len(list(ArrayRows(rows, evaluated=100).all_batches())) == 5


def test_images_of_another_size_are_refused(folder, tmp_path):
    wrong = VaeTrial(SETS["frey"], VARIANTS["gaussian"]).images
    with pytest.raises(TableError, match="freyfaces expects a file"):
        read_images(wrong, tmp_path)


def test_the_command_prints_the_table_and_writes_all_files(quick):
    printed = (quick / "printed.txt").read_text()
    assert "Caltech 101 Silhouettes" in printed
    assert "105.42 ± 0.49" in printed
    assert "94.91 ± 0.51" in printed
    names = {path.name for path in quick.iterdir() if path.is_file()} - {"printed.txt"}
    images = {f"vae-caltech-{flow}-seed0-2epochs.png" for flow in ("gaussian", "bnaf")}
    assert names == {"vae.json", "vae.md", "vae.png", *images}
    stored = succeed("reproduce", "vae", "--table", "--out", quick).stdout
    assert stored.splitlines() == printed.splitlines()
    facts = json.loads(succeed("reproduce", "vae", "--table", "--json", "--out", quick).stdout)
    assert [one["flow"] for one in facts["standings"]] == ["gaussian", "bnaf"]
    assert facts["standings"][1]["paper"] == [105.42, 0.49, 94.91, 0.51]


def test_the_table_draws_what_is_missing(quick, folder, tmp_path):
    shutil.copytree(quick, tmp_path, dirs_exist_ok=True)
    there, missing = (f"vae-caltech-{flow}-seed0-2epochs.png" for flow in ("gaussian", "bnaf"))
    before = (tmp_path / there).stat()
    for name in (missing, "vae.png", "vae.md"):
        (tmp_path / name).unlink()
    words = "reproduce", "vae", "--table", "--out", tmp_path, "--data"
    told = succeed(*words, tmp_path / "nowhere").stderr
    assert f"{missing} is not drawn: caltech expects a file" in told
    assert (tmp_path / "vae.png").exists()
    assert (tmp_path / "vae.md").exists()
    assert missing in succeed(*words, folder).stderr
    assert (tmp_path / missing).exists()
    assert (tmp_path / there).stat() == before


def test_images_are_drawn_anew_where_the_vae_is_newer(quick, folder, tmp_path):
    shutil.copytree(quick, tmp_path, dirs_exist_ok=True)
    (trained,) = (tmp_path / "runs").glob("vae-caltech-bnaf-*-2.safetensors")
    os.utime(trained, (time.time() + 60,) * 2)
    told = []
    write_all(tmp_path, folder, told.append)
    assert told == [f"images: {tmp_path / 'vae-caltech-bnaf-seed0-2epochs.png'}"]


def test_figures_need_no_trained_vae(quick, tmp_path):
    shutil.copy(quick / "vae.json", tmp_path)
    write_all(tmp_path, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"vae.json", "vae.md", "vae.png"}


def test_a_record_tells_all_of_a_run(quick):
    records = {one["flow"]: one for one in Ledger(quick / "vae.json").records.values()}
    for flow, record in records.items():
        measures = record["measures"]
        assert (record["trained_epochs"], record["reason"]) == (2, "budget")
        assert (measures["rows"], measures["test_images"], measures["samples"]) == (2, 5, 3)
        gap = np.mean(measures["log_likelihoods"]) - np.mean(measures["elbos"])
        assert measures["nll"] == pytest.approx(-measures["elbo"] - gap, abs=2e-3)
        assert [epoch for epoch, _ in record["curve"]] == [1, 2]
        assert record["command"] == (
            f"bnaf reproduce vae --dataset caltech --flow {flow} --seeds 0, --epochs 2 "
            "--test-rows 2 --samples 3"
        )
    assert records["bnaf"]["amortised"] == 7_680


def test_what_is_finished_is_not_run_again(quick, folder):
    before = (quick / "vae.json").read_bytes()
    told = []
    reproduce_vae(
        out=quick,
        data=folder / "nowhere",
        datasets=["caltech"],
        flows=["bnaf"],
        epochs=2,
        announce=told.append,
        **QUICK,
    )
    assert told == ["0 of 1 runs to do"]
    assert (quick / "vae.json").read_bytes() == before


def test_a_run_carried_on_is_one_with_more_epochs(tmp_path, images):
    short, long = (trial(epochs=epochs) for epochs in (3, 4))
    train(short, short.build(), images, tmp_path / "parts", Silence())
    parts, whole = long.build(), long.build()
    train(long, parts, images, tmp_path / "parts", Silence())
    assert train(long, whole, images, tmp_path / "whole", Silence()).epochs == 4
    for here, there in zip(parts.parameters(), whole.parameters(), strict=True):
        assert torch.equal(here, there)
    with pytest.raises(SettingsError, match="was carried on to 4 epochs before"):
        train(short, short.build(), images, tmp_path / "parts", Silence())


def test_a_run_that_was_interrupted_goes_on_where_it_stood(tmp_path, images):
    class Interrupting(Silence):
        interval = 0.0

        def show(self, view):
            if view.step == 2:
                os.kill(os.getpid(), signal.SIGTERM)

    run = trial(epochs=4)
    whole, parts = run.build(), run.build()
    expected = train(run, whole, images, tmp_path / "whole", Silence())
    with pytest.raises(KeyboardInterrupt):
        train(run, run.build(), images, tmp_path / "parts", Interrupting())
    record = train(run, parts, images, tmp_path / "parts", Silence())
    assert [one.valid for one in record.history] == [one.valid for one in expected.history]
    for here, there in zip(parts.parameters(), whole.parameters(), strict=True):
        assert torch.equal(here, there)


def test_the_likelihood_goes_on_from_the_images_that_are_done(quick, images, tmp_path):
    run = trial(epochs=2, test_images=5)
    kept = quick / "runs" / f"{run.key}.evidence"
    kept.write_text(json.dumps([[-1.0, 0.1], [-2.0, 0.1], [-3.0, 0.1], [-4.0, 0.1]]))
    told = []
    record = carry_out(run, images, quick / "runs", Silence(), told.append)
    assert record["measures"]["log_likelihoods"][:4] == [-1.0, -2.0, -3.0, -4.0]
    likelihoods = torch.tensor(record["measures"]["log_likelihoods"], dtype=torch.float64)
    assert record["measures"]["nll_error"] == pytest.approx(standard_error(likelihoods), abs=1e-3)
    assert told == [f"{run.label}: likelihood of 5 of 5 images"]
    assert not kept.exists()


def test_the_error_of_a_likelihood_is_the_spread_of_such_estimates():
    draws = torch.Generator().manual_seed(0)
    chosen, estimates, errors = torch.arange(30), [], []
    for _ in range(400):
        elbos = 5 * torch.randn(100, generator=draws, dtype=torch.float64)
        noise = torch.randn(30, generator=draws, dtype=torch.float64)
        gaps = 3 - 0.5 * elbos[:30] + noise  # poor bounds have more above them
        estimates.append((elbos.mean() + gaps.mean()).item())
        errors.append(combined_error(elbos, gaps, chosen))
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.1)


def test_a_run_that_stopped_improving_is_finished_for_good(tmp_path):
    run = trial(epochs=100)
    ledger = Ledger(tmp_path / "vae.json")
    measures = {"samples": run.samples, "rows": run.test_images}
    record = {"stem": run.stem, "trained_epochs": 90, "measures": measures}
    ledger.records["a"] = record | {"reason": "budget"}
    assert not is_finished(run, ledger)
    ledger.records["a"] = record | {"reason": "early stopping"}
    assert is_finished(run, ledger)
    assert is_finished(trial(epochs=200), ledger)
    assert not is_finished(trial(epochs=80), ledger)
    assert not is_finished(trial(epochs=200, samples=10**6), ledger)


def test_a_coarse_measurement_leaves_a_fine_one_alone(quick, tmp_path):
    record = next(iter(Ledger(quick / "vae.json").records.values()))
    ledger = open_ledger(tmp_path)
    for samples in (5000, 10):
        measures = record["measures"] | {"samples": samples}
        ledger.add(record | {"run": f"run-{samples}", "measures": measures})
    assert {one["measures"]["samples"] for one in ledger.records.values()} == {5000, 10}
    (best,) = read_results(tmp_path).standings
    assert best.records[0]["measures"]["samples"] == 5000


def test_seeds_are_summed_up_and_bits_per_dimension_are_those_of_frey(quick):
    record = next(iter(Ledger(quick / "vae.json").records.values()))
    measures = record["measures"]
    runs = [
        record | {"seed": seed, "measures": measures | {"elbo": elbo}}
        for seed, elbo in enumerate((-100.0, -104.0))
    ]
    (both,) = collect_standings(runs)
    assert both.value("elbo") == pytest.approx((102.0, 8**0.5))
    (faces,) = collect_standings([runs[0] | {"name": "frey"}])
    assert faces.value("elbo")[0] == pytest.approx(100 / (560 * np.log(2)))
    assert collect_standings([record | {"name": "unknown"}]) == []


@pytest.mark.parametrize("measure", ["-ELBO", "NLL"])
def test_measures_of_other_test_images_are_not_compared(quick, measure):
    records = [one | {"name": "frey"} for one in Ledger(quick / "vae.json").records.values()]
    place = make_sheets(records)[0].headers.index(f"{measure} less B-NAF's")
    shown = {}
    for seed in (0, 1, 3):
        runs = [one | {"seed": seed if one["flow"] == "gaussian" else 0} for one in records]
        shown[seed] = {row[place] for row in make_sheets(runs)[0].rows} != {""}
    assert shown == {0: True, 1: False, 3: True}  # seed 3 has the split of seed 0


def test_bounds_are_compared_image_by_image(quick):
    records = {one["flow"]: one for one in Ledger(quick / "vae.json").records.values()}
    measures = {"bnaf": [-90.0, -110.0], "gaussian": [-93.0, -112.0]}
    runs = [
        records[flow] | {"measures": records[flow]["measures"] | {"blocks": blocks}}
        for flow, blocks in measures.items()
    ]
    sheet = make_sheets(runs)[0]
    place = sheet.headers.index("-ELBO less B-NAF's")
    assert [row[place] for row in sheet.rows] == ["2.50 ± 0.50", ""]


def test_runs_that_were_carried_on_are_compared_each_as_far_as_it_came(quick):
    records = {one["flow"]: one for one in Ledger(quick / "vae.json").records.values()}
    bounds = {
        ("bnaf", 2): [-200.0, -200.0],
        ("bnaf", 60): [-90.0, -110.0],
        ("gaussian", 60): [-93.0, -112.0],
        ("bnaf", 200): [-85.0, -100.0],
        ("bnaf", 400): [-80.0, -100.0],
        ("gaussian", 200): [-84.0, -101.0],
    }
    runs = [
        records[flow]
        | {"epochs": epochs, "measures": records[flow]["measures"] | {"blocks": blocks}}
        for (flow, epochs), blocks in bounds.items()
    ]
    sheet = make_sheets(runs)[0]
    place = sheet.headers.index("-ELBO less B-NAF's")
    assert [(row[2].split()[0], row[place]) for row in sheet.rows] == [
        ("60", "2.50 ± 0.50"),
        ("60", ""),
        ("200", "2.50 ± 1.50"),
        ("400", ""),
    ]


def test_a_record_of_todays_settings_counts_before_a_finer_one_of_others(quick):
    record = next(iter(Ledger(quick / "vae.json").records.values()))
    finer = record | {"stem": "of before", "measures": record["measures"] | {"samples": 5000}}
    for runs in ([record, finer], [finer, record]):
        (one,) = collect_standings(runs)
        assert one.records[0]["stem"] == record["stem"]


def test_posteriors_start_near_a_gaussian_but_iaf():
    images = torch.rand(32, 784, generator=torch.Generator().manual_seed(0)).round()
    with torch.no_grad(), private_draws(0):
        for name in ("gaussian", "planar", "sylvester", "householder", "bnaf", "bnaf-onto"):
            vae = trial(name).build().eval()
            law = vae.encode(images)
            z = law.sample()
            divergence = law.log_prob(z) - vae.prior_law().log_prob(z)
            assert divergence.mean() < 10


def test_parts_of_a_flow_have_rates_of_their_own_where_a_posterior_says_so():
    found = trial("bnaf-onto")
    vae, variant = found.build(), replace(found.variant, flow_rate=3.0, context_rate=0.1)
    groups = make_optimiser(vae, 0.5, variant, [*vae.parameters()]).param_groups
    assert {group["of"]: group["lr"] for group in groups} == pytest.approx(
        {"networks": 0.5, "flow": 1.5, "context": 0.05}
    )
    _, flow, context = ({*group["params"]} for group in groups)
    assert context == {*vae.posterior.flow.conditioner.parameters()}
    assert flow == {*vae.posterior.flow.parameters()} - context
    assert {weight for group in groups for weight in group["params"]} == {*vae.parameters()}
    even = replace(variant, flow_rate=1.0, context_rate=1.0)
    (only,) = make_optimiser(vae, 0.5, even, [*vae.parameters()]).param_groups
    assert {*only["params"]} == {*vae.parameters()}


def test_a_run_that_fails_is_told_and_the_others_go_on(quick, folder, tmp_path):
    shutil.copytree(quick, tmp_path, dirs_exist_ok=True)
    settings = {"datasets": ["caltech"], "flows": ["gaussian", "planar"], "samples": 3}
    settings |= {"test_images": 2, "quiet": True, "out": tmp_path, "data": folder}
    told = []
    with pytest.raises(SettingsError, match="was carried on to 2 epochs before"):
        reproduce_vae(**settings, epochs=1, announce=told.append)
    assert any("gaussian, seed 0, 1 epochs has failed" in line for line in told)
    assert any("planar, seed 0, 1 epochs: -ELBO" in line for line in told)


def test_the_table_of_weights_needs_no_results(tmp_path):
    assert read_results(tmp_path).standings == []
    rows = {row[0]: row for row in make_sheets([])[1].rows}
    assert rows["B-NAF, the paper's settings"][1:3] == ("7,680", "7.7k")


def test_options_of_other_studies_are_refused():
    result = run_command("reproduce", "vae", "--steps", "3")
    assert result.exit_code == 2
    assert "No such option: --steps" in result.output
    assert run_command("reproduce", "toy", "--epochs", "3").exit_code == 2
    assert run_command("reproduce", "vae", "--epochs", "0", "--dataset", "frey").exit_code == 1


def test_curves_have_a_line_for_each_posterior(quick):
    figure = draw_curves(read_results(quick).standings)
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["gaussian", "bnaf"]
    assert axes.get_title() == "Caltech 101 Silhouettes, 2 epochs"


def test_curves_of_runs_that_were_carried_on_have_a_panel_of_their_own(quick):
    records = list(Ledger(quick / "vae.json").records.values())
    short = [one | {"epochs": 60} for one in records]
    long = [
        one | {"epochs": epochs, "curve": [[epochs, 90.0]]}
        for one in records
        if one["flow"] == "bnaf"
        for epochs in (200, 400)
    ]
    faces = [short[0] | {"name": "frey", "epochs": 150}]
    figure = draw_curves(collect_standings([*records, *short, *long, *faces]))
    panels = {
        axes.get_title(): [line.get_label() for line in axes.lines]
        for axes in figure.axes
        if axes.axison
    }
    assert panels == {
        "Caltech 101 Silhouettes, 60 epochs": ["gaussian", "bnaf"],
        "Caltech 101 Silhouettes, carried on": ["bnaf"],
        "Frey Faces, 150 epochs": [short[0]["flow"]],
    }
    (line,) = next(axes for axes in figure.axes if "carried on" in axes.get_title()).lines
    assert line.get_xdata() == [400]


def test_images_are_drawn_with_what_the_vae_makes_of_them(quick, images):
    run = trial(epochs=2)
    vae = load_trained(vae_file(quick / "runs", run.stem, 2), run.images.kind)
    test = images.test
    figure = draw_images(vae, SETS["caltech"], test)
    shown = [axes.images[0].get_array() for axes in figure.axes]
    assert len(shown) == 3
    np.testing.assert_array_equal(shown[0][:28, :28], test[0].view(28, 28))
    assert all(0 <= np.nanmin(one) <= np.nanmax(one) <= 1 for one in shown)
