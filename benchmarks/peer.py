"""ChasquiMQ as a rival: the real package, in an environment and in processes of its own."""

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.servers import RunningServer

NAME: Final = "ChasquiMQ"
PACKAGE: Final = "chasquimq==1.3.0"
NEEDS: Final = (8, 6)

_ROOT: Final = Path(__file__).resolve().parent.parent
_HOME: Final = _ROOT / ".venv-peers"
_PYTHON: Final = _HOME / "bin" / "python"
_STAMP: Final = _HOME / PACKAGE
_MAKE_LIMIT_S: Final = 300
_RUN_LIMIT_S: Final = 120


@dataclass(frozen=True, slots=True)
class Peer:
    """The rival's programs under benchmarks/peers, run with its own Python."""

    python: Path
    url: str

    async def run(self, program: str, **asked: object) -> Any:  # noqa: ANN401 - what it printed
        """Run a program to its end; what it measured."""
        process = await asyncio.create_subprocess_exec(
            self.python,
            "-m",
            f"benchmarks.peers.chasquimq_{program}",
            json.dumps({"url": self.url, **asked}),
            cwd=_ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_RUN_LIMIT_S):
                told, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        if process.returncode != 0:
            raise RuntimeError(f"{NAME}'s {program} ended with {process.returncode}")
        return json.loads(told)


def find_peer(server: RunningServer) -> Peer | None:
    """The rival on this server; None, and a line that says why, if it cannot be had."""
    problem = _unfit(server) or _made()
    if problem is not None:
        print(f"  {NAME} is left out: {problem}")
        return None
    return Peer(_PYTHON, server.url)


def _unfit(server: RunningServer) -> str | None:
    with server.admin() as admin:
        told: dict[str, Any] = admin.info("server")
    version = tuple(int(part) for part in str(told["redis_version"]).split(".")[:2])
    if "valkey_version" in told or version < NEEDS:
        return "it needs Redis 8.6 or newer"
    return None


def _made() -> str | None:
    """Make the environment if it is not there; what kept us from it."""
    if _STAMP.exists():
        return None
    print(f"  making an environment with {PACKAGE} ...")
    install = ("-m", "pip", "install", "--quiet", PACKAGE, "uvloop")
    for command in ((sys.executable, "-m", "venv", str(_HOME)), (str(_PYTHON), *install)):
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_MAKE_LIMIT_S)
        except (OSError, subprocess.SubprocessError) as error:
            return f"{PACKAGE} cannot be installed ({type(error).__name__})"
    _STAMP.touch()
    return None
