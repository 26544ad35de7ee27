r"""Which rates and sizes suit a posterior of the VAE study, by its bound on validation images.

A try is a posterior of the study, with words for what is otherwise than there: its rates
(`flow_rate`, `context_rate`) or settings of its flow. All start with the same encoder and decoder,
and have the training of the study for fewer epochs, the warm-up a third of them. Numbers are nats
per validation image. Every try has a process of its own and one thread.

    python benchmarks/posteriors.py --data data --out results/posteriors.json \\
        --tries gaussian bnaf-onto "bnaf-onto flow_rate=10 context_rate=0.03"
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shared import Record, measure_missing

RATES = ("flow_rate", "context_rate")


def read_try(words: str) -> Any:
    """Return the posterior that a try is of.

    Args:
        words: Its name in the study, then what is otherwise, as `flow_rate=10`.
    """
    from bnaf.studies.vae.plans import read_variants

    name, *changes = words.split()
    pairs = (change.split("=", 1) for change in changes)
    facts = {key: json.loads(value) for key, value in pairs}
    rates = {key: facts.pop(key) for key in RATES if key in facts}
    variant = read_variants()[name]
    return replace(variant, settings=dict(variant.settings) | facts, **rates)


def run_case(words: str, images: str, epochs: int, seed: int, data: Path) -> None:
    """Train once, and print the record as JSON."""
    import torch

    from bnaf.studies.vae.data import read_images
    from bnaf.studies.vae.plans import VaeTrial, read_image_sets
    from bnaf.studies.vae.running import train
    from bnaf.training.progress import Silence

    torch.set_num_threads(1)
    trial = VaeTrial(read_image_sets()[images], read_try(words), seed, epochs)
    parts = read_images(trial.images, data, split=trial.split)
    with TemporaryDirectory() as folder:
        training = train(trial, trial.build(), parts, Path(folder) / "run", Silence())
    course = [entry.valid for entry in training.history if entry.valid is not None]
    record: Record = {"valid": min(course), "failure": None, "steps": training.steps}
    record |= {"course": [round(value, 3) for value in course], "seconds": training.seconds}
    print(json.dumps(record), flush=True)


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="Tries of posteriors, by validation images.")
    parser.add_argument("--tries", nargs="+", default=["gaussian", "bnaf", "bnaf-onto"])
    parser.add_argument("--images", default="caltech", help="an image set of the study")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public files")
    parser.add_argument(
        "--out", type=Path, required=True, help="JSON; what it has is not run again"
    )
    return parser.parse_args()


def main() -> None:
    """Run every try that the report does not hold yet, and print as they come."""
    if sys.argv[1:2] == ["--case"]:
        words, images, epochs, seed, data = sys.argv[2:]
        return run_case(words, images, int(epochs), int(seed), Path(data))
    options = read_arguments()
    for words in options.tries:
        read_try(words)
    told = {"images": options.images, "epochs": options.epochs, "seed": options.seed}
    cases = [{"try": words} | told for words in options.tries]
    measure_missing(__file__, options.out, cases, options.data)


if __name__ == "__main__":
    main()
