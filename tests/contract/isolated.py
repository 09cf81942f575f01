"""Tasks that child processes can import."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tampu import INJECTED, App, Depends, Job

app = App()


@dataclass(frozen=True)
class Picture:
    name: str
    width: int


async def opened(job: Job[Any]) -> AsyncIterator[str]:
    yield f"opened for attempt {job.attempt}"


def plainly_opened() -> Iterator[str]:
    yield "plainly opened"


@asynccontextmanager
async def marking(job: Job[Any]) -> AsyncIterator[None]:
    os.environ["TAMPU_TEST_MARK"] = job.name
    yield


@app.task(isolation="process")
def shrink(picture: Picture, pid: int) -> Picture:
    assert os.getpid() != pid
    return Picture(picture.name, picture.width // 2)


@app.task(isolation="process")
async def store(name: str, source: str = Depends(opened), job: Job[Any] = INJECTED) -> str:
    return f"{name} {source} {job.name}"


@app.task(isolation="process")
def plain(source: str = Depends(plainly_opened)) -> str:
    return source


@app.task(isolation="process", middleware=[marking])
def marked() -> str:
    return os.environ["TAMPU_TEST_MARK"]
