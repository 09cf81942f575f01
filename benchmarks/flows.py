"""What flows cost: a map with a join, chains, and many small groups, against plain jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from benchmarks.bench import Bench
from benchmarks.figures import Comparison, Figure, Unit, Value, run_rounds
from benchmarks.meter import Cost, Meter
from benchmarks.workload import CONCURRENCY, QUEUE
from tampu import App, AppWorker, Results, chain

CHILDREN: Final = 100_000
ROUNDS: Final = 5
CHAINS: Final = 5_000
STEPS: Final = 10
GROUPS: Final = 100
GROUP_SIZE: Final = 100
LIMIT_S: Final = 120
MAP_FLOOR: Final = 0.8
STEP_FLOOR: Final = 1 / 1.3
_PLAIN: Final = "the same jobs without a flow, with stored results"
_FILLED: Final = "a waiting job with a stored result"


class _Run(NamedTuple):
    per_s: float
    cost: Cost


def _make_app(bench: Bench) -> App:
    app = App(bench.url, default_queue=QUEUE, worker={"events": False})

    @app.task
    async def work(number: int) -> int:
        return 1

    @app.task
    async def join(results: Results[int]) -> int:
        return sum([each async for each in results])

    @app.task
    async def count(results: list[int]) -> int:
        return len(results)

    return app


async def run(bench: Bench) -> list[Figure]:
    """Each kind of flow against plain jobs."""
    contenders: dict[str, Callable[[], Awaitable[_Run]]] = {
        _PLAIN: partial(_run, bench, _run_plain, CHILDREN),
        "map": partial(_run, bench, _run_map, CHILDREN),
        _FILLED: partial(_run_filled, bench, _add_plain, CHAINS * STEPS),
        "chain": partial(_run_filled, bench, _add_chains, CHAINS * STEPS),
        "groups": partial(_run, bench, _run_groups, GROUPS),
    }
    runs = await run_rounds(contenders, ROUNDS)
    plain, mapped, steps = runs[_PLAIN], runs["map"], runs["chain"]
    what = f"flows, a map of {CHILDREN} with a join, from its start to its result"
    return [
        Comparison(what, _per_s(mapped), _PLAIN, _per_s(plain), MAP_FLOOR),
        *_compare("flows, a job of a map", mapped, rival=_PLAIN, theirs=plain),
        *_compare(
            f"flows, a step of a chain of {STEPS}", steps, rival=_FILLED, theirs=runs[_FILLED]
        ),
        Value(f"flows, joins of {GROUP_SIZE} jobs each", _per_s(runs["groups"])),
    ]


async def _run(bench: Bench, act: Callable[[App], Awaitable[None]], count: int) -> _Run:
    bench.empty()
    app = _make_app(bench)
    async with app, AppWorker(app, concurrency=CONCURRENCY):
        meter, began = Meter(bench), perf_counter()
        await act(app)
        return _Run(count / (perf_counter() - began), meter.cost(count))


async def _run_filled(bench: Bench, add: Callable[[App], Awaitable[object]], count: int) -> _Run:
    """Only what happens after the jobs were added."""
    bench.empty()
    app = _make_app(bench)
    async with app:
        await add(app)
        meter, began = Meter(bench), perf_counter()
        async with AppWorker(app, concurrency=CONCURRENCY):
            await app.queue().drain(timeout=LIMIT_S)
            return _Run(count / (perf_counter() - began), meter.cost(count))


async def _add_plain(app: App) -> None:
    work = app.tasks["work"]
    await work.enqueue_many([work.call(number) for number in range(CHAINS * STEPS)])


async def _add_chains(app: App) -> None:
    work = app.tasks["work"]
    steps = chain(work.call(1), *[work] * (STEPS - 1))
    await asyncio.gather(*[steps.enqueue() for _ in range(CHAINS)])


async def _run_plain(app: App) -> None:
    work = app.tasks["work"]
    await work.enqueue_many([work.call(number) for number in range(CHILDREN)])
    await app.queue().drain(timeout=LIMIT_S)


async def _run_map(app: App) -> None:
    flow = app.flow("map")
    joined = flow.add(app.tasks["join"], flow.map(app.tasks["work"], range(CHILDREN)).results)
    run = await flow.start(result=joined)
    assert await run.result(LIMIT_S) == CHILDREN


async def _run_groups(app: App) -> None:
    runs = []
    for _ in range(GROUPS):
        flow = app.flow("group")
        joined = flow.add(app.tasks["count"], flow.map(app.tasks["work"], range(GROUP_SIZE)))
        runs.append(await flow.start(result=joined))
    for each in runs:
        assert await each.result(LIMIT_S) == GROUP_SIZE


def _per_s(runs: list[_Run]) -> float:
    return median(each.per_s for each in runs)


def _compare(what: str, ours: list[_Run], *, rival: str, theirs: list[_Run]) -> list[Figure]:
    """The least of all rounds, because other load on the machine only adds to it."""
    figures: list[Figure] = []
    floor = STEP_FLOOR if rival == _FILLED else None
    own, other = (
        [each.cost.commands for each in taken if each.cost.commands] for taken in (ours, theirs)
    )
    if own and other:
        told = f"{what}, commands of the server"
        figures.append(Comparison(told, min(own), rival, min(other), floor, Unit.US))
    least, other_least = (min(each.cost.processor for each in taken) for taken in (ours, theirs))
    told = f"{what}, processor of the server"
    return [*figures, Comparison(told, least, rival, other_least, floor, Unit.US)]
