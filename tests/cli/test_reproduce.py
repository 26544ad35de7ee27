"""The studies at the command line: what was written down is still understood."""

import json
import re
from pathlib import Path

import pytest
from typer import BadParameter
from typer.main import get_command

from bnaf.cli.app import app
from bnaf.cli.reproduce._options import read_seeds

ROOT = Path(__file__).parents[2]
STUDIES = ("toy", "energy", "density", "vae")
WRITTEN = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results").glob("*.json")),
    *sorted((ROOT / "src/bnaf/cli/reproduce").glob("*.py")),
]


def written_commands(study: str) -> set[str]:
    """Commands in the documentation, the help and the results, without what follows them."""
    pattern = re.compile(rf"bnaf reproduce {study}\b[^`\"\n#(]*")
    return {line.strip() for path in WRITTEN for line in pattern.findall(path.read_text())}


@pytest.mark.parametrize("study", STUDIES)
def test_commands_that_are_written_down_are_understood(study):
    command = get_command(app).commands["reproduce"].commands[study]
    lines = written_commands(study)
    assert len(lines) >= 4
    for line in lines:
        _, _, _, *words = line.split()
        command.make_context(study, words)  # which fails where an option is not known


def test_every_study_is_a_command_of_its_own():
    assert tuple(get_command(app).commands["reproduce"].commands) == STUDIES


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        (None, None),
        (["3"], [0, 1, 2]),
        (["1"], [0]),
        (["0,2"], [0, 2]),
        (["3,"], [3]),
        (["0,"], [0]),
        (["4", "5"], [4, 5]),
    ],
)
def test_a_number_counts_seeds_and_a_comma_lists_them(words, seeds):
    assert read_seeds(words) == seeds


@pytest.mark.parametrize("words", ["0", "a", "1,,2", ",", "-1", ""])
def test_what_is_neither_a_count_nor_a_list_of_seeds_is_refused(words):
    with pytest.raises(BadParameter, match="--seeds must be"):
        read_seeds([words])


@pytest.mark.parametrize("study", ["toy", "energy"])
def test_the_command_of_a_stored_run_has_its_seed_alone(study):
    for record in json.loads((ROOT / "results" / f"{study}.json").read_text())["records"]:
        words = record["command"].split()
        assert read_seeds([words[words.index("--seeds") + 1]]) == [record["seed"]]
