"""Running jobs of a filled queue: handlers that do nothing, one process, 100 jobs at a time."""

from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import redis

from benchmarks.bench import OURS, Bench, ChasquiMQ
from benchmarks.figures import Comparison, Figure, run_rounds
from benchmarks.measuring import JobCounter
from benchmarks.workload import CONCURRENCY, QUEUE
from tampu.worker import Worker

JOBS: Final = 60_000
THEIR_JOBS: Final = 12_000
ROUNDS: Final = 3
# The server's time for commands. It equals the sum over `INFO commandstats`, except that commands
# inside a script count once: `commandstats` lists them again, next to the script's own time.
_COMMAND_TIME: Final = "eventloop_duration_cmd_sum"


@dataclass(frozen=True, slots=True)
class Mode:
    what: str
    floor: float
    events: bool = False
    results: bool = False
    server_share: float | None = None  # the floor for our share of what the server alone could do

    @property
    def result(self) -> object:
        """What the handler returns. ChasquiMQ would not store None."""
        return 1 if self.results else None


MODES: Final = (
    Mode("events off", floor=12, server_share=0.6),
    Mode("events on", floor=8, events=True),
    Mode("results stored", floor=6, results=True),
)


@dataclass(frozen=True, slots=True)
class _Run:
    per_s: float
    server_alone_per_s: float | None = None  # what the server could do in its time for commands


async def run(bench: Bench) -> list[Figure]:
    """Each mode against ChasquiMQ, and against what the server alone could do."""
    with bench.server.admin() as admin:
        if _command_time_s(admin) is None:
            print("  without the server alone: this server does not report its time for commands")
    return [figure for mode in MODES for figure in await _measure(bench, mode)]


async def _measure(bench: Bench, mode: Mode) -> list[Figure]:
    contenders = bench.contenders(
        lambda: _ours(bench, mode), lambda theirs: _theirs(bench, theirs, mode)
    )
    runs = await run_rounds(contenders, ROUNDS)
    rates = {name: median(each.per_s for each in taken) for name, taken in runs.items()}
    what = f"consume, {mode.what}"
    figures = [bench.compare(what, rates, floor=mode.floor)]
    alone = [each.server_alone_per_s for each in runs[OURS] if each.server_alone_per_s is not None]
    if alone:
        share = Comparison(what, rates[OURS], "the server alone", median(alone), mode.server_share)
        figures.append(share)
    return figures


async def _ours(bench: Bench, mode: Mode) -> _Run:
    await bench.fill(JOBS)
    counter = JobCounter(JOBS, mode.result)
    worker = Worker(
        QUEUE,
        counter.handle,
        bench.url,
        concurrency=CONCURRENCY,
        events=mode.events,
        store_results=mode.results,
    )
    with bench.server.admin() as admin:
        before = _command_time_s(admin)
        async with worker:
            per_s = await counter.wait()
        after = _command_time_s(admin)
    if before is None or after is None:
        return _Run(per_s)
    return _Run(per_s, JOBS / (after - before))


async def _theirs(bench: Bench, chasquimq: ChasquiMQ, mode: Mode) -> _Run:
    await bench.fill(THEIR_JOBS)
    options = {"events_enabled": mode.events, "store_results": mode.results}
    return _Run(
        await chasquimq.run("consume", jobs=THEIR_JOBS, result=mode.result, options=options)
    )


def _command_time_s(admin: redis.Redis) -> float | None:
    """Seconds that the server has spent on commands; None before Redis 7.2.

    Blocked reads that wait and work on sockets do not count.
    """
    info: dict[str, Any] = admin.info("stats")
    return float(info[_COMMAND_TIME]) / 1e6 if _COMMAND_TIME in info else None
