"""What flow control costs: jobs with priorities, keys and limits, against jobs without any."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple

import redis

from benchmarks.bench import Bench
from benchmarks.figures import Comparison, Figure, Unit, Value, run_rounds
from benchmarks.measuring import JobCounter, percentile
from benchmarks.meter import Cost, Meter
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE
from tampu import Job, NewJob, Queue
from tampu.limits import Concurrency, Rate
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker

JOBS: Final = 60_000
ROUNDS: Final = 5
JOBS_PER_CALL: Final = 1_000
LONE_ADDS: Final = 1_000
LONE_ROUNDS: Final = 9
LONE_FLOOR: Final = 1 / 2
BACKLOG: Final = 1_000_000
URGENT: Final = 50
CHANGES: Final = 50
CHANGE_LIMIT_MS: Final = 100.0
URGENT_LIMIT_MS: Final = 50.0
JOB_S: Final = 0.01
PAUSE_S: Final = 0.05
_PLAIN: Final = "plain jobs, no gate"


def _keyed(number: int, *, keys: int) -> NewJob:
    return NewJob(NAME, DATA, key=number % keys)


def _limited(number: int, *limits: Concurrency | Rate, values: int) -> NewJob:
    return NewJob(NAME, {**DATA, "n": number % values}, limits=limits)


class _Case(NamedTuple):
    what: str
    make: Callable[[int], NewJob]
    floor: float | None = None  # of jobs per second, against plain jobs


CASES: Final = (
    _Case(_PLAIN, lambda _: NewJob(NAME, DATA)),
    _Case("2 priorities", lambda number: NewJob(NAME, DATA, priority=3 + number % 2 * 4), 1 / 3),
    _Case("fair, 100 keys", partial(_keyed, keys=100), 1 / 3),
    _Case("fair, 10 000 keys", partial(_keyed, keys=10_000)),
    _Case(
        "concurrency 10 on 100 keys",
        lambda number: _limited(number, Concurrency(10, by="n"), values=100),
        1 / 3,
    ),
    _Case(
        "concurrency 1 on 10 000 keys",
        lambda number: _limited(number, Concurrency(1, by="n"), values=10_000),
        1 / 4,
    ),
    _Case(
        "concurrency 4 on 1000 keys, 2000 in all",
        lambda number: _limited(number, Concurrency(4, by="n"), Concurrency(2_000), values=1_000),
    ),
    _Case(
        "a rate on 1000 keys, never met",
        lambda number: _limited(number, Rate("1000000/s", by="n", burst=1_000_000), values=1_000),
    ),
)


async def run(bench: Bench) -> list[Figure]:
    """Each case against plain jobs; jobs added alone; urgent ones behind others; live changes."""
    runs = await run_rounds({case.what: partial(_run, bench, case) for case in CASES}, ROUNDS)
    figures = [figure for case in CASES for figure in _figures_of(case, runs)]
    figures += await _add_alone(bench)
    return [*figures, *await _overtake(bench), *await _change_live(bench)]


class _Run(NamedTuple):
    per_s: float
    added: Cost
    ran: Cost


async def _run(bench: Bench, case: _Case) -> _Run:
    bench.empty()
    added = await _fill(bench, [case.make(number) for number in range(JOBS)])
    counter = JobCounter(JOBS)
    meter = Meter(bench)
    async with Worker(QUEUE, counter.handle, bench.url, concurrency=CONCURRENCY, events=False):
        per_s = await counter.wait()
    return _Run(per_s, added, meter.cost(JOBS))


async def _fill(bench: Bench, jobs: Sequence[NewJob]) -> Cost:
    async with Queue(QUEUE, bench.url) as queue:
        meter = Meter(bench)
        for start in range(0, len(jobs), JOBS_PER_CALL):
            await queue.add_many(jobs[start : start + JOBS_PER_CALL])
        return meter.cost(len(jobs))


def _figures_of(case: _Case, runs: dict[str, list[_Run]]) -> list[Figure]:
    ours, plain = runs[case.what], runs[_PLAIN]
    per_s, plain_per_s = (median(each.per_s for each in taken) for taken in (ours, plain))
    if case.what == _PLAIN:
        return [Value(f"flow, {_PLAIN}", per_s)]
    what = f"flow, {case.what}"
    return [
        Comparison(what, per_s, _PLAIN, plain_per_s, case.floor),
        *_compare(f"{what}: add one", [r.added for r in ours], [r.added for r in plain]),
        *_compare(f"{what}: run one", [r.ran for r in ours], [r.ran for r in plain]),
    ]


def _compare(
    what: str, ours: list[Cost], plain: list[Cost], *, floor: float | None = None
) -> list[Figure]:
    """The least of all rounds, because other load on the machine only adds to it."""
    figures: list[Figure] = []
    own, theirs = ([each.commands for each in taken if each.commands] for taken in (ours, plain))
    if own and theirs:
        told = f"{what}, commands of the server"
        figures.append(Comparison(told, min(own), _PLAIN, min(theirs), None, Unit.US))
    least, plain_least = (min(each.processor for each in taken) for taken in (ours, plain))
    told = f"{what}, processor of the server"
    figures.append(Comparison(told, least, _PLAIN, plain_least, floor, Unit.US))
    return figures


async def _add_alone(bench: Bench) -> list[Figure]:
    """Jobs that are added one after another, while no worker wants them."""
    lone: dict[str, Callable[[int], NewJob]] = {
        _PLAIN: lambda _: NewJob(NAME, DATA),
        "key": partial(_keyed, keys=100),
        "limit": lambda number: _limited(number, Concurrency(10, by="n"), values=100),
    }
    costs = await run_rounds(
        {what: partial(_add_one_by_one, bench, make) for what, make in lone.items()}, LONE_ROUNDS
    )
    plain = costs.pop(_PLAIN)
    return [
        figure
        for what, taken in costs.items()
        for figure in _compare(f"flow, add one with a {what}", taken, plain, floor=LONE_FLOOR)
    ]


async def _add_one_by_one(bench: Bench, make: Callable[[int], NewJob]) -> Cost:
    bench.empty()
    async with Queue(QUEUE, bench.url) as queue:
        await queue.add_many([make(0)])
        meter = Meter(bench)
        for number in range(LONE_ADDS):
            await queue.add_many([make(number)])
        return meter.cost(LONE_ADDS)


async def _overtake(bench: Bench) -> list[Figure]:
    """From the call of `add` until an urgent job starts, on a worker that has much to do."""
    bench.empty()
    await _fill(bench, [NewJob(NAME, DATA, priority=3)] * BACKLOG)
    began: asyncio.Queue[float] = asyncio.Queue()

    async def handle(job: Job[Any]) -> None:
        if job.priority > 3:
            began.put_nowait(perf_counter())
        await asyncio.sleep(JOB_S)

    late_ms = []
    worker = Worker(QUEUE, handle, bench.url, concurrency=CONCURRENCY, events=False)
    async with Queue(QUEUE, bench.url) as queue, worker:
        await asyncio.sleep(1)
        for _ in range(URGENT):
            await asyncio.sleep(PAUSE_S)
            added = perf_counter()
            await queue.add(NAME, DATA, priority=9)
            late_ms.append(1000 * (await began.get() - added))
        with bench.server.admin() as admin:
            left = _waiting(admin)
    what = f"flow, an urgent job among {left} waiting ones starts"
    return [
        Value(f"{what}, p50", percentile(late_ms, 50), Unit.MS),
        Value(f"{what}, the worst of {URGENT}", max(late_ms), Unit.MS, URGENT_LIMIT_MS),
    ]


async def _change_live(bench: Bench) -> list[Figure]:
    """From a change of what may run until the job starts that has waited for it."""
    bench.empty()
    began: asyncio.Queue[float] = asyncio.Queue()
    end = asyncio.Event()

    async def handle(_: Job[Any]) -> None:
        began.put_nowait(perf_counter())
        await end.wait()

    async def time_ms(change: Callable[[], Awaitable[object]]) -> float:
        changed = perf_counter()
        await change()
        return 1000 * (await began.get() - changed)

    worker = Worker(QUEUE, handle, bench.url, concurrency=3 * CHANGES, events=False)
    async with Queue(QUEUE, bench.url) as queue, worker:
        await queue.add_each(NAME, [DATA] * (CHANGES + 1), limits=[Concurrency(1)])
        await began.get()
        raised = [
            await time_ms(partial(queue.limits.set, f"{NAME}()", Concurrency(most)))
            for most in range(2, CHANGES + 2)
        ]
        resumed = []
        for _ in range(CHANGES):
            await queue.pause(task=NAME)
            await queue.add(NAME, DATA)
            resumed.append(await time_ms(partial(queue.resume, task=NAME)))
        end.set()
    return [
        figure
        for what, late_ms in {"a raised limit": raised, "a resumed task": resumed}.items()
        for figure in (
            Value(f"flow, {what} takes effect, p50", percentile(late_ms, 50), Unit.MS),
            Value(
                f"flow, {what} takes effect, the worst of {CHANGES}",
                max(late_ms),
                Unit.MS,
                CHANGE_LIMIT_MS,
            ),
        )
    ]


def _waiting(admin: redis.Redis) -> int:
    waiting: Any = admin.hget(QueueKeys(QUEUE).gate.decode(), "waiting")
    return int(waiting)
