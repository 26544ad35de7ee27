"""The studies at the command line: what was written down is still understood."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from bnaf.cli.app import app

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
