"""Fits in which something goes wrong: what is skipped, what ends them, and what is kept."""

import shutil

import pytest
import torch
from fits import banana, quietly, same_start, small_flow, weights_of

from bnaf import (
    Model,
    SettingsError,
    StorageError,
    TrainingError,
    TrainingSettings,
)
from bnaf.tables.table import Table
from bnaf.training import FreshRows, MaximumLikelihood


class Spiked(MaximumLikelihood):
    """Likelihood that is infinite, undefined, or has an undefined gradient in some calls."""

    def __init__(self, flow, spikes):
        super().__init__(flow)
        self.spikes, self.calls = spikes, 0

    def losses(self, batch):
        losses = super().losses(batch)
        self.calls += 1
        spike = self.spikes.get(self.calls)
        if spike == "gradient":
            return losses + (0 * losses.sum()).sqrt()  # 0 · inf in its gradient
        return losses if spike is None else losses + spike


@pytest.mark.parametrize("spike", [torch.inf, torch.nan, "gradient"])
def test_a_few_undefined_losses_are_skipped_and_counted(spike):
    rows = banana(100)
    flow = small_flow()
    objective = Spiked(flow, {2: spike, 5: spike})
    record = quietly(flow, rows, objective=objective, settings=TrainingSettings(steps=100))
    assert record.skipped == 2
    assert weights_of(flow).isfinite().all()
    assert record.loss == record.loss
    assert record.history[-1].loss < record.history[0].loss - 0.1


def test_a_skipped_step_changes_nothing():
    rows = banana(100)
    settings = TrainingSettings(steps=3, schedule="constant", warm_up=0, average=None)
    one, two = same_start(small_flow, 2)
    quietly(one, rows, objective=Spiked(one, {2: torch.nan}), settings=settings)
    quietly(two, rows, settings=TrainingSettings(**settings.as_dict() | {"steps": 2}))
    assert torch.equal(weights_of(one), weights_of(two))


def test_many_undefined_losses_end_the_run_with_the_best_weights():
    rows, flow = banana(100), small_flow()
    objective = Spiked(flow, dict.fromkeys(range(41, 100), torch.nan))
    settings = TrainingSettings(steps=500, max_skipped=5)
    with pytest.raises(TrainingError, match=r"at step 50: more than 5 .* column [01]") as caught:
        quietly(flow, rows, objective=objective, settings=settings)
    assert caught.value.record.skipped == 10
    assert weights_of(flow).isfinite().all()
    with torch.no_grad():
        assert -flow().log_prob(rows).mean() < caught.value.record.history[0].loss


def test_a_failed_run_names_the_columns_of_a_stream():
    rows = banana(64)
    odd = rows.clone()
    odd[3, 1] = torch.nan
    with pytest.raises(TrainingError, match=r"by column, counted from 0: 1 \(15\)"):
        quietly(small_flow(), [rows, odd], settings=TrainingSettings(steps=200))


def test_a_run_all_of_whose_steps_are_skipped_fails_however_short():
    flow = small_flow()
    objective = Spiked(flow, dict.fromkeys(range(1, 9), torch.nan))
    with pytest.raises(TrainingError, match=r"at step 8: all of its 8 steps had a loss"):
        quietly(flow, banana(100), objective=objective, settings=TrainingSettings(steps=8))


@pytest.mark.parametrize("spikes", [range(95, 107), range(25, 37)])
def test_any_hundred_steps_are_judged_together(spikes):
    flow = small_flow()
    objective = Spiked(flow, dict.fromkeys(spikes, torch.nan))
    with pytest.raises(TrainingError, match=r"more than 10 of its last 100 steps"):
        quietly(flow, banana(100), objective=objective, settings=TrainingSettings(steps=200))


def test_skipped_steps_far_apart_are_borne():
    flow = small_flow()
    objective = Spiked(flow, dict.fromkeys([*range(11, 18), *range(131, 138)], torch.nan))
    record = quietly(flow, banana(100), objective=objective, settings=TrainingSettings(steps=200))
    assert (record.reason, record.skipped) == ("budget", 14)


def test_a_model_whose_fit_failed_is_kept(tmp_path):
    rows = banana(2000).double()
    rows[:, 1] *= 100
    settings = TrainingSettings(steps=100, learning_rate=1e9, clip=None)
    with pytest.raises(TrainingError, match=r"Column [01] is '(left|right)'") as caught:
        Model.fit(
            Table(rows, ("left", "right")),
            settings=settings,
            progress=False,
        )
    model = caught.value.model
    assert model.record["reason"] == "failed"
    assert model.columns == ("left", "right")
    assert torch.isfinite(weights_of(model.flow)).all()


def test_a_checkpoint_that_cannot_be_written_is_told_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    flow = small_flow()
    objective = Spiked(flow, {})
    for path, message in (
        (tmp_path / "file" / "run.ckpt", r"run.ckpt cannot be written: .*; check its folder"),
        (tmp_path, r"is a folder, expected a file"),
    ):
        with pytest.raises(StorageError, match=message):
            quietly(flow, banana(100), objective=objective, checkpoint=path)
    assert objective.calls == 0


class Unplugged(MaximumLikelihood):
    """Likelihood in whose fifth step the folder of the checkpoint goes away."""

    def __init__(self, flow, folder):
        super().__init__(flow)
        self.folder, self.calls = folder, 0

    def losses(self, batch):
        self.calls += 1
        if self.calls == 5:
            shutil.rmtree(self.folder)
            self.folder.write_text("")
        return super().losses(batch)


def test_a_run_outlives_the_disk_of_its_checkpoint(tmp_path):
    flow, folder = small_flow(), tmp_path / "disk"
    with pytest.warns(RuntimeWarning, match=r"cannot be written: .* Training goes on without"):
        record = quietly(
            flow,
            banana(100),
            objective=Unplugged(flow, folder),
            checkpoint=folder / "run.ckpt",
            checkpoint_every=0.0,
        )
    assert (record.reason, record.steps) == ("budget", 12)


def test_a_run_outlives_the_disk_of_its_logs_and_says_so_once(tmp_path):
    flow, folder = small_flow(), tmp_path / "disk"
    settings = TrainingSettings(steps=12, evaluate_every=2)
    folder.mkdir()
    with pytest.warns(RuntimeWarning, match=r"Logs cannot be written: .* goes on") as told:
        record = quietly(
            *(flow, banana(100)),
            objective=Unplugged(flow, folder),
            logs=folder,
            settings=settings,
        )
    assert (record.reason, record.steps) == ("budget", 12)
    assert len(told) == 1


def test_settings_that_a_stream_does_not_obey_are_refused():
    batches = [banana(64), banana(64, seed=1)]
    for wrong in ({"noise": 0.1}, {"pull": 1.0}):
        with pytest.raises(SettingsError, match="are for rows that come as one array"):
            quietly(small_flow(), batches, settings=TrainingSettings(steps=3, **wrong))
    source = FreshRows(lambda count, generator: torch.randn(count, 2, generator=generator))
    with pytest.raises(SettingsError, match="batch must be that of the rows, 512, got 200"):
        quietly(small_flow(), source, settings=TrainingSettings(steps=3, batch=200))


def test_a_long_run_keeps_a_record_that_fits_its_file():
    settings = TrainingSettings(steps=1100, evaluate_every=1)
    flow = {"transforms": 1, "hidden_layers": 1, "width": 2}
    model = Model.fit(banana(20).double(), settings=settings, flow_settings=flow, progress=False)
    steps = [entry["step"] for entry in model.record["history"]]
    assert len(steps) == 1000
    assert (steps[0], steps[-1]) == (1, 1100)
    assert steps == sorted(set(steps))
