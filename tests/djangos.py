"""Releases of Django: this environment's, and others in environments of their own.

`python -m tests.djangos` makes the environments and prints what is there. Django 6 needs Python
3.12, which is looked for on the path and among pyenv's. The source of a release, which has Django's
own tests, is fetched from PyPI into a cache. `tests/selection.py` leaves out what is missing.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.servers import IN_CI, ROOT

MARK: Final = "django6"
TITLE: Final = "Django 6 (run make djangos; needs Python 3.12 or newer)"

_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tampu-tests"
_MAKE_LIMIT_S: Final = 900
_OLDEST_PYTHON: Final = (3, 12)
_TOLD: Final = "import sys; print(*sys.version_info[:2])"


@dataclass(frozen=True, slots=True)
class DjangoRelease:
    """A release of Django, and the environment that has it."""

    version: str

    @property
    def home(self) -> Path:
        """The folder of the environment."""
        return ROOT / f".venv-django-{self.version}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.home / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """It is there once everything is installed."""
        return self.home / ".ready"

    @property
    def source(self) -> Path:
        """Where its own tests are."""
        return _CACHE / f"django-{self.version}" / "tests"


RELEASES: Final = (DjangoRelease("6.0"), DjangoRelease("6.1"))


def is_there() -> bool:
    """Whether the tests of Django 6 can run."""
    return all(each.stamp.exists() and each.source.exists() for each in RELEASES)


def make() -> str | None:
    """Make what is missing; the reason if that fails."""
    for each in RELEASES:
        try:
            problem = _make_environment(each) or _fetch_source(each)
        except (OSError, subprocess.SubprocessError) as error:
            problem = f"Django {each.version} cannot be installed ({type(error).__name__})"
        if problem is not None:
            return problem
    return None


@cache
def find_python() -> str | None:
    """An interpreter that Django 6 runs on."""
    return next((each for each in _interpreters() if _is_new_enough(each)), None)


def _interpreters() -> Iterator[str]:
    yield sys.executable
    for minor in (14, 13, 12):
        yield shutil.which(f"python3.{minor}") or ""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(map(str, root.glob("versions/3.*/bin/python")))


def _is_new_enough(python: str) -> bool:
    if not python:
        return False
    told = subprocess.run([python, "-c", _TOLD], capture_output=True, text=True, check=False)
    return told.returncode == 0 and tuple(map(int, told.stdout.split())) >= _OLDEST_PYTHON


def _make_environment(release: DjangoRelease) -> str | None:
    if release.stamp.exists():
        return None
    python = find_python()
    if python is None:
        return "there is no Python 3.12 or newer"
    _run(python, "-m", "venv", str(release.home))
    wanted = (f"django=={release.version}.*", "psycopg[binary]>=3.2")
    _pip(release, "install", *wanted, "--editable", f"{ROOT}[dashboard,django,embedded]")
    release.stamp.touch()
    return None


def _fetch_source(release: DjangoRelease) -> str | None:
    if release.source.exists():
        return None
    _CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=_CACHE) as folder:
        wanted = f"django=={release.version}.*"
        _pip(release, "download", "--no-deps", "--no-binary", ":all:", "-d", folder, wanted)
        (found,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(found) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = (each for each in Path(folder).iterdir() if each.is_dir())
        unpacked.rename(release.source.parent)
    return None


def _pip(release: DjangoRelease, *arguments: str) -> None:
    _run(str(release.python), "-m", "pip", "--quiet", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_MAKE_LIMIT_S)


def main() -> int:
    """Make what is missing and print the result; fail in CI if that is not possible."""
    problem = None if is_there() else make()
    names = ", ".join(each.version for each in RELEASES)
    print(f"  Django {names} {'there' if problem is None else f'missing: {problem}'}")  # noqa: T201
    return int(problem is not None and IN_CI)


if __name__ == "__main__":
    sys.exit(main())
