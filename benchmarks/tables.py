"""Write the tables of the README and of the documentation from the reports in results/.

    python benchmarks/tables.py

The text between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is replaced, in all pages or in
those that are named. What has no report yet is left as it is.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from shared import NETWORKS, Record

from bnaf.flows.registry import flow_named
from bnaf.studies.density.reproduction import read_results
from bnaf.studies.density.tables import NAF, NOTHING, density_sheet, weights_sheet
from bnaf.studies.plans import experiment_names, plan_trials, read_experiment
from bnaf.studies.sheets import write_markdown
from bnaf.studies.vae.plans import read_variants
from bnaf.studies.vae.tables import collect_standings, make_sheets

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGES = [
    ROOT / name
    for name in (
        "README.md",
        "docs/benchmarks.md",
        "docs/reproduction.md",
        "docs/integrations.md",
        "docs/flows.md",
        "docs/training.md",
    )
]
TITLES = {
    "mlp": "MLP",
    "bnaf": "bnaf",
    "bnaf plain": "bnaf, plain torch",
    "numpyro": "NumPyro (XLA)",
    "pyro": "Pyro",
    "flowjax": "FlowJAX (XLA)",
    "zuko": "zuko NAF",
}
STUDY_TITLES = {
    "glow": "Glow, 32 layers",
    "planar": "planar, K = 32",
    "planar-8": "planar, K = 8",
    "bnaf-paper": "B-NAF, the paper's settings",
    "bnaf": "B-NAF, our recipe",
}
QUALITY_TITLES = {
    "bnaf": "bnaf",
    "bnaf paper": "bnaf, the paper's settings",
    "NSF": "zuko NSF",
    "MAF": "zuko MAF",
}


def read(name: str) -> dict[str, Any]:
    """Return a report."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def make_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def describe(report: dict[str, Any]) -> str:
    """Return the command and the machine of a report."""
    machine = report["machine"]
    packages = ", ".join(f"{name} {machine[name]}" for name in ("torch", "jax") if machine[name])
    return (
        f"`python {report['command']}`, {machine['date'][:10]}, {machine['cpu']}, "
        f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}, {packages}."
    )


def show_ratio(record: Record | None) -> str:
    """Return a time as a multiple of the MLP's."""
    if record is None or record["failure"]:
        return "–"
    text = f"{record['ratio_to_mlp']:.2f}"
    return f"**{text}**" if record["library"] == "bnaf" else text


def training_table(name: str, *, short: bool = False) -> str:
    """Return the training steps of a report, the MLP in milliseconds, the others as multiples.

    Args:
        name: Which report.
        short: Whether to leave out plain torch, and all but the smallest batch.
    """
    report = read(name)
    found = {(r["network"], r["batch"], r["library"]): r for r in report["records"]}
    if short:
        least = min(key[1] for key in found)
        found = {k: r for k, r in found.items() if k[1] == least and k[2] != "bnaf plain"}
    batches, libraries = ([*dict.fromkeys(key[part] for key in found)] for part in (1, 2))
    others = [library for library in libraries if library != "mlp"]
    rows = [
        [
            network,
            f"{batch:,}",
            f"{found[network, batch, 'mlp']['milliseconds']:.1f} ms",
            *(show_ratio(found.get((network, batch, library))) for library in others),
        ]
        for batch in batches
        for network in NETWORKS
    ]
    headers = ["network", "batch", *(TITLES[library] for library in ("mlp", *others))]
    lines = [make_table(headers, rows), "", describe(report)]
    if "compile_seconds" in report:
        lines[-1] += f" Compiling the kernels took {report['compile_seconds']:.0f} s."
    return "\n".join(lines)


def sampling_table() -> str:
    """Return rows per second of scoring, sampling and the MLP."""
    report = read("sampling")
    found = {(r["network"], r["library"], r["operation"]): r for r in report["records"]}
    rows = []
    for network in dict.fromkeys(key[0] for key in found):
        speeds = [
            found[network, library, operation]["rows_per_second"]
            for library, operation in (
                ("mlp", "log_prob"),
                ("bnaf", "log_prob"),
                ("bnaf", "sample"),
            )
        ]
        mlp, scored, sampled = speeds
        latency = found[network, "bnaf", "sample"]["latency_milliseconds"]
        quotients = [f"**{scored / sampled:.2f}**", f"{mlp / sampled:.2f}", f"{latency:.2f} ms"]
        rows.append([network, *(f"{speed:,.0f}" for speed in speeds), *quotients])
    headers = ["network", "MLP forward, rows/s", "`log_prob`, rows/s", "`sample`, rows/s"]
    headers += ["`sample` / `log_prob` (time)", "`sample` / MLP (time)", "one sample"]
    return f"{make_table(headers, rows)}\n\n{describe(report)}"


def show_sampling(record: Record) -> str:
    """Return how fast a library samples, on how many rows, and why not on more."""
    failure = str(record["failure"] or "").split(". ")[0][:60]
    if not record.get("rows_per_second"):
        return f"– ({failure})"
    text = f"{record['rows_per_second']:,.0f} rows/s, "
    text += f"{record['time_over_log_prob']:.1f} × `log_prob`"
    if failure or record["rows"] < 10_000:
        rows = f"{record['rows']:,} row{'s' * (record['rows'] != 1)}"
        text += f" ({rows}{', then ' * bool(failure)}{failure})"
    if record.get("wrong_share"):
        text += f"; {record['wrong_share']:.0%} of draws off by more than 1e-4"
    return text


def rivals_sampling_table() -> str:
    """Return how other libraries sample."""
    report = read("rivals_sampling")
    samples = [r for r in report["records"] if r["operation"] == "sample"]
    libraries = [*dict.fromkeys(r["library"] for r in samples)]
    rows = [
        [network, *(show_sampling(r) for r in samples if r["network"] == network)]
        for network in dict.fromkeys(r["network"] for r in samples)
    ]
    table = make_table(["network", *(TITLES[library] for library in libraries)], rows)
    return f"{table}\n\n{describe(report)}"


def growth_tables() -> str:
    """Return how the cost of a row grows, and the peak memory of a step."""
    report = read("growth")
    costs = [r for r in report["records"] if "step" in r]
    peaks = [r for r in report["records"] if "mlp" in r]
    rows = [
        [
            f"{r['features']}",
            f"{r['width']}",
            *(f"{r[key]:.2f}" for key in ("step", "log_prob", "sample")),
        ]
        for r in costs
    ]
    headers = [
        "features",
        "width",
        "training step, µs/row",
        "`log_prob`, µs/row",
        "`sample`, µs/row",
    ]
    memory = [
        [
            r["network"],
            f"{r['batch']:,}",
            *(f"{r[key]:.1f}" for key in ("mlp", "bnaf native", "bnaf plain")),
            f"{r['bnaf native'] / r['mlp']:.2f}",
        ]
        for r in peaks
    ]
    titles = ["network", "batch", "MLP, MB", "bnaf, MB", "plain torch, MB", "bnaf / MLP"]
    return "\n\n".join([make_table(headers, rows), make_table(titles, memory), describe(report)])


def small_tables() -> str:
    """Return the held-out log-likelihoods of small tables, the best of each in bold."""
    report = read("small_tables")
    titles = ("bnaf", "gaussian", "mixture", "kernel", "linear")
    rows = []
    for table in dict.fromkeys(r["table"] for r in report["records"]):
        found = {r["density"]: r for r in report["records"] if r["table"] == table}
        best = max(r["mean"] for r in found.values())
        cells = [
            f"{mark}{found[title]['mean']:.2f}{mark} ± {found[title]['standard_error']:.2f}"
            if title in found
            else ""
            for title in titles
            for mark in ["**" if title in found and found[title]["mean"] == best else ""]
        ]
        sizes = [f"{found['bnaf']['rows']:,}", f"{found['bnaf']['columns']}"]
        rows.append(
            [table.replace("|", "\\|"), *sizes, *cells, f"{found['bnaf']['seconds']:.1f} s"]
        )
    headers = ["table", "rows", "columns", "bnaf", "Gaussian", "mixture", "kernel density"]
    headers += ["linear regression", "a fit of bnaf"]
    return f"{make_table(headers, rows)}\n\n{describe(report)}"


def loop_table() -> str:
    """Return what the training loop adds to a bare step."""
    report = read("loop")
    rows = [
        [
            r["network"],
            f"{r['bare_milliseconds']:.2f} ms",
            f"{r['loop_milliseconds']:.2f} ms",
            f"{100 * (r['ratio'] - 1):.1f} %",
        ]
        for r in report["records"]
    ]
    headers = ["network", "bare step", "step of the loop", "the loop adds"]
    return f"{make_table(headers, rows)}\n\n{describe(report)}"


def busy_table() -> str:
    """Return how long one fit takes beside busy loops, by how its threads wait."""
    report = read("busy")
    found = {(r["loops"], r["waiting"]): r["seconds"] for r in report["records"]}
    alone = found[0, "active"]
    rows = [
        [str(loops), *(f"{found[loops, how] / alone:.2f}" for how in ("active", "passive"))]
        for loops in sorted({loops for loops, _ in found})
    ]
    headers = ["busy loops beside it", "threads that spin", "threads that sleep"]
    return f"{make_table(headers, rows)}\n\n{describe(report)}"


def show_quality(records: Sequence[Record], best: float, *, short: bool) -> str:
    """Return the mean test log-likelihood over seeds, how it spreads, weights and steps."""
    tests = [r["test"] for r in records]
    text = f"{mean(tests):.2f}"
    text = f"**{text}**" if mean(tests) == best else text
    spread = stdev(tests) if len(tests) > 1 else records[0]["standard_error"]
    text += f" ± {spread:.2f}" + f" ({len(tests)} seeds)" * (len(tests) > 1)
    if short:
        return text
    steps = mean(r["steps"] for r in records)
    return f"{text}; {records[0]['weights']:,} weights, {steps:,.0f} steps"


def choose_rate(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the runs of each contestant; of learning rates, those of the best on test rows."""
    runs: dict[str, list[Record]] = {}
    for library in dict.fromkeys(r["library"] for r in records):
        found = [r for r in records if r["library"] == library and r["failure"] is None]
        title = library if library.startswith("bnaf") else library.split()[0]
        best = max((r["test"] for r in runs.get(title, [])), default=-math.inf)
        if found and max(r["test"] for r in found) > best:
            runs[title] = found
    return runs


def quality_table(*, short: bool = False) -> str:
    """Return test log-likelihoods after equal time, the best of each table in bold.

    Args:
        short: Whether to leave out weights and steps.
    """
    report = read("quality")
    by_table = {
        table: choose_rate([r for r in report["records"] if r["table"] == table])
        for table in dict.fromkeys(r["table"] for r in report["records"])
    }
    titles = [*dict.fromkeys(title for runs in by_table.values() for title in runs)]
    rows = []
    for table, runs in by_table.items():
        best = max(mean(r["test"] for r in records) for records in runs.values())
        cells = [
            show_quality(runs[title], best, short=short) if title in runs else "–"
            for title in titles
        ]
        rows.append([table, *cells])
    headers = ["table", *(QUALITY_TITLES[title] for title in titles)]
    return f"{make_table(headers, rows)}\n\n{describe(report)}"


def study_table(name: str) -> str:
    """Return what the flows of a study end above the least loss, means over seeds in nats."""
    found: dict[tuple[str, str], list[float]] = {}
    experiments = [read_experiment(name, one) for one in experiment_names(name)]
    planned = {run.stem for run in plan_trials(experiments)}
    records = [record for record in read(name)["records"] if record["run"] in planned]
    for record in records:
        key = record["name"], record["flow"]
        found.setdefault(key, []).append(record["measures"]["excess"])
    flows = [flow for flow in STUDY_TITLES if any(flow == key[1] for key in found)]
    rows = []
    for law in dict.fromkeys(key[0] for key in found):
        means = {flow: mean(found[law, flow]) for flow in flows}
        cells = [f"{value:.4f}" for value in means.values()]
        best = min(means.values())
        cells = [
            f"**{cell}**" if value == best else cell
            for cell, value in zip(cells, means.values(), strict=True)
        ]
        rows.append([law, *cells])
    table = make_table([name, *(STUDY_TITLES[flow] for flow in flows)], rows)
    minutes = sum(record["seconds"] for record in records) / 60
    machine, date = records[0]["machine"], max(record["date"] for record in records)[:10]
    return (
        f"{table}\n\n`bnaf reproduce {name}`, {date}, {machine}; {len(records)} runs, "
        f"{minutes:.0f} minutes in sum."
    )


def contexts_table() -> str:
    """Return what a context of eight columns costs, as ratios."""
    report, names = read("contexts"), ("step", "recipe", "amortised", "log_prob", "sample")
    rows = [
        [
            record["network"],
            f"{record['batch']:,}",
            f"{record['milliseconds']['step']:.1f} ms",
            *(f"{record[name]:.2f}" for name in names),
            f"{record['to_mlp']:.2f}",
        ]
        for record in report["records"]
    ]
    headers = ["network", "batch", "step without", "step", "recipe's step", "amortised step"]
    headers += ["`log_prob`", "`sample`", "step to MLP"]
    return f"{make_table(headers, rows)}\n\n{describe(report)}"


PUBLISHED_NGBOOST = {"protein": -2.81, "concrete": -3.04, "wine": -0.91}


def conditional_table(*, short: bool = False) -> str:
    """Return how every method does on every table, means over the seeds that were run.

    Args:
        short: Whether to show nats of the shortest budget alone.
    """
    report = read("conditional")
    records = report["records"]
    budgets = sorted({record["budget"] for record in records})
    lines: list[str] = []
    for budget in budgets[:1] if short else budgets:
        runs = [record for record in records if record["budget"] == budget]
        for title, show in CONDITIONAL_SHEETS[: 1 if short else None]:
            lines += [contest_sheet(f"{title}, {budget:g} s", runs, show), ""]
    if not short:
        told = ", ".join(f"{table} {nats:.2f}" for table, nats in PUBLISHED_NGBOOST.items())
        lines += [f"NGBoost's published nats, of other splits (protein in raw units): {told}.", ""]
    return "\n".join([*lines, describe(report)])


def contest_sheet(
    title: str, runs: Sequence[Record], show: Callable[[Sequence[Record]], str]
) -> str:
    """Return one number of every method and table; in brackets how many seeds, and failed ones."""
    tables, libraries = (
        [*dict.fromkeys(record[key] for record in runs)] for key in ("table", "library")
    )
    rows = []
    for library in libraries:
        cells = [library]
        for table in tables:
            mine = [run for run in runs if (run["table"], run["library"]) == (table, library)]
            done = [run for run in mine if run["failure"] is None]
            failed = f", {len(mine) - len(done)} failed" * (len(done) < len(mine))
            cells.append(f"{show(done)} ({len(done)}{failed})" if done else "–")
        rows.append(cells)
    return make_table([title, *tables], rows)


def show_nats(runs: Sequence[Record]) -> str:
    """Return test nats, with the standard error over rows and seeds."""
    errors = [run["standard_error"] for run in runs]
    error = math.sqrt(sum(error**2 for error in errors)) / len(errors)
    return f"{mean(run['test'] for run in runs):.3f} ± {error:.3f}"


def show_coverages(runs: Sequence[Record]) -> str:
    """Return the coverage of intervals in percent."""
    kinds = ("coverage_50", "coverage_90", "coverage_99")
    return " / ".join(f"{100 * mean(run[kind] for run in runs):.0f}" for kind in kinds)


CONDITIONAL_SHEETS: list[tuple[str, Callable[[Sequence[Record]], str]]] = [
    ("test nats", show_nats),
    ("CRPS", lambda runs: f"{mean(run['crps'] for run in runs):.4g}"),
    ("pinball loss", lambda runs: f"{mean(run['pinball'] for run in runs):.4g}"),
    ("coverage of 50 / 90 / 99 %", show_coverages),
    ("seconds", lambda runs: f"{mean(run['seconds'] for run in runs):.0f}"),
]


def mixed_tables(*, short: bool = False) -> str:
    """Return likelihood, samples and outliers of rows of every kind, means over seeds.

    Args:
        short: Whether to show likelihood and what trees tell samples by alone.
    """
    report = read("mixed")
    lines: list[str] = []
    for title, (question, name, show) in MIXED_SHEETS.items():
        asked = [run for run in report["records"] if run["question"] == question]
        known = {run["library"] for run in asked if name in run}
        runs = [run for run in asked if run["library"] in known]
        if runs and (not short or name in ("test", "auc")):
            lines += [contest_sheet(title, runs, show), ""]
    return "\n".join([*lines, describe(report)])


MIXED_SHEETS: dict[str, tuple[str, str, Callable[[Sequence[Record]], str]]] = {
    "test nats per row": ("rows", "test", show_nats),
    "AUC of trees that tell samples from test rows": (
        *("rows", "auc"),
        lambda runs: f"{mean(run['auc'] for run in runs):.3f}",
    ),
    "Column Shapes / Column Pair Trends, %": (
        *("rows", "shapes"),
        lambda runs: " / ".join(
            f"{100 * mean(run[name] for run in runs):.1f}" for name in ("shapes", "trends")
        ),
    ),
    "test score of trees grown on samples": (
        *("rows", "usefulness"),
        lambda runs: f"{mean(run['usefulness'] for run in runs):.3f}",
    ),
    "seconds to fit": ("rows", "seconds", lambda runs: f"{mean(r['seconds'] for r in runs):.0f}"),
    "AUC of outliers, among the rows of the fit / not": (
        *("outliers", "auc_among"),
        lambda runs: " / ".join(
            f"{mean(run[name] for run in runs):.3f}" for name in ("auc_among", "auc_without")
        ),
    ),
}


def integration_table(name: str, case: str, contestant: str, columns: dict[str, str]) -> str:
    """Return what contestants come to in every case: means over seeds, and the spread of the mean.

    Args:
        name: Of the report.
        case: What the cases of its records are called.
        contestant: What contestants are called.
        columns: Number formats by what is shown.
    """
    report = read(name)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in report["records"]:
        groups.setdefault((record[case], record[contestant]), []).append(record)
    rows = [
        [
            *keys,
            *(
                show_spread([record[column] for record in records], form)
                for column, form in columns.items()
            ),
            str(len(records)),
        ]
        for keys, records in groups.items()
    ]
    titles = [column.replace("_", " ") for column in columns]
    return "\n".join(
        [make_table([case, contestant, *titles, "seeds"], rows), "", describe(report)]
    )


def show_spread(values: Sequence[float], form: str) -> str:
    """Return a mean over seeds with its standard error, where there are several."""
    error = f" ± {stdev(values) / math.sqrt(len(values)):{form}}" if len(values) > 1 else ""
    return f"{mean(values):{form}}{error}"


def density_tables() -> str:
    """Return Tables 1 and 2 of the paper beside ours, and the picture where there is one."""
    sheets = write_markdown(read_results(RESULTS).sheets)
    return "\n\n".join([*density_picture("../results"), sheets]).strip()


def density_picture(folder: str) -> list[str]:
    """Return the picture of all runs, as seen from a page, where there is one."""
    if not (RESULTS / "density.png").exists():
        return []
    return [f"![Log-likelihood over time of all flows]({folder}/density.png)"]


def density_short() -> str:
    """Return Table 1 of the tables that were run, the quotients of Table 2, and the picture."""
    standings = read_results(RESULTS).standings
    sheet = density_sheet(standings)
    if not standings:
        return f"{sheet.notes[-1]}\n\n{quotients_table()}"
    titles = {header.removesuffix(", here") for header in sheet.headers}
    kept = [
        place
        for place, header in enumerate(sheet.headers)
        if place == 0 or header.removesuffix(", published") in titles or header.endswith(", here")
    ]
    rows = [[row[place] for place in kept] for row in sheet.rows]
    shown = [row for row in rows if any(cell != NOTHING for cell in row[1:])]
    table = make_table([sheet.headers[place] for place in kept], shown)
    return "\n\n".join([*density_picture("results"), table, *sheet.notes, quotients_table()])


def quotients_table() -> str:
    """Return the quotients of Table 2: weights of NAF-DDSF as published by those of B-NAF."""
    sheet = weights_sheet()
    kept = [0, *(i for i, one in enumerate(sheet.headers) if one in ("quotient", "in the paper"))]
    headers = ["NAF-DDSF / B-NAF, weights"]
    headers += [f"{flows} flows{which}" for flows in NAF for which in ("", ", in the paper")]
    return make_table(headers, [[row[place] for place in kept] for row in sheet.rows])


def rates_table() -> str:
    """Return the rate that each flow brings, and on each law the best one and what it gains."""
    report = read("rates")
    done = [record for record in report["records"] if record["failure"] is None]
    laws = [*dict.fromkeys(record["law"] for record in done)]
    rows = []
    for flow, budget in dict.fromkeys((r["flow"], r["budget"]) for r in done):
        alike = [r for r in done if (r["flow"], r["budget"]) == (flow, budget)]
        own = flow_named(flow).learning_rate
        cells = [flow, f"{budget:g}", f"{own:g}"]
        for law in laws:
            found = {record["rate"]: record["valid"] for record in alike if record["law"] == law}
            best = max(found, key=lambda rate: found[rate]) if found else None
            cells.append(NOTHING if best is None else f"{best:g}")
            gained = best is not None and own in found
            cells.append(f"{found[best] - found[own]:.3f}" if gained else NOTHING)
        rows.append(cells)
    headers = ["flow", "seconds", "its rate"]
    headers += [text for law in laws for text in (f"best on {law}", "gains, nats")]
    return f"{make_table(headers, rows)}\n\n{describe(report)}"


def sizes_table() -> str:
    """Return what each size of our network reaches on each law, and in how many seconds."""
    report = read("sizes")
    done = [record for record in report["records"] if record["failure"] is None]
    tried = sorted({record["sizes"] for record in done}, key=lambda one: (len(one), one))
    rows = []
    for case in dict.fromkeys((r["law"], r["rows"], r["budget"], r["seed"]) for r in done):
        law, count, budget, seed = case
        found = {
            r["sizes"]: f"{r['valid']:.3f} ({r['seconds']:.0f} s)"
            for r in done
            if (r["law"], r["rows"], r["budget"], r["seed"]) == case
        }
        limit = f"{budget:g} s" if budget else "the recipe's steps"
        cells = [law, f"{count:,}", limit, str(seed)]
        rows.append([*cells, *(found.get(sizes, NOTHING) for sizes in tried)])
    headers = ["law", "rows", "budget", "seed", *tried]
    return f"{make_table(headers, rows)}\n\n{describe(report)}"


def mechanisms_tables() -> str:
    """Return what each context mechanism reaches on each table, and charges by seed."""
    report = read("mechanisms")
    done = [record for record in report["records"] if record["failure"] is None]

    def rows_by(records: Sequence[Record], column: str) -> str:
        columns = [*dict.fromkeys(record[column] for record in records)]
        found = {(r["case"], r[column]): f"{r['valid']:.3f}" for r in records}
        rows = [
            [case, *(found.get((case, one), NOTHING) for one in columns)]
            for case in dict.fromkeys(record["case"] for record in records)
        ]
        return make_table(["held-out nats", *(f"{column} {one}" for one in columns)], rows)

    charges = [record for record in done if record["table"] == "wa_churn"]
    others = [record for record in done if record["table"] != "wa_churn"]
    return f"{rows_by(others, 'table')}\n\n{rows_by(charges, 'seed')}\n\n{describe(report)}"


def vae_tables() -> str:
    """Return Table 3 of the paper and the numbers of weights, with the curves above."""
    path = RESULTS / "vae.json"
    records = json.loads(path.read_text())["records"]
    curves = "![-ELBO of validation images over epochs](../results/vae.png)"
    return f"{curves}\n\n{write_markdown(make_sheets(records)).rstrip()}"


def vae_short() -> str:
    """Return what all posteriors have of Table 3 after an equal number of epochs."""
    records = json.loads((RESULTS / "vae.json").read_text())["records"]
    standings = [one for one in collect_standings(records) if one.epochs == one.images.epochs]
    names = list(dict.fromkeys(one.images.name for one in standings))
    found = {(one.images.name, one.flow): one for one in standings}
    titles = {one.images.name: f"{one.images.title}, {one.epochs} epochs" for one in standings}
    rows = []
    for flow, variant in read_variants().items():
        if not any((name, flow) in found for name in names):
            continue
        cells = [variant.title]
        for name in names:
            one = found.get((name, flow))
            digits = 2 if one is None or one.unit == 1.0 else 3
            values = [] if one is None else [one.value("elbo")[0], one.value("nll")[0]]
            published = [] if one is None else one.images.paper.get(flow, ())[::2]
            cells += [
                " / ".join(f"{value:.{digits}f}" for value in values) or NOTHING,
                " / ".join(f"{value:.2f}" for value in published) or NOTHING,
            ]
        rows.append(cells)
    headers = ["-ELBO / NLL"]
    for name in names:
        headers += [titles[name], "paper, up to 2,000 epochs"]
    return make_table(headers, rows)


TABLES: dict[str, Callable[[], str]] = {
    "contexts": contexts_table,
    "conditional": conditional_table,
    "conditional-short": lambda: conditional_table(short=True),
    "mixed": mixed_tables,
    "mixed-short": lambda: mixed_tables(short=True),
    "training": lambda: training_table("training"),
    "rivals-training": lambda: training_table("rivals_training"),
    "rivals-training-short": lambda: training_table("rivals_training", short=True),
    "sampling": sampling_table,
    "rivals-sampling": rivals_sampling_table,
    "growth": growth_tables,
    "small-tables": small_tables,
    "loop": loop_table,
    "busy": busy_table,
    "quality": quality_table,
    "quality-short": lambda: quality_table(short=True),
    "toy": lambda: study_table("toy"),
    "energy": lambda: study_table("energy"),
    "pyro": lambda: integration_table(
        "pyro_guides", "model", "guide", {"loss": ".4f", "seconds": ".0f"}
    ),
    "sbi": lambda: integration_table(
        "simulators", "task", "estimator", {"log_q": ".3f", "c2st": ".3f", "seconds": ".0f"}
    ),
    "rates": rates_table,
    "sizes": sizes_table,
    "mechanisms": mechanisms_tables,
    "vae": vae_tables,
    "vae-short": vae_short,
    "density": density_tables,
    "density-short": density_short,
}


def main() -> None:
    """Replace the tables of the pages that are named, or of all."""
    for path in [Path(name) for name in sys.argv[1:]] or PAGES:
        text = path.read_text()
        for name, table in TABLES.items():
            begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
            if begin not in text:
                continue
            try:
                replacement = f"{begin}\n{table()}\n{end}"
            except FileNotFoundError as error:
                print(f"{path.name}: {name} is left as it is, without {error.filename}")
                continue
            between = re.compile(f"{begin}.*?{end}", re.DOTALL)
            text = between.sub(lambda _, new=replacement: new, text)
        path.write_text(text)


if __name__ == "__main__":
    main()
