"""What was published of the five tables, read from ``settings/density/published.toml``."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class PublishedScore(NamedTuple):
    """A test log-likelihood in nats, and its deviation over runs where that is told."""

    mean: float
    deviation: float | None

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{spread}"


@cache
def _facts() -> dict[str, Any]:
    path = files("bnaf.studies") / "settings" / "density" / "published.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def set_titles() -> dict[str, str]:
    """Return what the tables are called in print, by name."""
    return dict(_facts()["sets"])


def model_names() -> list[str]:
    """Return the names of the models that are listed, in the order of the paper."""
    return list(_facts()["models"])


def model_title(name: str) -> str:
    """Return what a model is called in print; its name where it is not listed."""
    return str(_facts()["models"].get(name, {}).get("title", name))


def model_source(name: str) -> str | None:
    """Return where the numbers of a model are from; ``"paper"`` for the paper's own Table 1."""
    source = _facts()["models"].get(name, {}).get("source", "none")
    return None if source == "none" else str(source)


def model_note(name: str) -> str | None:
    """Return what is to be said of the numbers of a model, if anything."""
    note = _facts()["models"].get(name, {}).get("note")
    return None if note is None else str(note).strip()


def published_score(model: str, name: str) -> PublishedScore | None:
    """Return the number of a model on a table, where there is one.

    Example:
        >>> str(published_score("bnaf-paper", "bsds300"))
        '157.36 ± 0.03'
    """
    numbers = _facts()["models"].get(model, {}).get(name)
    if numbers is None:
        return None
    return PublishedScore(numbers[0], numbers[1] if len(numbers) > 1 else None)


class Naf(NamedTuple):
    """Weights of NAF-DDSF on a table, and the paper's quotient by those of B-NAF."""

    flows: int
    weights: int
    quotient: float


def published_naf(name: str) -> list[Naf]:
    """Return what was published of NAF-DDSF on a table, for 5 and for 10 flows."""
    naf = _facts()["naf"]
    return [
        Naf(*numbers)
        for numbers in zip(naf["flows"], naf["weights"][name], naf["quotients"][name], strict=True)
    ]
