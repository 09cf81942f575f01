"""Running jobs that do nothing: one process, 100 at a time, the queue filled before."""

from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks import server_time
from benchmarks.bench import OURS, Bench
from benchmarks.figure import Figure, Measured, rounds_of
from benchmarks.peer import Peer
from benchmarks.sample import CONCURRENCY, QUEUE
from benchmarks.tally import Tally
from tampu.worker import Worker

JOBS: Final = 100_000
PEERS_JOBS: Final = 20_000
ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class _Mode:
    what: str
    floor: float
    events: bool = False
    results: bool = False
    share: float | None = None  # of what the server alone could do

    @property
    def result(self) -> object:
        """What the handler returns: the rival keeps nothing of a None."""
        return 1 if self.results else None


MODES: Final = (
    _Mode("events off", floor=12, share=0.6),
    _Mode("events on", floor=8, events=True),
    _Mode("results stored", floor=6, results=True),
)


@dataclass(frozen=True, slots=True)
class _Run:
    per_s: float
    alone_per_s: float = 0.0  # what the server could do if it had nothing but its commands to do


async def run(bench: Bench) -> list[Measured]:
    """Each mode against the rival, and against the server's own time."""
    return [line for mode in MODES for line in await _measured(bench, mode)]


async def _measured(bench: Bench, mode: _Mode) -> list[Measured]:
    ways = bench.ways(lambda: _ours(bench, mode), lambda peer: _theirs(bench, peer, mode))
    runs = await rounds_of(ways, ROUNDS)
    rates = {name: median(each.per_s for each in taken) for name, taken in runs.items()}
    what = f"consume, {mode.what}"
    share = sorted(runs[OURS], key=lambda each: each.per_s / each.alone_per_s)[ROUNDS // 2]
    return [
        bench.compared(what, rates, floor=mode.floor),
        Figure(what, share.per_s, "the server alone", share.alone_per_s, mode.share),
    ]


async def _ours(bench: Bench, mode: _Mode) -> _Run:
    await bench.fill(JOBS)
    tally = Tally(JOBS, mode.result)
    worker = Worker(
        QUEUE,
        tally.handle,
        bench.url,
        concurrency=CONCURRENCY,
        events=mode.events,
        store_results=mode.results,
    )
    with bench.server.admin() as admin:
        server_time.forget(admin)
        async with worker:
            per_s = await tally.done()
        return _Run(per_s, JOBS / server_time.spent_s(admin))


async def _theirs(bench: Bench, peer: Peer, mode: _Mode) -> _Run:
    await bench.fill(PEERS_JOBS)
    options = {"events_enabled": mode.events, "store_results": mode.results}
    return _Run(await peer.run("consume", jobs=PEERS_JOBS, result=mode.result, options=options))
