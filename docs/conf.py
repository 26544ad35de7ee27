"""Settings of the documentation: MyST pages, and an API reference read off the docstrings."""

from importlib.metadata import version as installed_version
from typing import Any

project = "bnaf"
author = "The bnaf developers"
copyright = "2026, The bnaf developers"
release = version = installed_version("bnaf")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_autodoc_typehints",
]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
always_document_param_types = True
always_use_bars_union = True
# the formatter of shapes below is a function, which Sphinx cannot keep between builds
suppress_warnings = ["config.cache"]

html_theme = "furo"
html_title = f"bnaf {release}"


def typehints_formatter(annotation: Any, config: Any) -> str | None:
    """Write a shape as it stands in the source; leave other types to the extension."""
    shape = getattr(annotation, "dim_str", None)
    if shape is None:
        return None
    kind, array = annotation.dtype.__name__, annotation.array_type.__name__
    return f'``{kind}[{array}, "{shape}"]``'


def set_bars_as_math(
    app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Set the plain ``log |det dy/dx|`` of a docstring as a formula: bars mark something else."""
    formula = r":math:`\log |\det \partial y / \partial x|`"
    lines[:] = [line.replace("log |det dy/dx|", formula) for line in lines]


def setup(app: Any) -> None:
    """Connect what is defined here to Sphinx."""
    app.connect("autodoc-process-docstring", set_bars_as_math)
