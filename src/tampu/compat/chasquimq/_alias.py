"""Lets `tampu.compat.chasquimq` take the place of the package `chasquimq`.

After `sys.modules["chasquimq"] = tampu.compat.chasquimq`, Python would find the file of
`chasquimq.errors` in our folder and run it again under that name. Every class would then exist
twice, and a `Worker` would not recognise the other copy of `UnrecoverableError`. The finder in this
module returns the modules that are already loaded instead.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Final

_THEIRS: Final = "chasquimq"
_OURS: Final = "tampu.compat.chasquimq"


class ChasquimqFinder(MetaPathFinder):
    """Finds `chasquimq.x` as `tampu.compat.chasquimq.x`, if ours has taken the place of theirs."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec that loads our module, or None if this finder is not responsible."""
        package, _, name = fullname.partition(".")
        if package != _THEIRS or sys.modules.get(_THEIRS) is not sys.modules[_OURS]:
            return None
        ours = f"{_OURS}.{name}"
        if not name or find_spec(ours) is None:
            return None
        return ModuleSpec(fullname, _LoadedModule(import_module(ours)))


class _LoadedModule(Loader):
    """A loader that returns a module that is already loaded, unchanged."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # Python has just replaced it with the alias's


_finder: Final = ChasquimqFinder()


def install_finder() -> None:
    """Add the finder to Python's import system; safe to call again."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
