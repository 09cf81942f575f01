"""What type checkers know of tasks that yield; checked by both of them, run by nobody."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any, assert_type

from tampu import (
    INJECTED,
    App,
    Chunk,
    Job,
    Queue,
    Restarted,
    StreamJob,
    SyncQueue,
    SyncStreamJob,
)

app = App()


@app.task(collect="".join)
async def answer(question: str, *, most: int = 5) -> AsyncIterator[str]:
    yield question


@app.task(collect=list[int], window=5)
def count(most: int) -> Iterator[int]:
    yield from range(most)


@app.task
async def rows(table: str, job: Job = INJECTED) -> AsyncIterator[dict[str, int]]:
    yield {}


@app.task(cancel_on_close=True, queue="exports")
def lines() -> Generator[bytes, None, None]:
    yield b""


async def what_comes_out() -> None:
    assert_type(await answer.enqueue("why?"), StreamJob[str, str])
    assert_type(await (await answer.enqueue("why?", most=3)).result(), str)
    async for item in (await answer.enqueue("why?")).stream(after="1-1", on_restart="raise"):
        assert_type(item, Chunk[str] | Restarted)
        match item:
            case Chunk(value=value):
                assert_type(value, str)
            case Restarted(attempt=attempt):
                assert_type(attempt, int)
    assert_type(await (await count.enqueue(5)).result(), list[int])
    assert_type(count.job("id").stream(), AsyncGenerator[Chunk[int] | Restarted])
    assert_type(await (await lines.enqueue()).result(), None)
    assert_type(await rows.enqueue_many([rows.call("a")]), list[StreamJob[None, dict[str, int]]])
    assert_type(Queue("q").job("id").stream(), AsyncGenerator[Chunk[Any] | Restarted])


def without_a_loop() -> None:
    assert_type(lines.enqueue_sync(), SyncStreamJob[None, bytes])
    assert_type(lines.job_sync("id").stream(), Generator[Chunk[bytes] | Restarted])
    assert_type(count.enqueue_sync(5).result(), list[int])
    assert_type(SyncQueue("q").job("id").stream(), Generator[Chunk[Any] | Restarted])


async def what_is_refused() -> None:
    """Each of these must be an error: the ignore of one that is none is reported."""
    await answer.enqueue(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await count.enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    (await answer.enqueue("")).stream(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    (await answer.enqueue("")).stream(on_restart="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
