"""Which Python files have changed."""

import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

_LEFT_OUT: Final = {"__pycache__", "node_modules", "site-packages"}


def directory_of(target: str) -> Path:
    """Where the app's top module or package stands; of an installed package, itself."""
    top = target.partition(":")[0].partition(".")[0]
    # As the worker finds it, and without importing anything here.
    spec = PathFinder.find_spec(top, [os.getcwd(), *sys.path]) if top else None
    if spec is None or not spec.has_location or spec.origin is None:
        return Path.cwd()  # nothing yet, or a package without an __init__.py
    module = Path(spec.origin)
    home = module.parent.parent if spec.submodule_search_locations else module.parent
    return module.parent if home == Path(sysconfig.get_path("purelib")) else home


class Changes:
    """Looks at the files below a directory; virtual environments and hidden folders left out."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen = dict(_stamps(directory))

    def look(self) -> list[Path]:
        """The files that are new, gone or different since the last look."""
        before, self._seen = self._seen, dict(_stamps(self._directory))
        paths = before.keys() | self._seen.keys()
        return sorted(Path(each) for each in paths if before.get(each) != self._seen.get(each))


def _stamps(directory: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for folder, folders, files in os.walk(directory):
        folders[:] = [each for each in folders if _is_ours(os.path.join(folder, each), each)]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                try:
                    found = os.stat(path)
                except OSError:
                    continue  # gone since it was listed
                yield path, (found.st_mtime_ns, found.st_size)


def _is_ours(path: str, name: str) -> bool:
    hidden = name.startswith(".") or name in _LEFT_OUT
    return not hidden and not os.path.exists(os.path.join(path, "pyvenv.cfg"))
