"""What `tampu version` does."""

import platform
from importlib.metadata import version as version_of

from tampu._version import __version__
from tampu.cli.screen import Screen
from tampu.cli.shared import Shared
from tampu.cli.show.grid import facts

_PARTS = ("redis", "hiredis", "msgspec")


async def version(shared: Shared) -> None:
    """Tell what is installed; no server is asked."""
    shape = {"tampu": __version__, "python": platform.python_version()}
    shape |= {name: version_of(name) for name in _PARTS}
    Screen(shared).show(shape, lambda: facts(list(shape.items())))
