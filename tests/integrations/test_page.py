"""The code of docs/integrations.md runs as one program where all of its libraries are there."""

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


@pytest.mark.filterwarnings("ignore:Maximum number of epochs:UserWarning")
def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    for name in ("pyro", "sbi", "zuko"):
        pytest.importorskip(name, reason=f"{name} is not installed: make test-integrations")
    from pages import read_cells

    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    for cell in read_cells(PAGE.read_text("utf-8")):
        if cell.code:
            source = "\n" * (cell.line - 1) + cell.source
            exec(compile(source, str(PAGE), "exec"), namespace)
    assert len(namespace["losses"]) == 20
