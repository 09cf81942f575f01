"""`python -m benchmarks.peers.program PEER add|work`: run by a peer's own Python.

`add` reads what is asked from stdin, a JSON line each, and answers on stdout. `work` runs a
worker until it is ended.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter, time
from typing import Any, Protocol

from benchmarks.peers import asked as ask


class Producer(Protocol):
    """What a peer's file offers as `producer()`; waits, where the peer's own calls block."""

    async def add(self) -> object:
        """Add one job with DATA."""

    async def add_many(self, jobs: int) -> object:
        """Add so many of them in the fastest way that the peer has."""

    async def add_at(self, due: float) -> object:
        """Add one that is due at an instant, with that as its data."""

    async def result(self) -> object:
        """Add one and wait for its result."""


def main() -> None:
    """Be one side of a peer."""
    name, side = sys.argv[1:]
    peer = import_module(f"benchmarks.peers.{name}")
    if side == "work":
        peer.work()
        return
    loops = import_module("uvloop" if find_spec("uvloop") else "asyncio")
    loops.run(_answer(peer.producer()))
    os._exit(0)  # an engine's threads may outlive the loop and break the interpreter's own end


async def _answer(opened: AbstractAsyncContextManager[Producer]) -> None:
    loop = asyncio.get_running_loop()
    async with opened as producer:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(await _done(producer, json.loads(line))), flush=True)


async def _done(producer: Producer, asked: dict[str, Any]) -> dict[str, float]:
    match asked["do"]:
        case ask.ADD:
            return await _timed(producer.add, asked["jobs"], asked["limit_s"])
        case ask.ADD_MANY:
            a_call = asked["a_call"]
            calls = asked["jobs"] // a_call
            told = await _timed(lambda: producer.add_many(a_call), calls, asked["limit_s"])
            return {**told, "jobs": told["jobs"] * a_call}
        case ask.ONCE:
            at = time()
            await producer.add()
            return {"at": at}
        case ask.DELAY:
            for due in asked["due"]:
                await producer.add_at(due)
            return {}
        case ask.WAIT:
            began = perf_counter()
            await producer.result()
            return {"ms": 1000 * (perf_counter() - began)}
        case unknown:
            raise ValueError(unknown)


async def _timed(
    call: Callable[[], Awaitable[object]], calls: int, limit_s: float
) -> dict[str, float]:
    """So many calls, one after another, or as many as the time allows."""
    began = perf_counter()
    done, taken = 0, 0.0
    while done < calls and taken < limit_s:
        await call()
        done += 1
        taken = perf_counter() - began
    return {"jobs": done, "s": taken}


if __name__ == "__main__":
    main()
