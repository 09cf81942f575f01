"""A worker of flows in a process of its own, which may be killed at any time.

Run as a module it is that process; `GraphWorkers` starts some, and holds them.
"""

import asyncio
import os
import subprocess
import sys
from typing import Any, Final

import redis
import redis.asyncio

from tampu import App, AppWorker, Results
from tampu.services import relay
from tests.servers import ROOT

HOME: Final = "graph-home"
AWAY: Final = "graph-away"
RUNS: Final = "graph:runs"  # how often each child has run
JOINS: Final = "graph:joins"  # what joins have got
GROWS_BY: Final = 100  # so many children at a time: maps grow for a while


class GraphTasks:
    """The tasks of flows whose workers die."""

    def __init__(self, url: str) -> None:
        self.app = App(url, default_queue=HOME)
        self._notes: Any = redis.asyncio.Redis.from_url(url)
        self.child = self.app.task(name="child")(self._child)
        self.child_there = self.app.task(name="child-there", queue=AWAY)(self._child)
        self.numbers = self.app.task(name="numbers", queue=AWAY)(self._numbers)
        self.join = self.app.task(name="join", queue=AWAY)(self._join)

    async def _child(self, number: int) -> int:
        await self._notes.hincrby(RUNS, str(number), 1)
        return number

    async def _numbers(self, first: int, count: int) -> list[int]:
        return list(range(first, first + count))

    async def _join(self, *, here: Results[int], there: Results[int]) -> int:
        total = sum([each async for each in here]) + sum([each async for each in there])
        await self._notes.rpush(JOINS, total)
        return total


class GraphWorkers:
    """Worker processes of both queues."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.alive: dict[int, subprocess.Popen[bytes]] = {}  # by their ids

    async def start(self) -> None:
        """One more; returns when it works."""
        process = self._spawn()
        self.alive[process.pid] = process
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"works\n"

    def _spawn(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", __name__, self._url]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)

    async def kill(self, pid: int) -> None:
        """As kill -9 does it; another one takes its place."""
        self._end(pid)
        await self.start()

    def end(self) -> None:
        """End all of them."""
        for pid in [*self.alive]:
            self._end(pid)

    def _end(self, pid: int) -> None:
        process = self.alive.pop(pid)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def _work(url: str) -> None:
    relay._MOST_A_CALL = GROWS_BY  # type: ignore[misc]
    tasks = GraphTasks(url)
    name = f"p{os.getpid()}"
    async with tasks.app, AppWorker(tasks.app, concurrency=20, name=name):
        print("works", flush=True)  # noqa: T201 - the test waits for it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1]))
