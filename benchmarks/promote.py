"""Delayed jobs that are all due when the worker starts: promoted and run, until the last."""

from typing import Final

from benchmarks.bench import Bench
from benchmarks.figure import Measured, in_turns
from benchmarks.peer import Peer
from benchmarks.sample import CONCURRENCY, DATA, NAME, QUEUE
from benchmarks.tally import Tally
from tampu import NewJob
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker

JOBS: Final = 60_000
PEERS_JOBS: Final = 12_000
ROUNDS: Final = 3
FLOOR: Final = 4.0


async def run(bench: Bench) -> list[Measured]:
    """Jobs a second, from the first that runs to the last."""
    ways = bench.ways(lambda: _ours(bench), lambda peer: _theirs(bench, peer))
    rates = await in_turns(ways, ROUNDS)
    return [bench.compared("promote and run due jobs", rates, floor=FLOOR)]


async def _ours(bench: Bench) -> float:
    await _fill(bench, JOBS)
    tally = Tally(JOBS)
    worker = Worker(QUEUE, tally.handle, bench.url, concurrency=CONCURRENCY, events=False)
    async with worker:
        return await tally.done()


async def _theirs(bench: Bench, peer: Peer) -> float:
    await _fill(bench, PEERS_JOBS)
    options = {"events_enabled": False, "store_results": False}
    per_s: float = await peer.run("consume", jobs=PEERS_JOBS, result=None, options=options)
    return per_s


async def _fill(bench: Bench, jobs: int) -> None:
    """Let a queue hold so many delayed jobs, all of them due."""
    await bench.fill(jobs, NewJob(NAME, DATA, delay="1h"))
    delayed = QueueKeys(QUEUE).delayed
    with bench.server.admin() as admin:
        admin.zunionstore(delayed, {delayed: 0})  # due since 1970
