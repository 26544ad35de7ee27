"""p(y | x) at equal time: our default beside boosting, forests, networks and zuko's flows.

python benchmarks/conditional.py --data DIR

DIR holds `tables` with protein, elevators, airfoil, wine_red, parkinsons, concrete and diamonds,
as CSV files, compressed or not.

Seven tables, of each its last column given the others (of diamonds the price given the numeric
columns), a tenth of the rows to test, chosen by the seed. Every run has a process of its own, two
threads, and as many seconds to train as it is given; those that end by themselves end earlier. Of
each: test nats in the units of y with their standard error, CRPS and pinball loss of 99 quantiles,
coverage of intervals, and seconds. Where y has few values (wine 6, elevators 61) a density can be
as high as it likes there, so that nats are those of the mass of a value's cell over its width.
Methods that give quantiles alone get the density of a piecewise linear CDF with exponential tails.
Ours is `ConditionalFlowDensity(training={"seconds": ...})`, whose rate decays to the end of the
budget. What ends by itself, whatever its budget, is run once and told for all of them. Networks
and zuko's flows keep the weights that were best on a tenth of their rows, and end where 10,000
steps, of small tables 3,000 (a hundred passes and more), have not bettered them. Small tables have
five seeds, others two, of the longest budget one.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from shared import Record, measure_apart, read_records, use_two_threads, write_report

LEVELS = (np.arange(99) + 0.5) / 99
COVERAGES = (0.5, 0.9, 0.99)
SMALL = ("concrete", "airfoil", "wine", "parkinsons")  # up to 10,000 rows
TABLES = (*SMALL, "elevators", "protein", "diamonds")
FEW_ROWS = 10_000  # up to which networks are less patient
SEEDS, SEEDS_OF_OTHERS = 5, 2
MOST_VALUES = 100  # of a y whose cells are scored
LEAST_MASS = 1e-9
LEAST_SPREAD, LEAST_TAIL = 1e-4, 1e-2  # deviations of y between quantiles, and of a tail
UNTIMED = ("NGBoost", "NGBoost tuned", "quantile forest", "boosted quantiles")
BATCH, RATE, WIDTH = 256, 1e-3, 128  # of the networks
EVALUATE_EVERY = 100  # steps
PATIENCE, SMALL_PATIENCE = 10_000, 3_000  # steps without gain on held-out rows that end a run


class Law(NamedTuple):
    """What was fitted, as functions of rows: log-densities, probabilities, quantiles of levels."""

    log_prob: Callable[[np.ndarray, np.ndarray], np.ndarray]
    cdf: Callable[[np.ndarray, np.ndarray], np.ndarray]
    quantiles: Callable[[np.ndarray, np.ndarray], np.ndarray]


class Pairs(NamedTuple):
    """What is conditioned on, and what is modelled."""

    x: np.ndarray
    y: np.ndarray


def load(folder: Path, table: str) -> Pairs:
    """Read a table, as it is laid out or as it comes, with its last column to model."""
    import pandas as pd

    name = {"wine": "wine_red"}.get(table, table)
    path = next((folder / "tables").glob(f"{name}.csv*"), None)
    if path is None:
        raise SystemExit(f"{folder / 'tables'} must hold {name}.csv or {name}.csv.gz.")
    frame = pd.read_csv(path).select_dtypes("number")
    if table == "diamonds":
        frame = frame[["carat", "depth", "table", "x", "y", "z", "price"]]
    rows = frame.to_numpy(np.float64)
    return Pairs(rows[:, :-1], rows[:, -1])


def cut(rows: Pairs, seed: int, share: float = 0.1) -> tuple[Pairs, Pairs]:
    """Return most of the rows, and a share of them."""
    order = np.random.default_rng(seed).permutation(len(rows.y))
    count = int(share * len(order))
    chosen, rest = order[:count], order[count:]
    return Pairs(rows.x[rest], rows.y[rest]), Pairs(rows.x[chosen], rows.y[chosen])


def fit_bnaf(rows: Pairs, seconds: float, seed: int) -> Law:
    """Fit ours."""
    from bnaf.estimators import ConditionalFlowDensity

    law = ConditionalFlowDensity(training={"seconds": seconds}, random_state=seed).fit(*rows)
    return Law(law.log_prob, law.cdf, law.predict_quantiles)


def fit_ngboost(rows: Pairs, seconds: float, seed: int, *, tuned: bool = False) -> Law:
    """Fit NGBoost's Gaussians: 500 trees, or as many as held-out rows ask for."""
    from ngboost import NGBRegressor
    from scipy.stats import norm

    trees = 500
    if tuned:
        train, valid = cut(rows, seed)
        model = NGBRegressor(n_estimators=3000, random_state=seed, verbose=False)
        model.fit(*train, X_val=valid.x, Y_val=valid.y, early_stopping_rounds=50)
        trees = model.best_val_loss_itr + 1
    model = NGBRegressor(n_estimators=trees, random_state=seed, verbose=False).fit(*rows)

    @cache
    def law_of(x: bytes) -> dict[str, np.ndarray]:
        return model.pred_dist(np.frombuffer(x).reshape(-1, rows.x.shape[1])).params

    def law(x: np.ndarray) -> dict[str, np.ndarray]:
        return law_of(np.ascontiguousarray(x).tobytes())

    return Law(
        lambda x, y: norm.logpdf(y, **law(x)),
        lambda x, y: norm.cdf(y, **law(x)),
        lambda x, levels: np.stack([norm.ppf(level, **law(x)) for level in levels], 1),
    )


def through_quantiles(
    quantiles: Callable[[np.ndarray, np.ndarray], np.ndarray], deviation: float
) -> Law:
    """Return the law whose CDF is linear between 99 quantiles, with exponential tails.

    Quantiles that fall together, or nearly so, are kept apart by a share of the deviation of y.
    """

    def lay_out(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
        ends = np.sort(quantiles(x, LEVELS), 1)
        spread = np.maximum(np.diff(ends), LEAST_SPREAD * deviation)
        ends = np.c_[ends[:, :1], ends[:, :1] + np.cumsum(spread, 1)]
        place = (y[:, None] >= ends).sum(1)
        outer = ends[:, 5] - ends[:, 0], ends[:, -1] - ends[:, -6]  # tails go on as they came
        scale = np.where(place == 0, *outer) / np.log(LEVELS[5] / LEVELS[0])
        scale = np.maximum(scale, LEAST_TAIL * deviation)
        beyond = np.where(place == 0, ends[:, 0] - y, y - ends[:, -1]) / scale
        return ends, spread, place, scale, beyond

    def log_prob(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        _, spread, place, scale, beyond = lay_out(x, y)
        inner = np.log(1 / 99) - np.log(spread[np.arange(len(y)), np.clip(place - 1, 0, 97)])
        tail = np.log(LEVELS[0]) - np.log(scale) - beyond
        return np.where((place == 0) | (place == 99), tail, inner)

    def cdf(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        ends, _, place, _, beyond = lay_out(x, y)
        inner = np.array(
            [np.interp(value, line, LEVELS) for value, line in zip(y, ends, strict=True)]
        )
        tail = LEVELS[0] * np.exp(-np.maximum(beyond, 0))
        return np.where(place == 0, tail, np.where(place == 99, 1 - tail, inner))

    return Law(log_prob, cdf, quantiles)


def fit_forest(rows: Pairs, seconds: float, seed: int) -> Law:
    """Fit a quantile forest."""
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(
        n_estimators=300, min_samples_leaf=5, n_jobs=2, random_state=seed
    ).fit(*rows)
    return through_quantiles(
        lambda x, levels: model.predict(x, quantiles=list(levels)), rows.y.std()
    )


def fit_boosting(rows: Pairs, seconds: float, seed: int) -> Law:
    """Fit scikit-learn's gradient-boosted quantiles, 21 of them, and interpolate the others."""
    from scipy.special import ndtri
    from sklearn.ensemble import HistGradientBoostingRegressor

    known = np.array([0.005, *np.linspace(0.05, 0.95, 19), 0.995])
    models = [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=level, max_iter=300, learning_rate=0.05, random_state=seed
        ).fit(*rows)
        for level in known
    ]

    def quantiles(x: np.ndarray, levels: np.ndarray) -> np.ndarray:
        found = np.sort(np.stack([model.predict(x) for model in models], 1), 1)
        z = ndtri(np.clip(levels, 0.005, 0.995))
        return np.stack([np.interp(z, ndtri(known), line) for line in found])

    return through_quantiles(quantiles, rows.y.std())


def fit_network(rows: Pairs, seconds: float, seed: int, make: Any) -> Law:
    """Train a law of torch on standardised rows by Adam, with decay and held-out rows."""
    import copy

    import torch

    torch.manual_seed(seed)
    centre = rows.x.mean(0), rows.y.mean()
    scale = rows.x.std(0) + 1e-12, rows.y.std()

    def tensor(values: np.ndarray, index: int) -> Any:
        return torch.from_numpy(((values - centre[index]) / scale[index]).astype(np.float32))

    train, valid = cut(rows, seed)
    x, y, held_x, held_y = (
        *(tensor(train.x, 0), tensor(train.y, 1)[:, None]),
        *(tensor(valid.x, 0), tensor(valid.y, 1)[:, None]),
    )
    network = make(x.shape[1])
    adam = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=1e-4)
    best, best_loss, start = copy.deepcopy(network), math.inf, perf_counter()
    step = best_step = 0
    patience = SMALL_PATIENCE if len(rows.y) <= FEW_ROWS else PATIENCE
    while (spent := (perf_counter() - start) / seconds) < 1 and step < best_step + patience:
        adam.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * spent)) / 2
        chosen = torch.randint(len(x), (BATCH,))
        adam.zero_grad()
        loss = -network(x[chosen]).log_prob(y[chosen]).mean()
        if loss.isfinite():
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            adam.step()
        step += 1
        if step % EVALUATE_EVERY == 0:
            with torch.no_grad():
                held = -network(held_x).log_prob(held_y).mean().item()
            if held < best_loss:
                best_loss, best_step, best = held, step, copy.deepcopy(network)

    def log_prob(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            found = best(tensor(x, 0)).log_prob(tensor(y, 1)[:, None])
        return found.flatten().double().numpy() - np.log(scale[1])

    def cdf(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            found = torch_cdf(best(tensor(x, 0)), tensor(y, 1)[:, None])
        return found.flatten().double().numpy()

    def quantiles(x: np.ndarray, levels: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            draws = best(tensor(x, 0)).sample((2000,))[..., 0].double().numpy()
        return np.quantile(draws * scale[1] + centre[1], levels, axis=0).T

    return Law(log_prob, cdf, quantiles)


def torch_cdf(law: Any, y: Any) -> Any:
    """Return the probability of at most y under a mixture of Gaussians, or a flow of zuko."""
    import torch
    from torch.distributions import MixtureSameFamily

    if not isinstance(law, MixtureSameFamily):
        return torch.special.ndtr(law.transform(y))
    each = law.component_distribution.base_dist.cdf(y.unsqueeze(-2)).squeeze(-1)
    return (law.mixture_distribution.probs * each).sum(-1)


def make_mixture(inputs: int, components: int = 5) -> Any:
    """Return a mixture density network."""
    import torch
    from torch import nn
    from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                *(nn.Linear(inputs, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()),
                nn.Linear(WIDTH, 3 * components),
            )

        def forward(self, x: Any) -> Any:
            logits, means, scales = self.layers(x).chunk(3, -1)
            each = Normal(means.unsqueeze(-1), torch.exp(scales.clamp(-7, 7)).unsqueeze(-1))
            return MixtureSameFamily(Categorical(logits=logits), Independent(each, 1))

    return Mixture()


def fit_ensemble(rows: Pairs, seconds: float, seed: int) -> Law:
    """Train five Gaussian networks, a fifth of the time each, and average their densities."""
    laws = [
        fit_network(rows, seconds / 5, 10 * seed + k, lambda inputs: make_mixture(inputs, 1))
        for k in range(5)
    ]

    def log_prob(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        each = np.stack([law.log_prob(x, y) for law in laws])
        return np.logaddexp.reduce(each, 0) - np.log(len(laws))

    def quantiles(x: np.ndarray, levels: np.ndarray) -> np.ndarray:
        inner = (np.arange(400) + 0.5) / 400
        each = np.concatenate([law.quantiles(x, inner) for law in laws], 1)
        return np.quantile(each, levels, axis=1).T

    def cdf(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.mean([law.cdf(x, y) for law in laws], 0)

    return Law(log_prob, cdf, quantiles)


def make_zuko(name: str) -> Callable[[int], Any]:
    """Return what makes a conditional flow of zuko."""

    def make(inputs: int) -> Any:
        from torch.distributions import Distribution

        checked = Distribution._validate_args
        import zuko

        kind = getattr(zuko.flows, name)
        flow = kind(1, context=inputs, transforms=3, hidden_features=(WIDTH, WIDTH))
        Distribution.set_default_validate_args(checked)
        return flow

    return make


CONTESTANTS: dict[str, Callable[[Pairs, float, int], Law]] = {
    "bnaf": fit_bnaf,
    "NGBoost": fit_ngboost,
    "NGBoost tuned": lambda rows, seconds, seed: fit_ngboost(rows, seconds, seed, tuned=True),
    "quantile forest": fit_forest,
    "boosted quantiles": fit_boosting,
    "mixture network": lambda rows, seconds, seed: fit_network(rows, seconds, seed, make_mixture),
    "deep ensemble": fit_ensemble,
    "zuko NSF": lambda rows, seconds, seed: fit_network(rows, seconds, seed, make_zuko("NSF")),
    "zuko MAF": lambda rows, seconds, seed: fit_network(rows, seconds, seed, make_zuko("MAF")),
}


def nats_of(law: Law, test: Pairs, values: np.ndarray) -> np.ndarray:
    """Return log-densities of rows, or, where y has few values, log-masses over cells' widths."""
    densities = law.log_prob(*test)
    if len(values) > MOST_VALUES:
        return densities
    gaps = np.diff(values)
    ends = np.r_[values[0] - gaps[0] / 2, values[:-1] + gaps / 2, values[-1] + gaps[-1] / 2]
    cell = np.searchsorted(values, test.y)
    mass = law.cdf(test.x, ends[cell + 1]) - law.cdf(test.x, ends[cell])
    known = mass > LEAST_MASS  # far out, where a difference has no digits, densities are flat
    return np.where(known, np.log(np.where(known, mass, 1) / np.diff(ends)[cell]), densities)


def judge(law: Law, test: Pairs, values: np.ndarray) -> Record:
    """Return how good a law is."""
    import scoringrules

    nats = nats_of(law, test, values)
    quantiles = np.sort(law.quantiles(test.x, LEVELS), 1)
    crps = scoringrules.crps_quantile(test.y, quantiles, LEVELS)
    error = test.y[:, None] - quantiles
    pinball = np.maximum(LEVELS * error, (LEVELS - 1) * error).mean(1)
    count = len(test.y) ** 0.5
    record: Record = {"test": nats.mean(), "standard_error": nats.std() / count}
    record |= {"crps": crps.mean(), "crps_error": crps.std() / count, "pinball": pinball.mean()}
    for coverage in COVERAGES:
        levels = np.array([(1 - coverage) / 2, (1 + coverage) / 2])
        low, high = np.sort(law.quantiles(test.x, levels), 1).T
        record[f"coverage_{round(100 * coverage)}"] = ((test.y >= low) & (test.y <= high)).mean()
    return {name: float(value) for name, value in record.items()}


def run_case(folder: Path, table: str, library: str, seconds: float, seed: int) -> None:
    """Train once, and print the record as JSON."""
    use_two_threads()
    rows = load(folder, table)
    train, test = cut(rows, seed)
    start = perf_counter()
    law = CONTESTANTS[library](train, seconds, seed)
    spent = perf_counter() - start
    values = np.unique(rows.y)
    print(json.dumps(judge(law, test, values) | {"seconds": spent, "failure": None}), flush=True)


def show(record: Record) -> str:
    """Return a line of what is printed."""
    line = "{table:10} {library:17} {seed:4}"
    if record["failure"] is None:
        line += " {test:9.3f} ± {standard_error:.3f} {crps:9.4g} {coverage_50:8.3f}"
        line += " {coverage_90:6.3f} {coverage_99:6.3f} {seconds:8.0f}"
    else:
        line += " {failure}"
    return line.format_map(record)


def main() -> None:
    """Run every case that the report does not hold yet, and print as they come."""
    if sys.argv[1:2] == ["--case"]:
        folder, table, library, seconds, seed = sys.argv[2:]
        return run_case(Path(folder), table, library, float(seconds), int(seed))
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--seconds", type=float, nargs="+", default=[60, 300], help="of training")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=[*TABLES])
    parser.add_argument("--libraries", nargs="+", choices=[*CONTESTANTS], default=[*CONTESTANTS])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of small tables, at most")
    default = Path("results/conditional.json")
    parser.add_argument("--out", type=Path, default=default, help="JSON; runs it holds stay")
    options = parser.parse_args()
    records = read_records(options.out)
    names = ("budget", "table", "library", "seed")
    kept = {tuple(record[name] for name in names): record for record in records}
    print(
        "table      library           seed      test          CRPS   50 %    90 %   99 %  seconds"
    )
    for seconds, seed, table, library in product(
        options.seconds, range(options.seeds), options.tables, options.libraries
    ):
        longest = len(options.seconds) > 1 and seconds == max(options.seconds)
        if table not in SMALL and seed >= (1 if longest else SEEDS_OF_OTHERS):
            continue
        case = (seconds, table, library, seed)
        if case not in kept:
            others = [kept.get((budget, *case[1:])) for budget in options.seconds]
            known = next(filter(None, others), None) if library in UNTIMED else None
            record = known or measure_apart(
                __file__, [options.data, table, library, seconds, seed]
            )
            kept[case] = record | dict(zip(names, case, strict=True))
            write_report(options.out, [*kept.values()])
        print(show(kept[case]), flush=True)


if __name__ == "__main__":
    main()
