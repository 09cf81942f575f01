"""Tasks for the tests of flows in the test kit."""

from dataclasses import dataclass

from tampu import (
    App,
    Backoff,
    Batch,
    Concurrency,
    JobBatch,
    NodeOutcome,
    Ok,
    Results,
    Snooze,
)

app = App("redis://192.0.2.1")
log: list[object] = []
failing: set[object] = set()


@app.task
async def fetch(url: str) -> list[str]:
    log.append(url)
    return ["a", "bb", "ccc"]


@app.task
async def count(link: str, weight: int = 1) -> int:
    log.append(link)
    return len(link) * weight


@app.task(queue="other")
def merge(counts: list[int], label: str = "sum") -> dict[str, int]:
    return {label: sum(counts)}


@app.task(queue="other")
async def links_of(label: str) -> list[str]:
    return [label, label * 2]


@app.task(attempts=2, backoff=Backoff.fixed("1h"))
def maybe(number: int) -> int:
    log.append(number)
    if number in failing:
        raise ValueError(f"no {number}")
    return number


@app.task
def tell(outcomes: list[NodeOutcome[int]]) -> int:
    return sum(isinstance(each, Ok) for each in outcomes)


@app.task
async def total(results: Results[int]) -> int:
    return sum([each async for each in results])


@app.task
async def add_more(more: int) -> None:
    log.append(more)
    if more:
        async with app.own_batch() as batch:
            await batch.add(add_more, more - 1)


@app.task
def add_more_plain(more: int) -> None:
    log.append(more)
    if more:
        with app.own_batch_sync() as batch:
            batch.add(add_more_plain, more - 1)


@app.task
async def start_inside(url: str) -> dict[str, int]:
    flow = app.flow("inside")
    label = flow.add(merge, flow.map(count, flow.add(fetch, url)))
    run = await flow.start(result=label)
    return await run.result()


@app.task(limits=[Concurrency(1, by="tenant")])
async def for_tenant(tenant: str) -> str:
    return tenant


@dataclass
class Weighed:
    number: int
    weight: int


@app.task
def measure(link: str) -> Weighed:
    log.append(link)
    return Weighed(len(link), len(link))


@app.task(batch=Batch(10))
def weigh(batch: JobBatch[Weighed]) -> None:
    log.append(len(batch))
    for job in batch:
        batch.done(job, job.data.number * job.data.weight)


@app.task
async def sleepy() -> int:
    if "sleepy" not in log:
        log.append("sleepy")
        raise Snooze("1d")
    return 3


@app.task
async def sleepy_number(number: int) -> int:
    return number + await sleepy()
