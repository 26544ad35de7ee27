"""Settings, schedules, averages and choices, against numbers computed by hand."""

import math
from contextlib import suppress

import numpy as np
import pytest
import torch

from bnaf import BNAF, SettingsError, TrainingSettings
from bnaf.training._run.averaging import WeightAverage
from bnaf.training._run.schedule import Budget, Moment, Plateau, cosine, warm_up
from bnaf.training.recipe import (
    TableFacts,
    choose_interval,
    choose_steps,
    divide_rows,
    resolve,
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, r"epochs must be a whole number of at least 1, got 0"),
        ({"seconds": -1.0}, r"seconds must be a positive finite number, got -1.0"),
        ({"seconds": math.inf}, r"seconds must be a positive finite number, got inf"),
        ({"batch": True}, r"batch must be a whole number of at least 1, got True"),
        ({"learning_rate": 0}, r"learning_rate must be a positive finite number, got 0"),
        ({"clip": 0.0}, r"clip must be a positive finite number, got 0.0"),
        ({"schedule": "linear"}, r"one of 'cosine', 'plateau', 'constant', got 'linear'"),
        ({"warm_up": -1}, r"warm_up must be a whole number of at least 0, got -1"),
        ({"plateau_factor": 1.0}, r"plateau_factor must be a number between 0 and 1, got 1.0"),
        ({"plateau_floor": -1}, r"plateau_floor must be a finite number of at least 0, got -1"),
        ({"average": 1.0}, r"average must be a number between 0 and 1, got 1.0"),
        ({"average_share": 0.0}, r"average_share must be a number between 0 and 1, got 0.0"),
        ({"reload_best": True}, r"reload_best needs schedule='plateau'.* got schedule='cosine'"),
        ({"precision": "16-mixed"}, r"gradient scaler, got '16-mixed'; use 'bf16-true'"),
        ({"devices": 0}, r"devices must be a whole number of at least 1, got 0"),
        ({"max_skipped": -1}, r"max_skipped must be a whole number of at least 0, got -1"),
    ],
)
def test_messages(settings, message):
    with pytest.raises(SettingsError, match=message):
        TrainingSettings(**settings)


def test_a_misspelt_setting_is_a_type_error():
    with pytest.raises(TypeError, match="learning_rates"):
        TrainingSettings(learning_rates=1.0)


def test_the_papers_settings_have_the_papers_numbers():
    tables, toy = TrainingSettings.paper(), TrainingSettings.paper_toy()
    assert (tables.learning_rate, tables.batch, tables.clip) == (1e-2, 200, 0.1)
    assert (tables.epochs, tables.early_stopping, tables.average) == (1000, 100, 0.998)
    assert (tables.plateau_factor, tables.plateau_patience) == (0.5, 20)
    assert (tables.plateau_cooldown, tables.plateau_floor) == (10, 5e-4)
    assert tables.plateau_threshold == 1e-4
    assert tables.amsgrad
    assert tables.reload_best
    assert tables.bias_correction
    assert (toy.learning_rate, toy.steps, toy.plateau_patience) == (1e-1, 20_000, 2000)
    assert (toy.evaluate_every, toy.average, toy.batch) == (1, None, 200)


def test_the_rate_warms_up_and_decays_to_the_budget():
    shares = [step / 4000 for step in range(4000)]
    rates = [warm_up(step, shares[step], 200) * cosine(shares[step]) for step in range(4000)]
    assert rates[0] == pytest.approx(1 / 200)
    assert rates[99] == pytest.approx(0.5, rel=2e-3)
    assert rates[2000] == pytest.approx(0.5)
    assert rates[3999] < 1e-6


def test_a_tenth_of_a_small_budget_warms_up():
    assert warm_up(4, 4 / 50, 200) == pytest.approx(0.8)
    assert warm_up(5, 5 / 50, 200) == 1.0
    assert warm_up(0, 0.0, 0) == 1.0


def test_the_first_limit_that_is_reached_ends_the_budget():
    budget = Budget(epochs=10, steps=100, seconds=60.0)
    assert budget.share(Moment(50, 1, 6.0)) == 0.5
    assert budget.share(Moment(50, 9, 6.0)) == 0.9
    assert budget.share(Moment(50, 1, 66.0)) == 1.0
    assert Budget().share(Moment(5, 1, 1.0)) == 0.0


def plateau(**settings) -> Plateau:
    chosen = {"learning_rate": 1.0, "schedule": "plateau", "plateau_patience": 1, **settings}
    return Plateau(TrainingSettings(**{"plateau_cooldown": 2, "plateau_floor": 0.2, **chosen}))


def test_a_plateau_drops_cools_down_and_has_a_floor():
    rates = plateau()
    dropped = []
    for loss in [3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]:
        dropped.append((rates.update(loss), rates.rate))
    # two stalls are one more than patience; two evaluations of cool-down follow, then two stalls
    assert [rate for _, rate in dropped] == [
        1,
        1,
        1,
        0.5,
        0.5,
        0.5,
        0.5,
        0.25,
        0.25,
        0.25,
        0.25,
        0.2,
    ]
    assert [index for index, (drop, _) in enumerate(dropped) if drop] == [3, 7, 11]


def test_an_improvement_below_the_threshold_does_not_count():
    rates = plateau(plateau_threshold=0.5)
    assert [rates.update(loss) for loss in (3.0, 2.6, 2.55)] == [False, False, True]


def test_undefined_losses_are_no_improvement():
    rates = plateau()
    assert [rates.update(loss) for loss in (3.0, math.nan, math.inf)] == [False, False, True]


def test_drops_to_reloaded_weights_do_not_compound():
    rates = plateau(plateau_cooldown=0, plateau_patience=0)
    rates.update(1.0)
    for _ in range(3):
        assert rates.update(2.0, rate_of_best=1.0)
        assert rates.rate == 0.5


def test_a_plateau_does_what_torchs_does():
    generator = torch.Generator().manual_seed(0)
    losses = torch.rand(200, generator=generator).cummin(0).values.tolist()
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, factor=0.5, patience=3, cooldown=2, min_lr=1e-3, threshold=1e-4,
        threshold_mode="abs", eps=0.0,
    )  # fmt: skip
    ours = plateau(plateau_patience=3, plateau_floor=1e-3)
    for loss in losses:
        theirs.step(loss)
        ours.update(loss)
        assert ours.rate == optimiser.param_groups[0]["lr"]


def averages(values: list[float], **settings) -> list[float]:
    weight = torch.zeros(1, dtype=torch.float64)
    average = WeightAverage([weight], **settings)
    means = []
    for value in values:
        weight.fill_(value)
        average.update()
        means.append(average.values[0].item())
    return means


def test_the_average_is_corrected_for_its_start():
    # 0.9: 1, (0.09·1 + 0.1·2) / 0.19, (0.081 + 0.18 + 0.4) / 0.271
    means = averages([1.0, 2.0, 4.0], decay=0.9)
    assert means == pytest.approx([1.0, 0.29 / 0.19, 0.661 / 0.271])


def test_the_published_average_starts_at_zero():
    means = averages([1.0, 2.0, 4.0], decay=0.9, bias_correction=False)
    assert means == pytest.approx([0.1, 0.29, 0.661])


def test_the_average_looks_back_on_a_share_of_the_steps():
    # weights max(0.1 / (1 - 0.9^t), 1 / (t/2)): 1, 1, 2/3
    assert averages([1.0, 2.0, 5.0], decay=0.9, share=0.5) == pytest.approx([1.0, 2.0, 4.0])


def test_the_average_is_applied_for_a_while_only():
    weight = torch.tensor([3.0])
    average = WeightAverage([weight], decay=0.5, bias_correction=False)
    with average.applied():
        assert weight.item() == 3.0  # nothing averaged yet
    average.update()
    with suppress(KeyError), average.applied():
        assert weight.item() == 1.5
        raise KeyError
    assert weight.item() == 3.0


def test_sizes_follow_the_table():
    assert BNAF.sizes_for(6, small=False) == {"transforms": 3, "hidden_layers": 2, "width": 40}
    assert BNAF.sizes_for(6, small=False, many=True)["transforms"] == 5
    assert BNAF.sizes_for(6, small=False, many=True, given=1)["transforms"] == 3
    assert [BNAF.sizes_for(features, small=False)["width"] for features in (43, 63)] == [6, 5]
    assert BNAF.sizes_for(6, small=True) == {"transforms": 2, "hidden_layers": 1, "width": 10}


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("rows", [900, 999, 1_000, 1_001, 1_100, 1_111, 1_112])
def test_a_table_is_small_or_not_for_its_split_and_its_sizes_alike(rows, mixed):
    valid, _, counted = divide_rows(rows, mixed=mixed)
    small = counted <= 1_000
    assert small == (rows <= 1_000)
    assert valid == ((0.2 if mixed else 0.0) if small else 0.1)
    facts = TableFacts(rows=rows - round(valid * rows), columns=2, counted=counted)
    assert facts.small == small
    settings = resolve(TrainingSettings(), facts, BNAF)
    assert settings.batch == (facts.rows if small else 512)


@pytest.mark.parametrize("test", [0, 1_000])
@pytest.mark.parametrize("rows", [9_999, 10_000, 10_001, 10_500, 11_111, 11_112, 12_000])
def test_rows_are_few_or_not_for_averages_and_contexts_alike(rows, test):
    _, members, counted = divide_rows(rows, columns=1, given=2, test=test)
    assert TableFacts(rows=rows, given=2, counted=counted).few == (members == 5)


@pytest.mark.parametrize("asked", [{"valid": 300}, {"valid": 0.25}, {"test": 300}])
def test_rows_that_are_left_out_as_asked_for_do_not_count(asked):
    division = divide_rows(1_200, **asked)
    assert division.counted <= 900
    assert division.valid == asked.get("valid", 0.0)


def facts(rows, **more):
    return TableFacts(rows=rows, columns=6, worth=rows, **more)


def test_what_is_open_is_filled_in_and_what_is_chosen_stays():
    found = resolve(TrainingSettings(), facts(100), BNAF)
    assert (found.batch, found.steps, found.learning_rate) == (100, 300, 0.05)
    found = resolve(TrainingSettings(), facts(1_000_000), BNAF)
    assert (found.batch, found.steps, found.evaluate_every) == (512, 20_000, 500)
    assert all(getattr(found, name) is not None for name in ("pull", "noise"))
    chosen = TrainingSettings(
        batch=7, learning_rate=0.1, pull=2.0, noise=0.3, seconds=1.0, evaluate_every=3
    )
    assert resolve(chosen, facts(1_000_000), BNAF) == chosen


def test_settings_that_are_resolved_stay_as_they_are():
    once = resolve(TrainingSettings(), facts(300, standardised=True, white=True), BNAF)
    assert resolve(once, TableFacts(rows=300, columns=6), BNAF) == once


def test_a_source_of_its_own_keeps_its_batches():
    found = resolve(TrainingSettings(), TableFacts(batch=64, batches=100), BNAF)
    assert (found.batch, found.steps, found.evaluate_every) == (None, 20_000, 100)
    assert resolve(TrainingSettings(), TableFacts(), BNAF).evaluate_every is None


def test_runs_without_a_budget_get_one():
    choices = [(15, 15), (400, 400), (5_000, 512), (60_000, 512), (10**6, 512)]
    assert [choose_steps(*sizes) for sizes in choices] == [300, 300, 2_000, 11_800, 20_000]


def test_conditional_fits_of_few_rows_take_long_where_held_out_rows_judge_them():
    steps = [
        resolve(TrainingSettings(), facts(5_000, given=3, valid_rows=valid), BNAF).steps
        for valid in (None, 500)
    ]
    assert steps == [2_000, 6_000]


@pytest.mark.parametrize("name", ["steps", "batch", "seed"])
@pytest.mark.parametrize("number", [np.int64(3), np.uint8(3), np.array(3), torch.tensor(3)])
def test_whatever_numpy_takes_for_a_whole_number_is_one(name, number):
    settings = TrainingSettings(**{name: number})
    assert getattr(settings, name) == 3
    assert type(getattr(settings, name)) is int


def test_budgets_turn_epochs_into_steps():
    assert Budget.of(TrainingSettings(epochs=3), 10).steps == 30
    assert Budget.of(TrainingSettings(epochs=3, steps=20), 10).steps == 20
    assert Budget.of(TrainingSettings(epochs=3), None) == Budget(epochs=3)
    assert Budget.of(TrainingSettings(seconds=3.0), 10) == Budget(seconds=3.0)
    assert Budget.of(TrainingSettings(steps=999), 10) == Budget(steps=999)


def test_evaluations_cost_little():
    assert choose_interval("cosine", 58, 512, 3_000) == 58
    assert choose_interval("cosine", 4_000, 512, 1_000) == 500
    assert choose_interval("cosine", 4_000, 512, 184_000) == 2516
    assert choose_interval("plateau", 4_000, 512, 184_000) == 4_000
