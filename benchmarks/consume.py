"""Running jobs that do nothing: one process, 100 at a time, the queue filled before."""

from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.bench import OURS, Bench
from benchmarks.figure import Figure, Measured, rounds_of
from benchmarks.peer import Peer
from benchmarks.sample import CONCURRENCY, QUEUE
from benchmarks.server_time import spent_s
from benchmarks.tally import Tally
from tampu.worker import Worker

JOBS: Final = 60_000
PEERS_JOBS: Final = 12_000
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
    alone_per_s: float | None = None  # what the server could do with its time for commands


async def run(bench: Bench) -> list[Measured]:
    """Each mode against the rival, and against the server's own time."""
    with bench.server.admin() as admin:
        if spent_s(admin) is None:
            print("  the server alone is left out: this server does not tell its time")
    return [line for mode in MODES for line in await _measured(bench, mode)]


async def _measured(bench: Bench, mode: _Mode) -> list[Measured]:
    ways = bench.ways(lambda: _ours(bench, mode), lambda peer: _theirs(bench, peer, mode))
    runs = await rounds_of(ways, ROUNDS)
    rates = {name: median(each.per_s for each in taken) for name, taken in runs.items()}
    what = f"consume, {mode.what}"
    lines = [bench.compared(what, rates, floor=mode.floor)]
    alone = [each.alone_per_s for each in runs[OURS] if each.alone_per_s is not None]
    if alone:
        lines.append(Figure(what, rates[OURS], "the server alone", median(alone), mode.share))
    return lines


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
        before = spent_s(admin)
        async with worker:
            per_s = await tally.done()
        after = spent_s(admin)
    if before is None or after is None:
        return _Run(per_s)
    return _Run(per_s, JOBS / (after - before))


async def _theirs(bench: Bench, peer: Peer, mode: _Mode) -> _Run:
    await bench.fill(PEERS_JOBS)
    options = {"events_enabled": mode.events, "store_results": mode.results}
    return _Run(await peer.run("consume", jobs=PEERS_JOBS, result=mode.result, options=options))
