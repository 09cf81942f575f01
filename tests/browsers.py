"""The browser for the tests of the dashboard, and what looks for barriers in its pages.

`python -m tests.browsers` says whether all of it is there, and fetches it on a CI machine.
With `--install` it does so anywhere. `tests/selection.py` leaves out the tests where it is missing.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.servers import IN_CI

MARK: Final = "browser"
TITLE: Final = "browser (run make setup-browser)"

_NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_DEBIAN: Final = ("chromium-headless-shell", "chromium")  # the smaller one is not in every release
_AXE: Final = "axe-core@4.14.0"
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tampu-tests"
_LIMIT_S: Final = 600


@cache
def find_browser() -> Path | None:
    """Its program, if this machine has it. `TAMPU_BROWSER` names another."""
    named = os.environ.get("TAMPU_BROWSER")
    found = (shutil.which(name) for name in ([named] if named else _NAMES))
    return next((Path(each) for each in found if each), None)


def axe_script() -> Path:
    """Where the script that finds barriers is, once it was fetched."""
    return _CACHE / _AXE / "node_modules" / "axe-core" / "axe.min.js"


def is_there() -> bool:
    """Whether the tests in a browser can run."""
    return find_browser() is not None and axe_script().exists()


def install() -> str | None:
    """Fetch what is missing; the reason if that fails."""
    if find_browser() is None and (problem := _install_browser()) is not None:
        return problem
    return None if axe_script().exists() else _fetch_axe()


def _install_browser() -> str | None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return "there is no Chromium, and only root can install Debian's (apt-get install chromium)"
    _run("apt-get", "update", "-qq")
    for name in _DEBIAN:
        _run("apt-get", "install", "-qq", "-y", "--no-install-recommends", name)
        find_browser.cache_clear()
        if find_browser() is not None:
            return None
    return "apt-get cannot install Chromium"


def _fetch_axe() -> str | None:
    if shutil.which("npm") is None:
        return f"npm is missing, which fetches {_AXE}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(dir=_CACHE))
    try:
        _run("npm", "install", "--silent", "--ignore-scripts", "--prefix", str(made), _AXE)
        if not (made / "node_modules").exists():
            return f"npm cannot fetch {_AXE}"
        shutil.rmtree(_CACHE / _AXE, ignore_errors=True)
        made.rename(_CACHE / _AXE)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return None


def _run(*command: str) -> None:
    """Run a command. What it has done is looked at afterwards."""
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=_LIMIT_S)


def main(arguments: list[str]) -> int:
    """Print what is there; fail if it is not, and was asked for."""
    wanted = IN_CI or "--install" in arguments
    problem = install() if wanted else None if is_there() else "make setup-browser"
    print(f"  browser  {find_browser()}" if problem is None else f"  browser  missing: {problem}")  # noqa: T201
    return int(problem is not None and wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
