"""What the documentation says is there, and nothing else."""

import pkgutil
import re
from pathlib import Path

import bnaf

API = Path(__file__).parents[1] / "docs" / "api.md"


def public_modules():
    """Return the modules that no underscore hides; those of the command line are its commands."""
    found = pkgutil.walk_packages(bnaf.__path__, "bnaf.")
    names = {module.name for module in found}
    return {
        name
        for name in names
        if not any(part.startswith("_") for part in name.split("."))
        and not name.startswith("bnaf.cli")
    }


def test_the_reference_lists_every_public_module_and_no_other():
    listed = set(re.findall(r"\.\. (?:auto|py:)?module:: (\S+)", API.read_text()))
    assert listed - {"bnaf"} == public_modules()
