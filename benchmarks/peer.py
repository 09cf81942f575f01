"""ChasquiMQ as a rival: the real package, in an environment and in processes of its own."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.peers import NEEDS, PYTHON, make_environment
from tests.servers import ROOT, RunningServer

NAME: Final = "ChasquiMQ"

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
            cwd=ROOT,
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
    problem = _unfit(server) or make_environment()
    if problem is not None:
        print(f"  {NAME} is left out: {problem}")
        return None
    return Peer(PYTHON, server.url)


def _unfit(server: RunningServer) -> str | None:
    with server.admin() as admin:
        told: dict[str, Any] = admin.info("server")
    version = tuple(int(part) for part in str(told["redis_version"]).split(".")[:2])
    if "valkey_version" in told or version < NEEDS:
        return "it needs Redis 8.6 or newer"
    return None
