"""What type checkers know of flows; checked by both of them, run by nobody."""

from typing import Any, assert_type

from tampu import (
    App,
    Call,
    Chain,
    Flow,
    FlowBatch,
    FlowInfo,
    FlowProgress,
    FlowRun,
    Job,
    Node,
    NodeFailed,
    NodeOutcome,
    Nodes,
    Ok,
    Results,
    SyncFlowRun,
    SyncJob,
    chain,
)

app = App()


@app.task
async def fetch(url: str, retries: int = 3) -> bytes:
    return url.encode() * retries


@app.task
async def parse(page: bytes) -> list[str]:
    return [page.decode()]


@app.task
async def count(link: str, weight: int = 1) -> int:
    return len(link) * weight


@app.task
def total(counts: list[int], label: str) -> dict[str, int]:
    return {label: sum(counts)}


@app.task
def merge(page: bytes, links: list[str], tag: str = "") -> float:
    return len(page) + len(links) + len(tag)


@app.task
def half(number: int) -> int:
    return number // 2


@app.task
def tell(outcomes: list[NodeOutcome[int]]) -> str:
    return str(len(outcomes))


@app.task
def tell_one(outcome: Ok[int] | NodeFailed) -> str:
    return str(outcome)


@app.task
def size_or_none(page: bytes | None) -> int:
    return len(page or b"")


@app.task
async def stream(results: Results[int], factor: int = 1) -> int:
    found = 0
    async for each in results:
        assert_type(each, int)
        found += each * factor
    return found


@app.task
def five(a: int, b: str, c: bytes, d: list[str], e: float = 0.0) -> bool:
    return bool(a and b and c and d and e)


@app.task
async def nothing(done: int) -> None: ...


@app.task
def clean() -> None: ...


async def edges(flow: Flow) -> None:
    page = flow.add(fetch, "https://example.org", retries=2)
    assert_type(page, Node[bytes])
    links = flow.add(parse, page)
    assert_type(links, Node[list[str]])
    assert_type(links.value, list[str])
    counts = flow.map(count, links, weight=2)
    assert_type(counts, Nodes[int])
    assert_type(counts.tolerate(0.05), Nodes[int])
    assert_type(flow.map(count, ["a", "b"]), Nodes[int])
    assert_type(flow.map(half, range(10)), Nodes[int])
    assert_type(flow.map(half, counts), Nodes[int])
    assert_type(flow.add(total, counts, label="x"), Node[dict[str, int]])
    assert_type(flow.add(total, counts, "x"), Node[dict[str, int]])
    assert_type(flow.add(merge, page, links, tag="t"), Node[float])
    assert_type(flow.add(merge, page, ["a"], "t"), Node[float])
    assert_type(flow.add(merge, b"", links), Node[float])
    assert_type(flow.add(merge, page=page.value, links=[*links.value, "more"]), Node[float])
    assert_type(flow.add(merge, page, links=links.value), Node[float])
    assert_type(flow.add(total, [flow.add(half, 2).value, 4], label="x"), Node[dict[str, int]])
    assert_type(flow.add(five, flow.add(half, 1), "b", page, links.value, e=1.0), Node[bool])
    assert_type(flow.add(five, 1, "b", page, d=links.value), Node[bool])
    label = flow.add(tell, [])
    assert_type(flow.add(five, flow.add(half, 1), label, page, links), Node[bool])
    assert_type(flow.add(five, 1, label, page, ["d"]), Node[bool])
    assert_type(flow.add(five, flow.add(half, 1), label, b"c", ["d"], 0.5), Node[bool])
    assert_type(flow.add(clean).after(page, counts), Node[None])
    assert_type(flow.add(clean).needs(page), Node[None])


async def failures(flow: Flow) -> None:
    number = flow.add(half, 4)
    numbers = flow.map(half, [1, 2])
    assert_type(flow.add(tell_one, number.outcome), Node[str])
    assert_type(flow.add(tell_one, outcome=number.outcome.value), Node[str])
    assert_type(flow.add(tell, numbers.outcomes), Node[str])
    assert_type(flow.add(half, number.default(0)), Node[int])
    assert_type(flow.add(half, number=number.default(0).value), Node[int])
    assert_type(flow.add(total, numbers.default([]), label="x"), Node[dict[str, int]])
    assert_type(numbers.default(None).value, list[int] | None)
    page = flow.add(fetch, "a")
    assert_type(page.default(None).value, bytes | None)
    assert_type(flow.add(size_or_none, page.default(None)), Node[int])
    assert_type(flow.add(size_or_none, page), Node[int])
    assert_type(flow.add(stream, numbers.results, factor=2), Node[int])


async def runs(flow: Flow) -> None:
    counts = flow.map(half, [1])
    label = flow.add(total, counts, label="x")
    assert_type(await flow.start(), FlowRun[None])
    run = await flow.start(result=label)
    assert_type(run, FlowRun[dict[str, int]])
    assert_type(await run.result(), dict[str, int])
    assert_type(await flow.start(result=counts), FlowRun[list[int]])
    assert_type(await run.progress(), FlowProgress)
    assert_type(await run.info(), FlowInfo | None)
    assert_type(await run.cancel(), bool)
    assert_type(await run.retry(), int)
    async for number, result in run.completed(counts, after=None):
        assert_type(number, int)
        assert_type(result, int)
    assert_type(app.flow_run("id"), FlowRun[Any])


def runs_sync(flow: Flow) -> None:
    counts = flow.map(half, [1])
    assert_type(flow.start_sync(), SyncFlowRun[None])
    run = flow.start_sync(result=flow.add(total, counts, label="x"))
    assert_type(run, SyncFlowRun[dict[str, int]])
    assert_type(run.result(), dict[str, int])
    for number, result in run.completed(counts):
        assert_type(number, int)
        assert_type(result, int)


async def chains() -> None:
    first = fetch.call("a")
    assert_type(first, Call[bytes])
    assert_type(chain(first, parse), Chain[list[str]])
    assert_type(await chain(first, parse).enqueue(), Job[list[str]])
    assert_type(chain(first, parse).enqueue_sync(), SyncJob[list[str]])
    assert_type(first.then(parse), Chain[list[str]])
    assert_type(first.then(merge, ["x"], tag="t"), Chain[float])
    assert_type(first.then(merge, links=["x"]), Chain[float])
    assert_type(chain(half.call(8), half, half, half, nothing), Chain[None])
    assert_type(chain(first.then(parse).then(tell_links), half), Chain[int])
    assert_type(chain(count.call("a"), half).then(half), Chain[int])
    assert_type(chain(first, parse, tell_links, half), Chain[int])
    assert_type(chain(first, size_or_none), Chain[int])
    assert_type(first.then(size_or_none), Chain[int])
    assert_type(chain(first, parse).then(tell_links).then(half), Chain[int])


@app.task
def tell_links(links: list[str], more: int = 0) -> int:
    return len(links) + more


async def batches() -> None:
    async with app.batch(on_success=half.call(7), on_complete=half.call(7)) as batch:
        assert_type(batch, FlowBatch)
        await batch.add(half, 1)
        await batch.add(fetch, "a", retries=2)
        assert_type(batch.run, FlowRun[None])


async def refused_edges(flow: Flow) -> None:
    """Each of these must be an error: the ignore of one that is none is reported."""
    page = flow.add(fetch, "a")
    links = flow.add(parse, page)
    number = flow.add(half, 1)
    flow.add(total, links, label="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(total, links)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    flow.add(merge, links, page)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(merge, page, page)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(merge, page, ["a"], number)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(total, counts=links.value, label="x")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    flow.add(merge, page=number.value, links=[])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    flow.add(total, flow.map(half, [1]))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    flow.add(half, page)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(half, number, 1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    flow.add(half, "a")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(half, wrong=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    flow.add(clean, number)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    flow.add(five, number, number, page, links)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(five, 1, "b", page, links.value, e="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def refused_maps(flow: Flow) -> None:
    """The same for maps."""
    page = flow.add(fetch, "a")
    links = flow.add(parse, page)
    flow.map(half, links)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.map(half, ["a"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.map(half, page)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.map(count, links, weight="2")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.map(count, links, wrong=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    flow.map(merge, [b""])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    flow.map(clean, [1])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def refused_outcomes(flow: Flow) -> None:
    """The same for edges that run in any case."""
    number = flow.add(half, 1)
    numbers = flow.map(half, [1])
    flow.add(half, number.outcome)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(tell_one, number)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(tell, numbers)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(tell, flow.map(fetch, ["a"]).outcomes)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(half, number.default(None))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(half, number=number.default("x").value)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    flow.add(stream, numbers)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(stream, flow.map(fetch, ["a"]).results)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    flow.add(parse, flow.add(fetch, "a").default(None))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    run = await flow.start(result=number)
    assert_type(await run.result(), str)  # type: ignore[assert-type]  # pyright: ignore[reportAssertTypeFailure]
    await flow.start(number)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await flow.start(result="x")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


async def refused_chains() -> None:
    """The same for chains and batches."""
    first = fetch.call("a")
    chain(first, merge)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    chain(size_or_none.call(None), fetch, parse)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    chain(first, parse, parse)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    chain(first, half)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    first.then(half)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    first.then(merge)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue]
    first.then(merge, [1])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    first.then(merge, ["x"], wrong=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    first.then(parse).then(half)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    async with app.batch(on_success=half) as batch:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await batch.add(half, "a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await batch.add(half)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await batch.add(half, flow_number())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def flow_number() -> Node[int]:
    return app.flow().add(half, 1)
