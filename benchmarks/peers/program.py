"""`python -m benchmarks.peers.program PEER add|work`: runs with the Python of a peer's environment.

`add` reads requests from stdin, each a line of JSON, and answers on stdout. `work` runs a worker
until it is killed.
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

from benchmarks.peers import protocol


class Producer(Protocol):
    """What `producer()` of a peer's file yields. A method may block if the peer's calls do."""

    async def add(self) -> object:
        """Add one job with DATA."""

    async def add_many(self, jobs: int) -> object:
        """Add this many jobs of the scenario, in the fastest way that the peer has."""

    async def add_urgent(self) -> object:
        """Add one job with URGENT that goes before all others. Only for peers with priorities."""

    async def add_group(self, size: int) -> object:
        """Add a group of jobs with DATA and a job that joins them. Only for peers with groups."""

    async def add_at(self, due: float) -> object:
        """Add one job that is due at an instant. Its data is the instant."""

    async def result(self) -> object:
        """Add one job and wait for its result."""


def main() -> None:
    """Run the producer or the worker of a peer."""
    name, role = sys.argv[1:]
    peer = import_module(f"benchmarks.peers.{name}")
    if role == "work":
        peer.work()
        return
    loops = import_module("uvloop" if find_spec("uvloop") else "asyncio")
    loops.run(_answer(peer.producer()))
    os._exit(0)  # an engine's threads may outlive the loop and break the interpreter's shutdown


async def _answer(opening: AbstractAsyncContextManager[Producer]) -> None:
    loop = asyncio.get_running_loop()
    async with opening as producer:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(await _carry_out(producer, json.loads(line))), flush=True)


async def _carry_out(producer: Producer, request: dict[str, Any]) -> dict[str, float]:
    match request["do"]:
        case protocol.ADD:
            return await _time_calls(producer.add, request["jobs"], request["limit_s"])
        case protocol.ADD_MANY:
            per_call = request["jobs_per_call"]
            calls = request["jobs"] // per_call
            timed = await _time_calls(
                lambda: producer.add_many(per_call), calls, request["limit_s"]
            )
            return {**timed, "jobs": timed["jobs"] * per_call}
        case protocol.ADD_ONE | protocol.ADD_URGENT as which:
            add = producer.add if which == protocol.ADD_ONE else producer.add_urgent
            at = time()
            await add()
            return {"at": at}
        case protocol.ADD_DELAYED | protocol.ADD_GROUPS:
            return await _add_others(producer, request)
        case protocol.WAIT_FOR_RESULT:
            began = perf_counter()
            await producer.result()
            return {"ms": 1000 * (perf_counter() - began)}
        case unknown:
            raise ValueError(unknown)


async def _add_others(producer: Producer, request: dict[str, Any]) -> dict[str, float]:
    """Add delayed jobs, or groups of jobs."""
    at = time()
    for due in request.get("due", ()):
        await producer.add_at(due)
    for _ in range(request.get("groups", 0)):
        await producer.add_group(request["size"])
    return {"at": at}


async def _time_calls(
    call: Callable[[], Awaitable[object]], calls: int, limit_s: float
) -> dict[str, float]:
    """Make this many calls, one after another, or as many as the time limit allows."""
    began = perf_counter()
    done, taken = 0, 0.0
    while done < calls and taken < limit_s:
        await call()
        done += 1
        taken = perf_counter() - began
    return {"jobs": done, "s": taken}


if __name__ == "__main__":
    main()
