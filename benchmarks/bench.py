"""What a scenario works with: a server, and ChasquiMQ if it can run there."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks.figures import Comparison, Figure, Round, Unit, Value
from benchmarks.workload import DATA, NAME, QUEUE
from tampu import NewJob, Queue
from tests.peers import NEEDS, PYTHON, make_environment
from tests.servers import ROOT, RunningServer

OURS: Final = "tampu"
THEIRS: Final = "ChasquiMQ"

T = TypeVar("T")

_JOBS_PER_CALL: Final = 10_000
_RUN_LIMIT_S: Final = 120


@dataclass(frozen=True, slots=True)
class ChasquiMQ:
    """The real package, in an environment and in processes of its own."""

    python: Path
    url: str

    async def run(self, scenario: str, **request: object) -> Any:  # noqa: ANN401 - JSON
        """Run a scenario of `benchmarks/peers/chasquimq_scenarios.py`. Returns what it printed."""
        process = await asyncio.create_subprocess_exec(
            self.python,
            "-m",
            "benchmarks.peers.chasquimq_scenarios",
            scenario,
            json.dumps({"url": self.url, **request}),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_RUN_LIMIT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        if process.returncode != 0:
            raise RuntimeError(f"{THEIRS}'s {scenario} ended with {process.returncode}")
        return json.loads(output)


def find_chasquimq(server: RunningServer) -> ChasquiMQ | None:
    """ChasquiMQ for this server; None if it is not available, and then the reason is printed."""
    problem = _problem_of_server(server) or make_environment()
    if problem is not None:
        print(f"  without {THEIRS}: {problem}")
        return None
    return ChasquiMQ(PYTHON, server.url)


def _problem_of_server(server: RunningServer) -> str | None:
    with server.admin() as admin:
        info: dict[str, Any] = admin.info("server")
    version = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
    if "valkey_version" in info or version < NEEDS:
        return "it needs Redis 8.6 or newer"
    return None


@dataclass(frozen=True, slots=True)
class Bench:
    """One server, and the programs that are compared on it."""

    server: RunningServer
    chasquimq: ChasquiMQ | None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self.server.url

    def empty(self) -> None:
        """Remove all keys."""
        with self.server.admin() as admin:
            admin.flushall()

    async def fill(self, jobs: int, job: NewJob | None = None) -> None:
        """Empty the server, then add this many jobs to the queue.

        tampu adds them for ChasquiMQ, too: the bytes on the wire are the same.
        """
        self.empty()
        job = job or NewJob(NAME, DATA)
        async with Queue(QUEUE, self.url) as queue:
            for start in range(0, jobs, _JOBS_PER_CALL):
                await queue.add_many([job] * min(_JOBS_PER_CALL, jobs - start))

    def contenders(
        self, ours: Round[T], theirs: Callable[[ChasquiMQ], Awaitable[T]]
    ) -> dict[str, Round[T]]:
        """tampu, and ChasquiMQ if it is available."""
        contenders = {OURS: ours}
        if (chasquimq := self.chasquimq) is not None:
            contenders[THEIRS] = lambda: theirs(chasquimq)
        return contenders

    def compare(
        self, what: str, medians: dict[str, float], *, floor: float, unit: Unit = Unit.PER_S
    ) -> Figure:
        """tampu against ChasquiMQ, or tampu alone."""
        if THEIRS in medians:
            return Comparison(what, medians[OURS], THEIRS, medians[THEIRS], floor, unit)
        return Value(what, medians[OURS], unit)
