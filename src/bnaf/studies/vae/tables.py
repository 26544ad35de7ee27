"""The third table of the paper: its numbers and ours, and how many weights they take."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean, stdev
from typing import Any

from bnaf._random import private_draws
from bnaf.evaluation.scores import paired_error
from bnaf.studies.ledger import Record
from bnaf.studies.sheets import Sheet
from bnaf.studies.vae.plans import ImageSet, VaeTrial, read_image_sets, read_variants
from bnaf.studies.vae.running import count_amortised, count_weights

PAPER = "bnaf"  # the posterior that quotients and differences are taken to
NOTES = (
    "In nats, for Frey Faces bits per dimension; of several seeds the mean ± the deviation "
    "between them, of one ± the standard error over images.",
    "NLL: bound on all test images less what importance sampling adds on those that are counted; "
    "its standard error has a part from the bounds of all and one from the counted.",
    "Draws' error: the part of the NLL's error that comes from finitely many draws.",
    "Less B-NAF's: ± the standard error of the differences, image by image, of the first seeds; "
    "-ELBO over all test images, NLL over the counted alone; runs that were carried on, each as "
    "far as it came, are compared with each other.",
    "Seconds are of different machines and days, as `vae.json` says of each run.",
    "Omniglot is a stand-in here: its numbers compare posteriors, and not with the paper.",
)


@dataclass(frozen=True)
class Standing:
    """All seeds of one posterior on one image set, after so many epochs.

    Args:
        images: The image set.
        flow: Name of the posterior.
        epochs: Epochs that were asked for.
        records: Its runs, one for each seed.
    """

    images: ImageSet
    flow: str
    epochs: int
    records: tuple[Record, ...]

    def value(self, measure: str) -> tuple[float, float]:
        """Return a measure and its spread, in the unit of the table."""
        sign = -1 if measure == "elbo" else 1
        values = [sign * record["measures"][measure] / self.unit for record in self.records]
        errors = [record["measures"][f"{measure}_error"] / self.unit for record in self.records]
        return mean(values), stdev(values) if len(values) > 1 else errors[0]

    @property
    def sampling_error(self) -> float:
        """Part of the error of the NLL that comes from finitely many draws."""
        errors = [record["measures"]["sampling_error"] / self.unit for record in self.records]
        return math.hypot(*errors) / len(errors)

    @property
    def unit(self) -> float:
        """Nats of one unit: 1, or those of a bit per dimension."""
        kind = self.images.kind
        return 1.0 if kind.levels == 2 else kind.pixels * math.log(2)

    @property
    def trained(self) -> str:
        """Epochs, and how many it took to stop improving, where it did."""
        least = min(record["trained_epochs"] for record in self.records)
        return str(self.epochs) if least == self.epochs else f"{self.epochs} (ended at {least})"

    def as_dict(self) -> dict[str, Any]:
        """Return what stands in the table, by name."""
        (elbo, elbo_error), (nll, nll_error) = self.value("elbo"), self.value("nll")
        return {
            "dataset": self.images.name,
            "flow": self.flow,
            "epochs": self.epochs,
            "seeds": [record["seed"] for record in self.records],
            "negative_elbo": elbo,
            "negative_elbo_error": elbo_error,
            "nll": nll,
            "nll_error": nll_error,
            "sampling_error": self.sampling_error,
            "paper": list(self.images.paper.get(self.flow, ())),
            "test_images": self.records[0]["measures"]["rows"],
            "seconds_per_epoch": self.pace,
        }

    @property
    def paper(self) -> tuple[str, str]:
        """-ELBO and NLL in the paper, where it has them."""
        if self.flow not in self.images.paper:
            return "", ""
        elbo, elbo_spread, nll, nll_spread = self.images.paper[self.flow]
        return _spread(elbo, elbo_spread, 2), _spread(nll, nll_spread, 2)

    @property
    def pace(self) -> float:
        """Seconds of an epoch, validation included."""
        return mean(float(one["seconds"]) / int(one["trained_epochs"]) for one in self.records)


def collect_standings(records: Sequence[Record]) -> list[Standing]:
    """Return all that was measured, in the order of the files.

    Of several records of a run the best measured counts, of today's settings before others.
    """
    sets, variants = read_image_sets(), read_variants()
    groups: dict[tuple[str, str, int], dict[int, Record]] = {}
    for record in records:
        known = record["name"] in sets and record["flow"] in variants
        if not known:
            continue
        seeds = groups.setdefault((record["name"], record["flow"], record["epochs"]), {})
        other = seeds.get(record["seed"])
        images, variant = sets[record["name"]], variants[record["flow"]]
        stem = VaeTrial(images, variant, record["seed"], record["epochs"]).stem
        if other is None or _worth(record, stem) > _worth(other, stem):
            seeds[record["seed"]] = record
    places = {name: place for place, name in enumerate([*sets, *variants])}
    ordered = sorted(groups, key=lambda key: (places[key[0]], key[2], places[key[1]]))
    return [
        Standing(sets[name], flow, epochs, tuple(groups[name, flow, epochs].values()))
        for name, flow, epochs in ordered
    ]


def _worth(record: Record, stem: str) -> tuple[bool, int, str]:
    measures = record["measures"]
    return record["stem"] == stem, measures["rows"] * measures["samples"], record["date"]


def make_sheets(records: Sequence[Record]) -> list[Sheet]:
    """Return the tables of stored results: bounds and likelihoods, and numbers of weights."""
    standings = collect_standings(records)
    return [_results_sheet(standings), count_sheet()]


def stages_of(standings: Sequence[Standing], name: str) -> tuple[list[Standing], list[Standing]]:
    """Return the runs on an image set at the equal number of epochs, and those carried on.

    The number is that of the image set, or where no run has it the one that most runs have. Of a
    posterior that was carried on, the longest run counts.

    Args:
        standings: What was measured, of each image set the fewest epochs first.
        name: Name of the image set, of which there is one at least.
    """
    here = [one for one in standings if one.images.name == name]
    counts, own = Counter(one.epochs for one in here), here[0].images.epochs
    common = max(counts, key=lambda epochs: (counts[epochs], epochs))
    number = own if own in counts else common
    longest = {one.flow: one for one in here if one.epochs > number}
    return [one for one in here if one.epochs == number], list(longest.values())


def _results_sheet(standings: Sequence[Standing]) -> Sheet:
    headers = ("images", "posterior", "epochs", "seeds", "-ELBO", "paper", "NLL", "paper")
    more = (
        "-ELBO less B-NAF's",
        "NLL less B-NAF's",
        "test images",
        "draws",
        "draws' error",
        "s/epoch",
    )
    rows = []
    for name in dict.fromkeys(one.images.name for one in standings):
        for stage in stages_of(standings, name):
            ours = next((one for one in stage if one.flow == PAPER), None)
            rows += [_results_row(one, ours) for one in stage]
    title = "Table 3 of the paper: variational auto-encoders"
    return Sheet(title, (*headers, *more), rows, NOTES)


def _results_row(one: Standing, ours: Standing | None) -> tuple[str, ...]:
    digits = 2 if one.unit == 1.0 else 3
    elbo, nll = one.paper
    return (
        one.images.title,
        read_variants()[one.flow].title,
        one.trained,
        str(len(one.records)),
        _spread(*one.value("elbo"), digits),
        elbo,
        _spread(*one.value("nll"), digits),
        nll,
        *(_difference(one, ours, kept, digits) for kept in ("blocks", "log_likelihoods")),
        str(one.records[0]["measures"]["rows"]),
        str(one.records[0]["measures"]["samples"]),
        f"{one.sampling_error:.{digits + 1}f}",
        f"{one.pace:.1f}",
    )


def _spread(value: float, spread: float, digits: int) -> str:
    return f"{value:.{digits}f} ± {spread:.{digits}f}"


def _difference(one: Standing, other: Standing | None, kept: str, digits: int) -> str:
    """Return the mean difference of what is kept of the same images, first seed each."""
    if other is None or other is one:
        return ""
    runs = [run.records[0] for run in (other, one)]
    pair = [run["measures"].get(kept, ()) for run in runs]
    splits = {one.images.split(run["seed"]) for run in runs}
    if len(splits) > 1 or len(pair[0]) != len(pair[1]) or len(pair[0]) < 2:
        return ""
    first, second = pair
    gap = (mean(first) - mean(second)) / one.unit
    return _spread(gap, paired_error(first, second) / one.unit, digits)


@cache
def count_sheet() -> Sheet:
    """Return how many numbers and weights each posterior has, beside the paper's."""
    counts = {}
    for name, variant in read_variants().items():
        if variant.flow is not None:
            with private_draws(0):
                flow = variant.build_flow()
            counts[name] = count_amortised(flow), count_weights(flow), variant
    least_amortised, least_weights, _ = counts[PAPER]
    rows = [
        (
            variant.title,
            f"{amortised:,}",
            "" if variant.amortised is None else f"{variant.amortised:.1f}k",
            f"{amortised / least_amortised:.2f}",
            f"{weights:,}",
            f"{weights / least_weights:.2f}",
            "" if variant.weights_ratio is None else f"{variant.weights_ratio:.2f}",
        )
        for amortised, weights, variant in counts.values()
    ]
    headers = ("posterior", "numbers per image", "paper", "over B-NAF's")
    more = ("weights", "over B-NAF's", "paper")
    return Sheet("What the posteriors are made of", (*headers, *more), rows)
