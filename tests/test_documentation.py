"""What the documentation says is there, and nothing else; and its code runs."""

import pkgutil
import re
from pathlib import Path

import pytest
import torch
from pages import read_cells, run_page

import bnaf

ROOT = Path(__file__).parents[1]
API = ROOT / "docs" / "api.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
PROGRAMS = [
    page for page in PAGES if any(cell.code for cell in read_cells(page.read_text("utf-8")))
]
pages = pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.stem)


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


@pages
def test_the_code_of_a_page_runs_as_one_program(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with torch.compiler.set_stance("force_eager"):  # tests/flows/test_compile.py compiles
        run_page(page)


@pages
def test_code_that_is_not_run_says_why_and_is_python(page):
    for cell in read_cells(page.read_text("utf-8")):
        if cell.reason is not None:
            assert len(cell.reason.split()) > 1
            compile(cell.source, page.name, "exec")


def test_every_block_of_python_is_seen():
    for page in PAGES:
        text = page.read_text("utf-8")
        fences = re.findall(
            r"^ *(?:```|~~~) *(?:\{code-block\} *)?(?:python|py|pycon)\b", text, re.M
        )
        assert len(fences) == sum(cell.code for cell in read_cells(text)), page.name
