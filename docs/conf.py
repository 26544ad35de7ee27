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
exclude_patterns = ["_build", "notebooks"]
nitpicky = True
# names of other libraries: builds have no network, hence no inventories to find them in
nitpick_ignore_regex = [
    ("py:.*", r"(torch|numpy|matplotlib|sklearn|jaxtyping|pyro|sbi|zuko)\..*"),
    ("py:.*", r"(abc|collections|datetime|pathlib|typing)\..*"),
    ("py:.*", "Tensor|ndarray|Ellipsis"),  # as annotations spell them
    ("py:.*", r"bnaf\..*\._\w+\..*"),  # private bases, which have no page
]

myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3

autodoc_mock_imports = ["pyro", "sbi", "zuko"]  # which builds do without
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
always_document_param_types = True
always_use_bars_union = True
typehints_document_rtype_none = False  # it says nothing, and may part an example from its title
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
    for above, below in ("yx", "xy"):
        formula = rf":math:`\log |\det \partial {above} / \partial {below}|`"
        lines[:] = [line.replace(f"log |det d{above}/d{below}|", formula) for line in lines]


def take_as_text(
    app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Let Napoleon read an attribute's docstring as text: what ends in a colon is no type."""
    if kind in ("attribute", "data", "property") and lines:
        lines[0] = f": {lines[0]}"  # the type, which stands in the signature, is left empty


def name_public_bases(app: Any, name: str, thing: Any, options: Any, bases: list[type]) -> None:
    """Name what a private base derives from in place of it."""
    bases[:] = [shown for base in bases for shown in public_bases(base)]


def public_bases(base: type) -> list[type]:
    """Return a base, or what stands for it if it is private: the public ones it derives from."""
    if "._" not in base.__module__:
        return [base]
    return [shown for parent in base.__bases__ for shown in public_bases(parent)]


def setup(app: Any) -> None:
    """Connect what is defined here to Sphinx."""
    app.connect("autodoc-process-docstring", set_bars_as_math)
    app.connect("autodoc-process-docstring", take_as_text, priority=400)  # Napoleon has 500
    app.connect("autodoc-process-bases", name_public_bases)
