"""p(y | x) at equal time: our default beside boosting, forests, networks and zuko's flows.

python benchmarks/conditional.py --data DIR --seconds 60 --out results/conditional.json

Seven tables, of each its last column given the others (of diamonds the price given the numeric
columns), a tenth of the rows to test, chosen by the seed. Every run has a process of its own, two
threads, and as many seconds to train as it is given; those that end by themselves end earlier. Of
each: test nats in the units of y with their standard error, CRPS and pinball loss of 99 quantiles,
coverage of intervals, and seconds. Methods that give quantiles alone get the density of a
piecewise linear CDF with exponential tails. Ours is `ConditionalFlowDensity()`, whose budget is in
seconds where a table has more than 10,000 rows. What ends by itself, whatever its budget, is run
once and told for all of them. Networks and zuko's flows keep the weights that were best on a tenth
of their rows, and end where 10,000 steps have not bettered them. Small tables have five seeds,
others two, of the longest budget one.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
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
FEW_ROWS = 10_000  # up to which our fit ends by itself
SEEDS, SEEDS_OF_OTHERS = 5, 2
UNTIMED = ("NGBoost", "NGBoost tuned", "quantile forest", "boosted quantiles")
BATCH, RATE, WIDTH = 256, 1e-3, 128  # of the networks
EVALUATE_EVERY, PATIENCE = 100, 10_000  # steps; those without gain on held-out rows that end a run


class Law(NamedTuple):
    """What was fitted: log-densities of rows, and quantiles of levels (rows, levels)."""

    log_prob: Callable[[np.ndarray, np.ndarray], np.ndarray]
    quantiles: Callable[[np.ndarray, np.ndarray], np.ndarray]


class Pairs(NamedTuple):
    """What is conditioned on, and what is modelled."""

    x: np.ndarray
    y: np.ndarray


def load(folder: Path, table: str) -> Pairs:
    """Read a table, as it is laid out or as it comes, with its last column to model."""
    import pandas as pd

    names = {"wine": "wine_red"}
    path = next((folder / "tables").glob(f"{names.get(table, table)}.csv*"))
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

    training = {"seconds": seconds} if len(rows.y) > FEW_ROWS else None
    law = ConditionalFlowDensity(training=training, random_state=seed).fit(*rows)
    return Law(law.log_prob, law.predict_quantiles)


def fit_ngboost(rows: Pairs, seconds: float, seed: int, *, tuned: bool = False) -> Law:
    """Fit NGBoost's Gaussians: 500 trees, or as many as held-out rows ask for."""
    from ngboost import NGBRegressor
    from scipy.stats import norm

    if tuned:
        train, valid = cut(rows, seed)
        model = NGBRegressor(n_estimators=3000, random_state=seed, verbose=False)
        model.fit(*train, X_val=valid.x, Y_val=valid.y, early_stopping_rounds=50)
    else:
        model = NGBRegressor(random_state=seed, verbose=False).fit(*rows)

    def law(x: np.ndarray) -> dict[str, np.ndarray]:
        return model.pred_dist(x).params

    return Law(
        lambda x, y: norm.logpdf(y, **law(x)),
        lambda x, levels: np.stack([norm.ppf(level, **law(x)) for level in levels], 1),
    )


def through_quantiles(quantiles: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Law:
    """Return the law whose CDF is linear between 99 quantiles, with exponential tails."""

    def log_prob(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        ends = np.sort(quantiles(x, LEVELS), 1)
        spread = np.maximum(np.diff(ends), 1e-6 * np.ptp(ends))
        ends = np.c_[ends[:, :1], ends[:, :1] + np.cumsum(spread, 1)]
        place = (y[:, None] >= ends).sum(1)
        lines = np.arange(len(y))
        inner = np.log(1 / 99) - np.log(spread[lines, np.clip(place - 1, 0, 97)])
        outer = ends[:, 5] - ends[:, 0], ends[:, -1] - ends[:, -6]  # tails go on as they came
        scale = np.where(place == 0, *outer) / np.log(LEVELS[5] / LEVELS[0])
        beyond = np.where(place == 0, ends[:, 0] - y, y - ends[:, -1])
        tail = np.log(LEVELS[0]) - np.log(scale) - beyond / scale
        return np.where((place == 0) | (place == 99), tail, inner)

    return Law(log_prob, quantiles)


def fit_forest(rows: Pairs, seconds: float, seed: int) -> Law:
    """Fit a quantile forest."""
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(
        n_estimators=300, min_samples_leaf=5, n_jobs=2, random_state=seed
    ).fit(*rows)
    return through_quantiles(lambda x, levels: model.predict(x, quantiles=list(levels)))


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

    return through_quantiles(quantiles)


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
    while (spent := (perf_counter() - start) / seconds) < 1 and step < best_step + PATIENCE:
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

    def quantiles(x: np.ndarray, levels: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            draws = best(tensor(x, 0)).sample((2000,))[..., 0].double().numpy()
        return np.quantile(draws * scale[1] + centre[1], levels, axis=0).T

    return Law(log_prob, quantiles)


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

    return Law(log_prob, quantiles)


def make_zuko(name: str) -> Callable[[int], Any]:
    """Return what makes a conditional flow of zuko."""

    def make(inputs: int) -> Any:
        import zuko
        from torch.distributions import Distribution

        checked = Distribution._validate_args
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


def judge(law: Law, test: Pairs) -> Record:
    """Return how good a law is."""
    import scoringrules

    nats = law.log_prob(*test)
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
    train, test = cut(load(folder, table), seed)
    start = perf_counter()
    law = CONTESTANTS[library](train, seconds, seed)
    spent = perf_counter() - start
    print(json.dumps(judge(law, test) | {"seconds": spent, "failure": None}), flush=True)


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
    parser.add_argument("--out", type=Path, required=True, help="JSON; runs it holds stay")
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
            timed = library not in UNTIMED and (library != "bnaf" or table not in SMALL)
            others = [kept.get((budget, *case[1:])) for budget in options.seconds]
            known = None if timed else next(filter(None, others), None)
            record = known or measure_apart(
                __file__, [options.data, table, library, seconds, seed]
            )
            kept[case] = record | dict(zip(names, case, strict=True))
            write_report(options.out, [*kept.values()])
        print(show(kept[case]), flush=True)


if __name__ == "__main__":
    main()
