"""Runs the command line in a process of its own, as users do."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, Final

from tests.contract.fork_server import ForkServer
from tests.servers import ROOT

COMMAND: Final = (sys.executable, "-m", "tampu")
LIMIT_S: Final = 30.0
# Modules are compiled once for all commands, even if tests write no bytecode next to them.
_COMPILED: Final = ROOT / ".pytest_cache" / "compiled"
_LEFT_OUT: Final = ("TAMPU_URL", "PYTHONDONTWRITEBYTECODE", "NO_COLOR", "FORCE_COLOR")
_MEASURED: Final = "COVERAGE_PROCESS_CONFIG" in os.environ
"""Whether coverage is measured: not in forks of a process, only in programs that are started."""
_forks: Final = ForkServer()


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever it printed
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def environment(url: str | None, columns: int = 80) -> dict[str, str]:
    """The environment of a command: its server, its width, and nothing that changes its output."""
    ours = {"COLUMNS": str(columns), "PYTHONPYCACHEPREFIX": str(_COMPILED)}
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    return kept | ours | ({} if url is None else {"TAMPU_URL": url})


async def tampu(
    *args: str, url: str | None = None, typed: str = "", columns: int = 80
) -> CommandResult:
    """Run `tampu` with arguments; `typed` is its standard input."""
    run = _run_anew if _MEASURED else _run
    return await asyncio.to_thread(run, args, environment(url, columns), typed)


def _run_anew(args: tuple[str, ...], env: dict[str, str], typed: str) -> CommandResult:
    command = [*COMMAND, *args]
    done = subprocess.run(
        command, env=env, input=typed, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def _run(args: tuple[str, ...], env: dict[str, str], typed: str) -> CommandResult:
    with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
        stdin.write(typed.encode())
        stdin.seek(0)
        streams = [each.fileno() for each in (stdin, stdout, stderr)]
        code = _forks.run(args, env, streams, limit_s=LIMIT_S)
        stdout.seek(0)
        stderr.seek(0)
        return CommandResult(code, stdout.read().decode(), stderr.read().decode())
