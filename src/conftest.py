"""What the collection of doctests leaves out: modules of libraries that are not installed."""

from importlib.util import find_spec

INTEGRATIONS = ("pyro", "sbi", "zuko")

collect_ignore = [
    f"bnaf/integrations/{name}.py" for name in INTEGRATIONS if find_spec(name) is None
]
