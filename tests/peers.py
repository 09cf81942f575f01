"""ChasquiMQ itself, in an environment of its own: for the interop tests and the benchmarks.

`python -m tests.peers` makes the environment and prints whether it is there. `tests/selection.py`
leaves out the tests that need it where it is missing.
"""

import subprocess
import sys
from typing import Final

from tests.servers import IN_CI, ROOT, Backend

PACKAGE: Final = "chasquimq==1.3.0"
NEEDS: Final = (8, 6)
"""The oldest Redis that it works on."""

_HOME: Final = ROOT / ".venv-peers"
PYTHON: Final = _HOME / "bin" / "python"
_STAMP: Final = _HOME / PACKAGE
_INSTALL: Final = ("-m", "pip", "install", "--quiet", PACKAGE, "uvloop")
_MAKE_LIMIT_S: Final = 300


def is_made() -> bool:
    """Whether the environment is there."""
    return _STAMP.exists()


def make_environment() -> str | None:
    """Make the environment if it is not there; the reason if that fails."""
    if is_made():
        return None
    for command in ((sys.executable, "-m", "venv", str(_HOME)), (str(PYTHON), *_INSTALL)):
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_MAKE_LIMIT_S)
        except (OSError, subprocess.SubprocessError) as error:
            return f"{PACKAGE} cannot be installed ({type(error).__name__})"
    _STAMP.touch()
    return None


def can_run_on(backend: Backend) -> bool:
    """Whether the server has the commands that ChasquiMQ needs; Valkey does not."""
    return backend.name.startswith("redis") and backend.version >= NEEDS


def main() -> int:
    """Make the environment and print the result; fail in CI if it cannot be made."""
    problem = make_environment()
    print(f"  {PACKAGE} {'there' if problem is None else f'missing: {problem}'}")  # noqa: T201
    return int(problem is not None and IN_CI)


if __name__ == "__main__":
    sys.exit(main())
