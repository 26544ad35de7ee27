"""Make notebooks of pages, and run them.

The Python blocks of a page become cells of code, all else becomes text. The notebook runs in an
empty folder, and is written with what its cells show, whole or not at all.

Run it from the root of the repository::

    python docs/notebooks.py --out docs/notebooks docs/tables.md docs/models.md
"""

import argparse
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from pages import Cell, read_cells

from bnaf._files import atomic_file

SECONDS = 600  # for a cell: torch.compile takes its time
COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
TITLED_PAGE = re.compile(r"\{doc\}`([^`<]+?) *<([\w/]+)>`")
PAGE = re.compile(r"\{doc\}`([\w/]+)`")
NAME = re.compile(r"\{\w+\}`~?([^`]+)`")
RELATIVE_LINK = re.compile(r"\]\((?!https?:|#)")


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="Make notebooks of pages, and run them.")
    parser.add_argument("pages", type=Path, nargs="+", help="pages in Markdown")
    parser.add_argument("--out", type=Path, required=True, help="folder for the notebooks")
    return parser.parse_args()


def plain_text(text: str) -> str:
    """Return text without what Sphinx alone understands, for a folder below that of the page."""
    text = RELATIVE_LINK.sub("](../", COMMENT.sub("", text))
    text = TITLED_PAGE.sub(r"[\1](../\2.md)", text)
    text = PAGE.sub(r"[\1](../\1.md)", text)
    return NAME.sub(r"`\1`", text).strip()


def make_cell(cell: Cell) -> NotebookNode:
    """Return a piece of a page as a cell; code that is not run as text that says why."""
    if not cell.code:
        return new_markdown_cell(plain_text(cell.source))
    if cell.reason is None:
        return new_code_cell(cell.source.rstrip())
    return new_markdown_cell(f"*Not run: {cell.reason}.*\n\n```python\n{cell.source}```")


def make_notebook(page: str) -> NotebookNode:
    """Return a page as a notebook that has not run."""
    cells = [make_cell(cell) for cell in read_cells(page)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same every time
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def run_notebook(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook with what its cells show, run in an empty folder."""
    with TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=SECONDS, resources=place, record_timing=False)
        return client.execute()


def main() -> None:
    """Write a notebook for each page."""
    arguments = read_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for page in arguments.pages:
        notebook = run_notebook(make_notebook(page.read_text(encoding="utf-8")))
        path = arguments.out / f"{page.stem}.ipynb"
        with atomic_file(path) as file:
            file.write(nbformat.writes(notebook).encode())
        print(path, flush=True)


if __name__ == "__main__":
    main()
