"""Fits from end to end: what they learn, keep, skip, write and leave alone."""

import csv
import io
import math
import re
import signal
from functools import partial

import numpy as np
import pytest
import torch
from fits import QUICK, banana, quietly, same_start, small_flow, square, weights_of
from torch.distributions import MultivariateNormal

from bnaf import (
    BNAF,
    SettingsError,
    StorageError,
    TableError,
    TrainingSettings,
    fit,
)
from bnaf.datasets.toy import draw_toy
from bnaf.training import Batch, FreshRows, MaximumLikelihood, ReverseKL
from bnaf.training._run.devices import make_fabric
from bnaf.training._run.keeper import Keeper
from bnaf.training._run.schedule import cosine, warm_up
from bnaf.training._run.stepper import Stepper
from bnaf.training.progress import Bar, Lines, Silence, View, make_progress


def test_the_default_beats_a_gaussian_on_held_out_rows():
    rows, held_out = banana(3000), banana(1000, seed=1)
    flow = BNAF(2, transforms=2, hidden_layers=1, width=10)
    record = quietly(flow, rows, valid=held_out, settings=TrainingSettings(steps=250))
    gaussian = MultivariateNormal(rows.mean(0), rows.T.cov())
    with torch.no_grad():
        ours = flow().log_prob(held_out).mean()
    assert ours > gaussian.log_prob(held_out).mean() + 0.4
    assert record.valid == pytest.approx(-ours.item(), abs=1e-5)
    assert record.history[-1].loss < record.history[0].loss


def test_a_small_table_takes_few_steps_and_any_order():
    rows = banana(100)
    one, two = same_start(small_flow, 2)
    quietly(two, rows.flip(0), settings=None)
    record = quietly(one, rows, settings=None)
    assert record.batch == 100
    assert record.steps <= 300
    assert torch.equal(weights_of(one), weights_of(two))


def test_arrays_are_taken_and_never_rescaled():
    rows = 5 + 3 * banana(200).double().numpy()
    before = rows.copy()
    one, two = same_start(small_flow, 2)
    quietly(one, rows)
    quietly(two, torch.from_numpy(rows).float())
    assert np.array_equal(rows, before)
    assert torch.equal(weights_of(one), weights_of(two))


def test_torchs_generator_is_left_alone_and_a_seed_repeats_a_fit():
    rows = banana(1500)
    one, two, three = same_start(small_flow, 3)
    torch.manual_seed(9)
    before = torch.get_rng_state()
    quietly(one, rows)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(10)
    quietly(two, rows)
    quietly(three, rows, settings=TrainingSettings(steps=12, seed=1))
    assert torch.equal(weights_of(one), weights_of(two))
    assert not torch.equal(weights_of(one), weights_of(three))


def test_weights_count_rows_as_often():
    rows = banana(60).double()
    one, two = same_start(lambda: small_flow().double(), 2)
    counts = torch.arange(60) % 3  # some not at all
    quietly(one, rows, weights=counts)
    quietly(two, rows.repeat_interleave(counts, 0))
    ours, theirs = weights_of(one), weights_of(two)
    assert (ours - theirs).norm() <= 1e-6 * theirs.norm()  # a row too many moves a thousandth


def test_a_conditional_flow_learns_from_its_context():
    context = torch.linspace(-2, 2, 400).unsqueeze(1)
    rows = context.sin() + 0.1 * torch.randn(400, 2)
    flow = small_flow(1)
    settings = TrainingSettings(steps=150)
    quietly(flow, rows, context=context, valid=rows, valid_context=context, settings=settings)
    with torch.no_grad():
        right = flow(context).log_prob(rows).mean()
        wrong = flow(context.flip(0)).log_prob(rows).mean()
    assert right > wrong + 1


def test_reverse_kl_reaches_a_known_law():
    flow = small_flow(direction="sampling")
    law = MultivariateNormal(torch.tensor([1.0, -1.0]), torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    objective = ReverseKL(flow, lambda x: -law.log_prob(x))
    record = fit(flow, objective=objective, settings=TrainingSettings(steps=300), progress=False)
    assert -0.02 < record.loss < 0.05  # the divergence itself, as the law is normalised
    assert flow().sample((5000,)).mean(0).sub(law.mean).abs().max() < 0.1


def test_an_annealed_energy_grows_with_the_steps_it_is_trained():
    flow = small_flow(direction="sampling")
    plain, annealed = ReverseKL(flow, square), ReverseKL(flow, square, anneal=9)
    batch = Batch(torch.randn(50, 2))
    with torch.no_grad():
        energies = square(flow().transform.inv(batch.rows))
        missing = [((plain(batch) - annealed(batch)) / energies.mean()).item() for _ in range(12)]
        assert missing == pytest.approx([0.9 - 0.1 * min(step, 9) for step in range(12)], abs=1e-5)
        assert torch.equal(
            ReverseKL(flow, square, anneal=9).eval().losses(batch), plain.losses(batch)
        )
    with pytest.raises(SettingsError, match="anneal must be a whole number of at least 0, got -1"):
        ReverseKL(flow, square, anneal=-1)


def test_an_energy_must_give_one_number_per_row():
    flow = small_flow(direction="sampling")
    with pytest.raises(ValueError, match=r"one number per row, shape \(512,\), got .*\(512, 2\)"):
        fit(flow, objective=ReverseKL(flow, lambda x: x), settings=QUICK, progress=False)


def test_streams_and_fresh_rows_train():
    rows = banana(300)
    batches = [Batch(rows[:100], weights=torch.ones(100)), rows[100:200], rows[200:]]
    record = quietly(small_flow(), batches, settings=TrainingSettings(epochs=4))
    assert (record.steps, record.epochs) == (12, 4)

    class Unsized:
        def __iter__(self):
            return iter(batches)

    record = quietly(small_flow(), Unsized(), valid=Unsized(), settings=TrainingSettings(epochs=4))
    assert (record.steps, record.epochs, len(record.history)) == (12, 4, 4)
    draw = partial(draw_toy, "8gaussians")
    source = FreshRows(draw, batch=200)
    record = quietly(small_flow(), source, settings=TrainingSettings.paper_toy(steps=10))
    assert len(record.history) == 10
    with pytest.raises(TableError, match="got an empty stream"):
        quietly(small_flow(), [])


class Eventful(MaximumLikelihood):
    """Likelihood with something that happens in its n-th step, counted from 1."""

    def __init__(self, flow, step=0, happen=None):
        super().__init__(flow)
        self.step, self.happen, self.calls = step, happen, 0

    def losses(self, batch):
        self.calls += self.training
        if self.training and self.calls == self.step:
            self.happen()
        return super().losses(batch)


def press():
    """Press Ctrl-C, as far as this thread can tell."""
    signal.raise_signal(signal.SIGINT)


def test_a_run_ends_with_the_step_in_which_its_time_is_up(clock):
    flow = small_flow()
    objective = Eventful(flow, 5, partial(clock.go_on, 10.0))
    settings = TrainingSettings(seconds=10.0, steps=100)
    record = quietly(flow, banana(300), objective=objective, settings=settings)
    assert (record.reason, record.steps) == ("budget", 5)


def test_the_rate_decays_with_the_time_that_is_spent(clock):
    flow = small_flow()
    objective = Eventful(flow, 5, partial(clock.go_on, 9.0))
    settings = TrainingSettings(seconds=10.0, steps=100, evaluate_every=1)
    history = quietly(flow, banana(300), objective=objective, settings=settings).history
    before, after = (history[step].learning_rate / flow.learning_rate for step in (3, 4))
    assert before == pytest.approx(cosine(0.04) * warm_up(4, 0.04, settings.warm_up))
    assert after == pytest.approx(cosine(0.9))


def last_improvement(history, settings):
    """Return the step of the last evaluation that was better by more than the threshold."""
    step, mark = 0, math.inf
    for entry in history:
        if entry.valid < mark - settings.plateau_threshold:
            step, mark = entry.step, entry.valid
    return step


def test_the_best_weights_are_kept_and_early_stopping_ends_the_run():
    rows = banana(40)
    settings = TrainingSettings(
        steps=2000, evaluate_every=5, early_stopping=3, learning_rate=0.2, schedule="constant"
    )
    flow = BNAF(2, transforms=1, hidden_layers=1, width=8)
    record = quietly(flow, rows, valid=banana(200, seed=2), settings=settings)
    assert record.reason == "early stopping"
    assert record.steps == last_improvement(record.history, settings) + 15 < 2000
    assert record.valid == min(entry.valid for entry in record.history)
    with torch.no_grad():
        kept = -flow().log_prob(banana(200, seed=2)).mean().item()
    assert kept == pytest.approx(record.valid, abs=1e-5)


def test_a_run_whose_rate_decays_waits_for_a_tenth_of_its_budget():
    settings = TrainingSettings(steps=2000, evaluate_every=5, early_stopping=3, learning_rate=0.2)
    flow = BNAF(2, transforms=1, hidden_layers=1, width=8)
    record = quietly(flow, banana(40), valid=banana(200, seed=2), settings=settings)
    assert record.reason == "early stopping"
    last = last_improvement(record.history, settings)
    assert last + 200 <= record.steps <= last + 205


def test_a_drop_returns_to_the_best_weights():
    settings = TrainingSettings(
        steps=60, schedule="plateau", plateau_patience=1, plateau_cooldown=0, reload_best=True,
        learning_rate=0.5, warm_up=0, evaluate_every=1, average=None, early_stopping=None,
    )  # fmt: skip
    rows, valid = banana(50), banana(60, seed=1)
    history = quietly(small_flow(), rows, valid=valid, settings=settings).history
    rates = [entry.learning_rate for entry in history]
    dropped = rates.index(0.25)  # the first step after a drop
    best = min(range(dropped), key=lambda index: history[index].valid)
    assert best < dropped - 1
    assert history[dropped].loss == history[best + 1].loss  # both start from the best weights
    levels = sorted(set(rates), reverse=True)
    assert levels == [max(0.5 / 2**number, 5e-4) for number in range(len(levels))]


def test_a_return_to_the_best_weights_brings_their_average_back():
    flow, settings = small_flow(), TrainingSettings(average=0.9, learning_rate=0.1)
    fabric = make_fabric(settings, torch.device("cpu"))
    stepper = Stepper(fabric, MaximumLikelihood(flow), settings)
    keeper = Keeper(stepper)
    for step in range(10):
        if step == 5:
            keeper.keep_best(anchor=True)
        stepper.take(Batch(banana(50, seed=step)), 0.1, step)
    keeper.return_to_anchor()
    with stepper.averaged():
        now = {f"flow.{name}": value.clone() for name, value in flow.state_dict().items()}
    assert now.keys() == keeper.best.keys()
    assert all(torch.equal(now[name], keeper.best[name]) for name in now)


def test_the_papers_settings_run():
    settings = TrainingSettings.paper(epochs=2)
    record = quietly(BNAF.paper(2, transforms=2, width=4), banana(500), valid=banana(50),
                     settings=settings)  # fmt: skip
    assert (record.epochs, record.batch, len(record.history)) == (2, 166, 2)


@pytest.mark.parametrize("step", [29, 30, 45, 60])
def test_ctrl_c_ends_a_run_that_can_go_on(tmp_path, step):
    rows, valid = banana(300), banana(50, seed=1)
    settings = TrainingSettings(epochs=12, batch=60, evaluate_every=10)
    options = {"valid": valid, "settings": settings}
    before = signal.getsignal(signal.SIGINT)
    one, two = same_start(small_flow, 2)
    whole = quietly(one, rows, objective=Eventful(one), **options)
    kept = {"objective": Eventful(two, step, press), "checkpoint": tmp_path / "run"}
    first = quietly(two, rows, **options, **kept)
    assert first.reason == ("budget" if step == 60 else "interrupted")
    assert first.steps == step
    assert signal.getsignal(signal.SIGINT) is before
    with torch.no_grad():
        best = -two().log_prob(valid).mean().item()
    assert best == pytest.approx(min(entry.valid for entry in first.history), abs=1e-5)
    again = quietly(two, rows, **options, **kept)
    assert [entry.valid for entry in again.history] == [entry.valid for entry in whole.history]
    assert torch.equal(weights_of(one), weights_of(two))


def test_early_stopping_counts_once_the_energy_has_grown():
    flow = BNAF(2, transforms=1, hidden_layers=1, width=4, direction="sampling")
    assert ReverseKL(flow, square).counted_from == 0
    assert ReverseKL(flow, square, anneal=9).counted_from == 9


def test_an_annealed_run_goes_on_where_it_stood(tmp_path):
    def press_after(count):
        def energy(x):
            calls.append(x)
            if len(calls) == count:
                press()
            return square(x)

        calls = []
        return energy

    one, two = same_start(lambda: small_flow(direction="sampling"), 2)
    kept = {"settings": TrainingSettings(steps=40, batch=50), "checkpoint": tmp_path / "run"}
    for flow, energies in ((one, [square]), (two, [press_after(13), square])):
        for energy in energies:
            objective = ReverseKL(flow, energy, anneal=30)
            record = fit(flow, objective=objective, progress=False, **kept)
        (tmp_path / "run").unlink()
        assert record.steps == 40
    assert torch.equal(weights_of(one), weights_of(two))


def test_the_time_of_an_interrupted_run_counts(clock, tmp_path):
    rows, flow, settings = banana(300), small_flow(), TrainingSettings(seconds=10.0, steps=100)
    kept = {"checkpoint": tmp_path / "run", "settings": settings}
    wait = partial(clock.go_on, 6.0)

    def wait_and_press():
        wait()
        press()

    first = quietly(flow, rows, objective=Eventful(flow, 5, wait_and_press), **kept)
    assert (first.reason, first.steps) == ("interrupted", 5)
    again = quietly(flow, rows, objective=Eventful(flow, 2, wait), **kept)
    assert (again.reason, again.steps) == ("budget", 7)  # twice 6 seconds are more than 10


def test_a_finished_run_is_not_run_again(tmp_path):
    path, rows = tmp_path / "deep" / "run.ckpt", banana(100)
    one, two = same_start(small_flow, 2)
    record = quietly(one, rows, checkpoint=path)
    again = quietly(two, rows, checkpoint=path)
    assert again == record
    assert torch.equal(weights_of(one), weights_of(two))
    assert [file.name for file in path.parent.iterdir()] == ["run.ckpt"]


def test_a_run_at_a_constant_rate_is_carried_on_as_if_its_budget_had_been_larger(tmp_path):
    rows, valid = banana(300), banana(100, seed=1)
    how = {"batch": 50, "evaluate_every": 6, "schedule": "constant", "warm_up": 0}
    short, long = (TrainingSettings(epochs=epochs, **how) for epochs in (2, 5))
    whole, parts = same_start(small_flow, 2)
    expected = quietly(whole, rows, valid=valid, settings=long)
    kept = {"valid": valid, "checkpoint": tmp_path / "run"}
    assert quietly(parts, rows, settings=short, **kept).epochs == 2
    record = quietly(parts, rows, settings=long, **kept)
    assert (record.epochs, record.reason) == (5, "budget")
    assert [entry.valid for entry in record.history] == [e.valid for e in expected.history]
    assert torch.equal(weights_of(parts), weights_of(whole))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path, rows = tmp_path / "run.ckpt", banana(100)
    quietly(small_flow(), rows, checkpoint=path)
    with pytest.raises(
        SettingsError,
        match=r"settings.steps is 12 there and 13 here.*Give another file, or remove this one",
    ):
        quietly(small_flow(), rows, checkpoint=path, settings=TrainingSettings(steps=13))
    with pytest.raises(SettingsError, match=r"flow.width is 4 there and 5 here"):
        quietly(small_flow(width=5), rows, checkpoint=path)
    with pytest.raises(SettingsError, match=r"another run: rows\.fingerprint is"):
        quietly(small_flow(), rows + 1, checkpoint=path)
    quietly(small_flow(), rows + 1, checkpoint=path, resume=False)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StorageError, match="cannot be read as a checkpoint"):
        quietly(small_flow(), rows, checkpoint=path)


def test_logs_are_written_and_continued(tmp_path):
    rows = banana(100)
    settings = TrainingSettings(steps=12, evaluate_every=3)
    options = {"valid": rows, "settings": settings, "logs": tmp_path / "logs"}
    both = {"loggers": ("csv", "tensorboard"), "checkpoint": tmp_path / "run"}
    flow = small_flow()
    quietly(flow, rows, **options, **both)
    quietly(flow, rows, **options, **both)  # resumed: the same folder, written anew
    quietly(flow, rows, **options)
    folders = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert folders == ["version_0", "version_1"]
    with (tmp_path / "logs" / "version_0" / "metrics.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["step"]) for line in lines] == [3, 6, 9, 12]
    assert {"loss", "valid", "learning_rate", "epoch", "seconds"} <= lines[0].keys()
    assert len(list((tmp_path / "logs" / "version_0").glob("events.out.tfevents*"))) == 1


VIEW = View(120, 0.25, 31.4, 2.5, 2.75, 2.7, 0.01, 75.0)


def test_progress_is_plain_off_a_terminal_and_absent_on_request():
    file = io.StringIO()
    assert isinstance(make_progress(False), Silence)
    lines = make_progress(True, file)
    assert isinstance(lines, Lines)
    lines.show(VIEW)
    assert file.getvalue() == (
        " 25 %  step 120  31.4 steps/s  1:15 left  loss 2.5000 nats  valid 2.7500  best 2.7000  "
        "rate 0.01\n"
    )


def test_progress_is_a_bar_that_fits_80_columns(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    bar = make_progress(True, file)
    assert isinstance(bar, Bar)
    long = View(1_234_567, 0.25, 1031.4, -123.45678, -123.45678, -123.45678, 0.0123, 36_000.0)
    bar.show(long)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    for part in ("━━━", " 25%", "step 1234567", "1031.4 steps/s", "10:00:00 left"):
        assert part in shown
    assert "loss -123.4568 nats  valid -123.4568  best -123.4568  rate 0.012" in shown
    bar.close("done: 120 steps")
    assert "done: 120 steps" in file.getvalue()


def test_a_fit_shows_how_it_ended(capsys):
    fit(small_flow(), banana(100), settings=QUICK)
    shown = capsys.readouterr()
    assert re.match(r"budget: 12 steps in \d+:\d\d", shown.err)
    assert shown.out == ""


def test_precision_and_type_of_the_flow_are_as_before():
    flow = small_flow()
    quietly(
        flow, banana(100), valid=banana(9), settings=TrainingSettings(steps=3, precision="64-true")
    )
    assert weights_of(flow).dtype == torch.float32
    assert flow.training


def test_mixed_precision_keeps_the_weights_in_full():
    flow = small_flow()
    settings = TrainingSettings(steps=20, precision="bf16-mixed")
    record = quietly(flow, banana(100), valid=banana(9), settings=settings)
    assert record.skipped == 0
    assert math.isfinite(record.valid)
    assert weights_of(flow).dtype == torch.float32


def test_an_objective_of_another_flow_is_refused():
    with pytest.raises(SettingsError, match="its flow is another"):
        quietly(small_flow(), banana(9), objective=MaximumLikelihood(small_flow()))
