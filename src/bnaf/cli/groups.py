"""Groups of commands, each of which is imported when it is first asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from keyword import iskeyword
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command


class CommandsOnFirstUse(Mapping[str, Any]):
    """Commands by their names, made of the modules of these names.

    A module holds beside its ``EXAMPLES`` a function of its own name, or a Typer group. A word
    that is one of Python's own has an underscore behind it there.

    Args:
        package: Where the modules are.
        names: What they are called.
    """

    def __init__(self, package: str, names: tuple[str, ...]) -> None:
        self.package, self.names = package, names
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Any:
        in_python = f"{name}_" if iskeyword(name) else name
        module = import_module(f"{self.package}.{in_python}")
        found = getattr(module, in_python)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(name, epilog=module.EXAMPLES)(found)
            return get_command(alone)
        group = get_command(found)
        group.name = name
        return group

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class LazyGroup(TyperGroup):
    """Group that imports no command but those that it needs."""

    package: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = CommandsOnFirstUse(self.package, self.names)  # type: ignore[assignment]
