"""Runs the command line as users do, in its own process."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any, Final

from tests.servers import ROOT

COMMAND: Final = (sys.executable, "-m", "tampu.cli")
LIMIT_S: Final = 30.0
# Modules are compiled once for all commands, even if tests write no bytecode next to them.
_COMPILED: Final = ROOT / ".pytest_cache" / "compiled"
_LEFT_OUT: Final = ("TAMPU_URL", "PYTHONDONTWRITEBYTECODE", "NO_COLOR", "FORCE_COLOR")


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
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *args,
        env=environment(url, columns),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate(typed.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return CommandResult(process.returncode, out.decode(), err.decode())
