"""What a scenario is given: a server of its own and, where it can be had, the rival."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from benchmarks.figure import Figure, Measured, Unit, Value, Way
from benchmarks.peer import NAME as PEER
from benchmarks.peer import Peer
from benchmarks.sample import DATA, NAME, QUEUE
from tampu import NewJob, Queue
from tests.servers import RunningServer

OURS: Final = "tampu"

T = TypeVar("T")

_A_CALL: Final = 10_000


@dataclass(frozen=True, slots=True)
class Bench:
    """One server, and who runs on it."""

    server: RunningServer
    peer: Peer | None

    @property
    def url(self) -> str:
        """Where the server is."""
        return self.server.url

    def empty(self) -> None:
        """Remove all keys."""
        with self.server.admin() as admin:
            admin.flushall()

    async def fill(self, jobs: int, job: NewJob | None = None) -> None:
        """Let a queue hold so many jobs and the server nothing else.

        Whoever runs them, they are the same bytes: the wire format is the rival's.
        """
        self.empty()
        wanted = job or NewJob(NAME, DATA)
        async with Queue(QUEUE, self.url) as queue:
            for start in range(0, jobs, _A_CALL):
                await queue.add_many([wanted] * min(_A_CALL, jobs - start))

    def ways(self, ours: Way[T], theirs: Callable[[Peer], Awaitable[T]]) -> dict[str, Way[T]]:
        """What takes turns: ours, and the rival's if it is there."""
        ways = {OURS: ours}
        if (peer := self.peer) is not None:
            ways[PEER] = lambda: theirs(peer)
        return ways

    def compared(
        self, what: str, medians: dict[str, float], *, floor: float, unit: Unit = Unit.PER_S
    ) -> Measured:
        """Ours against the rival's, or ours alone."""
        if PEER in medians:
            return Figure(what, medians[OURS], PEER, medians[PEER], floor, unit)
        return Value(what, medians[OURS], unit)
