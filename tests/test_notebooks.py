"""Pages become notebooks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import read_cells

notebooks = pytest.importorskip("notebooks", reason="notebooks need the extra docs")

DOCS = Path(__file__).parents[1] / "docs"
PAGE = """# A page

See {doc}`models` and {class}`bnaf.BNAF`, or [training](training.md#objectives).

```python
rows = 6
```

<!-- not run: needs a friend -->
```python
friend(rows)
```

```python
print(rows * 7)
```
"""


def test_a_page_becomes_a_notebook_with_what_its_code_prints(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    command = [sys.executable, str(DOCS / "notebooks.py"), "--out", str(tmp_path / "out")]
    subprocess.run([*command, str(page)], check=True, capture_output=True, text=True)
    notebook = json.loads((tmp_path / "out" / "page.ipynb").read_text())
    text, _, friend, last = notebook["cells"]
    assert "[models](../models.md) and `bnaf.BNAF`" in "".join(text["source"])
    assert "[training](../training.md#objectives)" in "".join(text["source"])
    assert "Not run: needs a friend" in "".join(friend["source"])
    assert last["outputs"][0]["text"] == ["42\n"]


@pytest.mark.parametrize("name", ["tables", "models", "simulators"])
def test_the_notebook_of_a_guide_holds_all_of_its_code(name):
    page = (DOCS / f"{name}.md").read_text("utf-8")
    notebook = notebooks.make_notebook(page)
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    run = [cell for cell in read_cells(page) if cell.code and cell.reason is None]
    assert code == [cell.source.rstrip() for cell in run]


@pytest.mark.parametrize("name", ["tables", "models", "simulators"])
def test_the_text_of_a_notebook_needs_no_sphinx(name):
    notebook = notebooks.make_notebook((DOCS / f"{name}.md").read_text("utf-8"))
    text = "".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] != "code")
    assert not re.search(r"\{[\w:]+\}`|<!--", text)
