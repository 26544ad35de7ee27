"""The flow of rows of every kind."""

import itertools
import math

import pytest
import torch
from cases import randomise

import bnaf
from bnaf import SettingsError, ShapeError, StaleLawError, TableError
from bnaf.flows.categories import CategoryNetwork
from bnaf.flows.mixed import Mixed

LEVELS, STATUSES = [3, 2, 2], [1, -1]
SIZES = {"code": 3, "category_width": 9, "width": 3, "context_width": 5, "context_rank": 4}
CONTEXT = {"context_levels": [3], "context_numbers": 1, "context_bins": 2}
nan = math.nan


def build(levels=LEVELS, numbers=2, *, statuses=None, **settings):
    """A flow of order one, whose second part says whether there is a first number."""
    if statuses is None and numbers == 2 and len(levels) > 1:
        statuses = STATUSES
    flow = Mixed(levels, numbers, statuses=statuses, **SIZES | settings).double().eval()
    randomise(flow)
    return flow


def context_of(flow, *batch):
    if not flow.context_features:
        return None
    levels = torch.randint(0, 3, (*batch, 1)).double()
    return torch.cat([levels, torch.randn(*batch, 1, dtype=torch.float64)], -1)


def rows_of(flow, *batch):
    """Rows of points and intervals, with numbers that are not there where statuses say so."""
    counts = torch.tensor(flow.layout.levels, dtype=torch.float64)
    levels = (torch.rand(*batch, len(counts), dtype=torch.float64) * counts).floor()
    middle, below, above = torch.randn(3, *batch, flow.layout.numbers, dtype=torch.float64)
    middle = middle.masked_fill(flow.layout.absent(levels), nan)
    points = torch.rand(middle.shape) < 0.5
    ends = [end.abs().masked_fill(points, 0) for end in (below, above)]
    return torch.cat([levels, middle, *ends], -1)


def all_levels(flow):
    counts = [range(count) for count in flow.layout.levels]
    return torch.tensor(list(itertools.product(*counts)), dtype=torch.float64)


every_kind = pytest.mark.parametrize(
    "flow",
    [
        pytest.param({}, id="mixed"),
        pytest.param(CONTEXT, id="context"),
        pytest.param({"levels": []}, id="numbers"),
        pytest.param({"levels": [], **CONTEXT}, id="numbers with context"),
        pytest.param({"numbers": 0}, id="levels"),
        pytest.param({"numbers": 0, "levels": [4]}, id="one part"),
        pytest.param({"numbers": 0, "levels": [4], **CONTEXT}, id="one part with context"),
        pytest.param({"category_layers": 0, "context_layers": 0}, id="linear"),
    ],
    indirect=True,
)


@pytest.fixture
def flow(request):
    return build(**getattr(request, "param", {}))


@every_kind
def test_shares_add_up_to_the_log_probability(flow):
    law, rows = flow(context_of(flow, 6)), rows_of(flow, 6)
    shares = law.log_shares(rows)
    assert shares.shape == (6, flow.layout.parts)
    torch.testing.assert_close(law.log_prob(rows), shares.sum(-1))
    assert shares.isfinite().all()


@every_kind
def test_a_batch_is_its_rows(flow):
    context, rows = context_of(flow, 2, 3), rows_of(flow, 2, 3)
    together = flow(context).log_prob(rows)
    for place in itertools.product(range(2), range(3)):
        alone = flow(None if context is None else context[place])
        torch.testing.assert_close(alone.log_prob(rows[place]), together[place])


@every_kind
def test_no_part_feels_a_later_one(flow):
    law, rows, others = flow(context_of(flow)), rows_of(flow, 20), rows_of(flow, 20)
    parts, columns = flow.layout.parts, len(flow.layout.levels)
    before = law.log_shares(rows)
    for part in range(columns, parts):  # numbers after it, with levels as they are
        changed = rows.clone()
        for piece in range(3):
            later = slice(part + piece * flow.layout.numbers, parts + piece * (parts - columns))
            changed[:, later] = others[:, later]
        changed[:, columns:parts] = changed[:, columns:parts].masked_fill(
            rows[:, columns:parts].isnan(), nan
        )
        assert torch.equal(law.log_shares(changed)[:, :part], before[:, :part])
    for part in range(columns):
        changed = torch.cat([rows[:, :part], others[:, part:]], -1)
        assert torch.equal(law.log_shares(changed)[:, :part], before[:, :part])


@pytest.mark.parametrize("flow", [{}, CONTEXT], ids=["mixed", "context"], indirect=True)
def test_masses_of_levels_add_up_to_one(flow):
    levels = all_levels(flow)
    unknown = torch.tensor([nan, nan, 0, 0, 0, 0], dtype=torch.float64).expand(len(levels), -1)
    log_prob = flow(context_of(flow)).log_prob(torch.cat([levels, unknown], -1))
    torch.testing.assert_close(log_prob.exp().sum(), torch.ones((), dtype=torch.float64))


def test_the_density_of_mixed_rows_integrates_and_sums_to_one():
    flow = build([2, 3], 1, statuses=[0])
    grid = torch.linspace(-60, 60, 20_001, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for levels in all_levels(flow):
        if levels[0] != 0:  # there is no number
            row = torch.cat([levels, torch.tensor([nan, 0, 0], dtype=torch.float64)])
            total += flow().log_prob(row).exp()
            continue
        rows = torch.zeros(len(grid), 5, dtype=torch.float64)
        rows[:, :2], rows[:, 2] = levels, grid
        total += torch.trapezoid(flow().log_prob(rows).exp(), grid)
    torch.testing.assert_close(total, torch.ones((), dtype=torch.float64), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "flow", [{}, CONTEXT, {"levels": []}], ids=["mixed", "context", "numbers"], indirect=True
)
def test_intervals_that_share_the_line_have_a_mass_of_one(flow):
    rows = rows_of(flow, 1)
    number = len(flow.layout.levels)
    last = number + flow.layout.numbers - 1
    edges = torch.tensor([-math.inf, -1.0, 0.5, 2.0, math.inf], dtype=torch.float64)
    middle = torch.tensor([-2.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    rows = rows.repeat(4, 1)
    rows[:, last] = middle
    rows[:, last + flow.layout.numbers] = middle - edges[:-1]
    rows[:, last + 2 * flow.layout.numbers] = edges[1:] - middle
    masses = flow(context_of(flow)).log_shares(rows)[:, -1].exp()
    torch.testing.assert_close(masses.sum(), torch.ones((), dtype=torch.float64))


def test_what_cannot_be_has_probability_zero(flow):
    row = torch.tensor([1, 0, 1, 0.3, -0.2, 0, 0.1, 0, 0.1], dtype=torch.float64)
    assert flow().log_prob(row).isfinite()
    for place, value in [(0, 3), (0, -1), (2, 0.5), (2, math.inf), (3, math.inf), (6, -0.1)]:
        odd = row.clone()
        odd[place] = value
        part = place if place < 5 else (place - 3 if place < 7 else place - 5)
        part = {6: 4}.get(place, part)
        assert flow().log_shares(odd)[part] == -math.inf
        assert flow.impossible(odd.unsqueeze(0)).nonzero()[:, 1].tolist() == [place]
    absent = row.clone()
    absent[1] = 1  # the status says that there is no first number
    assert flow().log_prob(absent) == -math.inf


def test_what_is_not_known_has_a_share_of_one(flow):
    rows = rows_of(flow, 5)
    rows[:, [0, 4]] = nan
    shares = flow().log_shares(rows)
    assert torch.equal(shares[:, [0, 4]], torch.zeros(5, 2, dtype=torch.float64))


@pytest.mark.parametrize("flow", [CONTEXT], indirect=True)
@pytest.mark.parametrize("column", [0, 1])
def test_every_part_feels_the_context(flow, column):
    rows = rows_of(flow, 8)
    rows[:, 1] = 0  # all numbers are there
    rows[:, 3] = 0.4
    contexts = torch.tensor([[0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    contexts[1, column] = 1
    here, there = (flow(context).log_shares(rows) for context in contexts)
    assert (here != there).any(0).all()


@every_kind
def test_gradients_reach_every_parameter(flow):
    loss = flow(context_of(flow, 64)).log_prob(rows_of(flow, 64)).sum()
    loss.backward()
    for name, parameter in flow.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@every_kind
def test_draws_have_the_shape_asked_for_and_are_possible(flow):
    law = flow(context_of(flow, 4))
    for shape in [(), (3,), (2, 5)]:
        rows = law.sample(shape)
        assert rows.shape == (*shape, *law.batch_shape, flow.features)
        assert law.log_prob(rows).isfinite().all()


def test_frequencies_of_levels_are_their_probabilities(flow):
    count = 40_000
    rows = flow().sample((count,), generator=torch.Generator().manual_seed(0))
    levels = all_levels(flow)
    unknown = torch.tensor([nan, nan, 0, 0, 0, 0], dtype=torch.float64).expand(len(levels), -1)
    expected = flow().log_prob(torch.cat([levels, unknown], -1)).exp()
    found = (rows[:, None, :3] == levels).all(-1).double().mean(0)
    errors = (expected * (1 - expected) / count).sqrt()
    assert ((found - expected).abs() < 4.5 * errors).all()


def test_frequencies_of_cells_are_their_masses(flow):
    def snap(number, x):
        return x.round(), torch.full_like(x, 0.5), torch.full_like(x, 0.5)

    count = 20_000
    given = torch.full((9,), nan, dtype=torch.float64)
    given[:3] = torch.tensor([2.0, 0, 1])
    rows = flow().sample(
        (count,), given=given, snap=snap, generator=torch.Generator().manual_seed(0)
    )
    for value in (-1.0, 0.0, 1.0):
        row = torch.tensor([2, 0, 1, value, nan, 0.5, 0.5, 0.5, 0.5], dtype=torch.float64)
        mass = flow().log_shares(row)[3].exp()
        found = (rows[:, 3] == value).double().mean()
        assert (found - mass).abs() < 4.5 * (mass * (1 - mass) / count).sqrt()


def test_numbers_are_not_there_where_their_status_says_so(flow):
    rows = flow().sample((200,))
    assert torch.equal(rows[:, 3].isnan(), rows[:, 1] == 1)
    assert not rows[:, 4].isnan().any()


def test_draws_given_later_parts_follow_their_law(flow):
    given = torch.full((9,), nan, dtype=torch.float64)
    given[[4, 6, 8]] = torch.tensor([0.2, 0.3, 0.3]).double()
    draws = flow().sample_given(
        given, (20_000,), particles=40_000, generator=torch.Generator().manual_seed(0)
    )
    rows = draws.rows
    assert torch.equal(rows[:, [4, 6, 8]], given[[4, 6, 8]].expand(len(rows), -1))
    assert 100 < draws.effective < 40_000
    # with no first number the probability of the levels is known: a status of 1
    levels = all_levels(flow)
    levels = levels[levels[:, 1] == 1]
    cells = torch.tensor([nan, 0.2, 0, 0.3, 0, 0.3], dtype=torch.float64)
    exact = flow().log_prob(torch.cat([levels, cells.expand(len(levels), -1)], -1)).softmax(0)
    there = rows[rows[:, 1] == 1]
    found = (there[:, None, :3] == levels).all(-1).double().mean(0)
    errors = (exact * (1 - exact) / (draws.effective * len(there) / len(rows))).sqrt()
    assert ((found - exact).abs() < 4.5 * errors).all()


def test_draws_given_first_parts_need_no_weights(flow):
    given = torch.full((2, 9), nan, dtype=torch.float64)
    given[0, 0], given[1, :3] = 1, torch.tensor([0.0, 1, 1])
    draws = flow().sample_given(given, (7,))
    assert draws.rows.shape == (7, 2, 9)
    assert torch.equal(draws.effective, torch.full((2,), 7.0, dtype=torch.float64))
    assert (draws.rows[:, 0, 0] == 1).all()
    assert torch.equal(draws.rows[:, 1, :3], given[1, :3].expand(7, -1))
    assert draws.rows[:, 1, 3].isnan().all()


@pytest.mark.parametrize("flow", [CONTEXT], indirect=True)
def test_given_rows_broadcast_against_contexts(flow):
    given = torch.full((9,), nan, dtype=torch.float64)
    given[2] = 1
    draws = flow(context_of(flow, 4)).sample_given(given, (3,), particles=10)
    assert draws.rows.shape == (3, 4, 9)
    assert draws.effective.shape == (4,)
    assert (draws.rows[..., 2] == 1).all()


@every_kind
def test_probabilities_of_a_part_are_those_of_its_shares(flow):
    law, rows = flow(context_of(flow)), rows_of(flow, 6)
    levels = flow.layout.split(rows).levels
    shares = law.log_shares(rows)
    for part in range(levels.shape[-1]):
        log_probs = law.predictions.level_log_probs(levels, part)
        found = log_probs.gather(-1, levels[:, part : part + 1].long()).squeeze(-1)
        torch.testing.assert_close(found, shares[:, part])


def test_a_number_that_is_given_is_there(flow):
    given = torch.full((9,), nan, dtype=torch.float64)
    given[[3, 5, 7]] = torch.tensor([0.5, 0.0, 0.0]).double()
    rows = flow().sample((50,), given=given)
    assert (rows[:, 1] == 0).all()
    assert (rows[:, 3] == 0.5).all()


def test_few_effective_draws_are_told():
    flow = build([2, 2], 0, code=1, category_layers=0)
    with torch.no_grad():  # one in 150 has level 1 in the first part, and then in the second
        flow.categories.bias.copy_(torch.tensor([5.0, 0, 0, 0]))
        flow.codes.codes.copy_(torch.tensor([[0.0], [1.0]]))
        flow.categories.last.weight[2:] = torch.tensor([[0.0], [20.0]])
        flow.categories.bias[2:] = torch.tensor([10.0, 0.0])
    given = torch.tensor([nan, 1], dtype=torch.float64)
    with pytest.warns(
        bnaf.FewDrawsWarning, match=r"effective ones of 50.* draw more rows: as many"
    ):
        flow().sample((50,), given=given)


def test_more_rows_have_more_effective_draws_behind_them():
    flow = build([2, 2], 0, code=1, category_layers=0)
    given = torch.tensor([nan, 1], dtype=torch.float64)
    few, many = (flow().sample_given(given, (count,)).effective for count in (50, 8000))
    assert many > 4 * few


def test_impossible_given_values_are_refused(flow):
    given = torch.full((9,), nan, dtype=torch.float64)
    given[2] = 7
    with pytest.raises(TableError, match="given must hold levels that exist"):
        flow().sample_given(given, (5,))


def test_saved_and_loaded_it_gives_equal_numbers(tmp_path):
    flow = build(**CONTEXT)
    bnaf.save(flow, tmp_path / "flow.safetensors")
    again = bnaf.load(tmp_path / "flow.safetensors").eval()
    context, rows = context_of(flow, 5), rows_of(flow, 5)
    assert again.settings == flow.settings
    assert torch.equal(again(context).log_prob(rows), flow(context).log_prob(rows))


def test_it_starts_as_independent_parts_of_the_frequencies_seen():
    flow = Mixed([3, 2], 0, **SIZES).double().eval()
    rows = torch.tensor([[0, 1], [0, 0], [1, 1], [0, 1]], dtype=torch.float64)
    flow.start_from(rows)
    expected = (torch.tensor([3, 1, 0]) + 0.5) / 5.5
    shares = flow().log_shares(torch.tensor([[0, 0], [1, 0], [2, 1]], dtype=torch.float64))
    torch.testing.assert_close(shares[:, 0].exp(), expected.double())
    torch.testing.assert_close(shares[0, 1].exp(), torch.tensor(1.5 / 5, dtype=torch.float64))


def test_numbers_start_nearly_independent_and_standard_normal():
    flow = Mixed([], 3, **SIZES).double().eval()
    flow.start_smoothly()
    z = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).double()
    rows = torch.stack([z, torch.zeros_like(z), torch.zeros_like(z)], -2).flatten(1)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(z).mean()
    assert (flow().log_shares(rows).mean() - expected).abs() < 0.1


def test_training_improves_on_independent_parts():
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(0, 3, (600,), generator=generator).float()
    status = (torch.rand(600, generator=generator) < 0.3).float()
    number = (first + 0.3 * torch.randn(600, generator=generator)).masked_fill(status == 1, nan)
    zeros = torch.zeros(600)
    rows = torch.stack([first, status, (first > 0).float(), number, zeros, zeros], -1)
    torch.manual_seed(0)
    flow = Mixed([3, 2, 2], 1, statuses=[1], **SIZES)
    flow.start_from(rows[:500])
    independent = flow.eval()().log_shares(rows[500:]).mean(0)
    settings = bnaf.TrainingSettings(steps=60, batch=100)
    record = bnaf.fit(flow, rows[:500], valid=rows[500:], settings=settings, progress=False)
    shares = flow.eval()().log_shares(rows[500:]).mean(0)
    assert shares[2] > independent[2] + 0.3  # of log 3 - (2 / 3) log 2 = 0.64 at most
    assert shares[3] > independent[3] + 0.3
    assert set(record.rates) == {"flow", "categories", "context"}


def test_a_table_with_impossible_values_is_refused(flow):
    rows = rows_of(flow, 5)
    rows[2, 0] = 3
    with pytest.raises(TableError, match=r"by column, counted from 0: 0 \(1\)"):
        bnaf.fit(flow, rows, progress=False)


def test_a_law_refuses_to_be_used_once_weights_have_changed(flow):
    law, rows = flow(), rows_of(flow, 3)
    with torch.no_grad():
        flow.categories.bias.add_(1)
    for use in (lambda: law.log_prob(rows), law.sample, law.expand((2,)).sample):
        with pytest.raises(StaleLawError, match="call the flow again"):
            use()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"levels": [], "numbers": 0}, "must have a part at least"),
        ({"levels": [2, 0], "numbers": 0}, "levels must be a whole number of at least 1"),
        ({"levels": [2], "numbers": -1}, "numbers must be a whole number of at least 0"),
        ({"levels": [2], "numbers": 1, "statuses": [1]}, "must name one of 1 discrete parts"),
        ({"levels": [2], "numbers": 2, "statuses": [0]}, "for each of 2 numbers"),
        (
            {"levels": [2], "numbers": 1, "category_dropout": 1.0},
            "category_dropout must be a number",
        ),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(SettingsError, match=message):
        Mixed(**settings)


@pytest.mark.parametrize(("small", "few"), [(True, True), (False, True), (False, False)])
def test_sizes_for_a_table_make_a_flow_of_its_parts(small, few):
    sizes = Mixed.sizes_for_parts([4, 3], 2, small=small, few=few, given=1)
    flow = Mixed([4, 3], 2, context_numbers=1, **sizes)
    assert flow.settings | sizes == flow.settings
    more = Mixed.sizes_for_parts([2] * 60, 2, small=small, few=few)
    assert more["category_width"] > sizes["category_width"]


def test_rows_of_another_width_are_refused(flow):
    with pytest.raises(ShapeError, match="expects 9 features"):
        flow().log_prob(torch.zeros(4, 8, dtype=torch.float64))


def test_parts_of_as_many_levels_keep_their_places():
    network = CategoryNetwork([3, 2, 3, 2], 2, hidden_layers=0, width=1).double()
    levels = torch.tensor([[0, 0, 0, 0], [1, 0, 1, 1], [0, 1, 2, 0], [2, 1, 2, 1.0]])
    network.start_at(levels.double())
    for part, count in enumerate(network.levels):
        seen = torch.bincount(levels[:, part].long(), minlength=count) + 0.5
        found = network.log_probs(torch.zeros(6).double(), (), part).exp()
        torch.testing.assert_close(found, (seen / seen.sum()).double())


def test_what_follows_an_impossible_number_does_not_undo_it():
    flow = Mixed(levels=[2], numbers=2, statuses=[-1, -1]).double()
    with torch.no_grad():
        for weights in flow.parameters():
            weights.normal_()
    rows = [[1, x, 0, 0, end, 0, end] for x in (1e160, 1e300) for end in (0.1, 0.5)]
    assert flow().log_prob(torch.tensor(rows, dtype=torch.float64)).isneginf().all()
