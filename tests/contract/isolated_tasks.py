"""Tasks that child processes can import."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tampu import INJECTED, App, Concurrency, Depends, Job, RateLimited, Results

app = App()


@dataclass(frozen=True)
class Picture:
    name: str
    width: int


async def open_source(job: Job[Any]) -> AsyncIterator[str]:
    yield f"opened for attempt {job.attempt}"


def open_plain_source() -> Iterator[str]:
    yield "plainly opened"


@asynccontextmanager
async def set_mark(job: Job[Any]) -> AsyncIterator[None]:
    os.environ["TAMPU_TEST_MARK"] = job.name
    yield


@app.task(isolation="process")
def shrink(picture: Picture, pid: int) -> Picture:
    assert os.getpid() != pid
    return Picture(picture.name, picture.width // 2)


@app.task(isolation="process")
async def store(name: str, source: str = Depends(open_source), job: Job[Any] = INJECTED) -> str:
    return f"{name} {source} {job.name}"


@app.task(isolation="process")
def plain(source: str = Depends(open_plain_source)) -> str:
    return source


@app.task(isolation="process", limits=[app.limit("api", Concurrency(1))])
def call_api(name: str, mark: str, job: Job[Any] = INJECTED) -> list[object]:
    """Meets a rate limit the first time."""
    if not Path(mark).exists():
        Path(mark).touch()
        raise RateLimited("100ms", limit="api")
    return [name, job.attempt]


@app.task(isolation="process", middleware=[set_mark])
def marked() -> str:
    return os.environ["TAMPU_TEST_MARK"]


@app.task
async def give(number: int) -> int:
    return number


@app.task(isolation="process", attempts=1)
async def sum_up(results: Results[int]) -> int:
    return sum([each async for each in results])


@app.task(isolation="process", attempts=1)
def add_more(more: int) -> None:
    with app.own_batch_sync() as batch:
        batch.add(add_more, more - 1)


@app.task(isolation="process", collect=list[int])
async def count_up(most: int, pid: int) -> AsyncIterator[int]:
    assert os.getpid() != pid
    for number in range(most):
        yield number


@app.task(isolation="process", collect=sum)
def count_up_plainly(most: int, pid: int) -> Iterator[int]:
    assert os.getpid() != pid
    yield from range(most)


@app.task(isolation="process", window=2)
def count_in_a_window(most: int, file: str) -> Iterator[int]:
    for number in range(most):
        yield number
        Path(file).write_text(str(number))


@app.task(isolation="process", attempts=2)
def crash_once(marker: str) -> Iterator[str]:
    yield "first"
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(3)
    yield "second"
