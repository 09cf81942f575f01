"""ChasquiMQ as a rival: the real package, in an environment and in processes of its own."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.home import ROOT, Unavailable, find_home
from benchmarks.peers.pins import CHASQUIMQ
from tests.servers import RunningServer

NAME: Final = CHASQUIMQ.title
PACKAGE: Final = CHASQUIMQ.packages[0]
NEEDS: Final = (8, 6)

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
    try:
        _check_fit(server)
        return Peer(find_home(CHASQUIMQ).python, server.url)
    except Unavailable as error:
        print(f"  {NAME} is left out: {error}")
        return None


def _check_fit(server: RunningServer) -> None:
    with server.admin() as admin:
        told: dict[str, Any] = admin.info("server")
    version = tuple(int(part) for part in str(told["redis_version"]).split(".")[:2])
    if "valkey_version" in told or version < NEEDS:
        raise Unavailable("it needs Redis 8.6 or newer")
