"""What open pages of the dashboard cost the server, with few and with very many waiting jobs."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import redis

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Unit, Value
from benchmarks.workload import QUEUE
from tampu import Queue
from tampu.wire.keys import QueueKeys

FEW: Final = 1_000
VERY_MANY: Final = 10_000_000
TABS: Final = 20
SETTLE_S: Final = 5.0
MEASURE_S: Final = 15.0
LIMIT_PERCENT: Final = 1.0
CHANGES: Final = 20
UPDATE_LIMIT_MS: Final = 2_000.0
PAGES: Final = (
    {"of": "overview"},
    {"of": "queue", "name": QUEUE},
    {"of": "jobs", "queue": QUEUE},
    {"of": "workers"},
)
"""Each is open in several tabs."""
_COPIES_A_CALL: Final = 50_000
_COPY: Final = """
for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2)) end
"""
_TICKS_A_S: Final = os.sysconf("SC_CLK_TCK")


async def run(bench: Bench) -> list[Figure]:
    """The server's time for commands, its processor time, and that of the dashboard."""
    figures: list[Figure] = []
    for jobs in (FEW, VERY_MANY):
        await bench.fill(1)
        await asyncio.to_thread(_copy, bench, jobs - 1)
        async with _dashboard(bench) as dashboard, _tabs(dashboard.address):
            await asyncio.sleep(SETTLE_S)
            what = f"{TABS} open pages, {jobs:,} jobs"
            figures += await _measure(bench, dashboard, what)
            figures += _update_figures(await _measure_updates(bench, dashboard), what)
    bench.empty()
    return figures


def _copy(bench: Bench, times: int) -> None:
    """Add the job that is there again and again: the server does that by itself."""
    stream = QueueKeys(QUEUE).stream
    with bench.server.admin() as admin:
        ((_, fields),) = admin.xrange(stream)
        flat = [part for pair in fields.items() for part in pair]
        copy = admin.register_script(_COPY)
        for start in range(0, times, _COPIES_A_CALL):
            copy(keys=[stream], args=[min(_COPIES_A_CALL, times - start), *flat])


class _Dashboard:
    def __init__(self, pid: int, address: str) -> None:
        self.pid, self.address = pid, address

    @property
    def cpu_s(self) -> float:
        """The processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_A_S


@asynccontextmanager
async def _dashboard(bench: Bench) -> AsyncIterator[_Dashboard]:
    command = ("-m", "tampu", "dashboard", bench.url, "--port", "0", "--json")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        yield _Dashboard(process.pid, json.loads(line)["url"])
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _tabs(address: str) -> AsyncIterator[None]:
    """Pages that are open, as a browser has them; each is to have arrived."""
    limits = httpx.Limits(max_connections=TABS)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
        arrived = [asyncio.Event() for _ in range(TABS)]
        tabs = [
            asyncio.create_task(_follow(client, PAGES[number % len(PAGES)], event))
            for number, event in enumerate(arrived)
        ]
        try:
            async with asyncio.timeout(60):
                await asyncio.gather(*(event.wait() for event in arrived))
            yield
        finally:
            for tab in tabs:
                tab.cancel()
            await asyncio.gather(*tabs, return_exceptions=True)


async def _follow(client: httpx.AsyncClient, page: dict[str, str], arrived: asyncio.Event) -> None:
    async with client.stream("GET", f"live?{urlencode(page)}") as stream:
        async for line in stream.aiter_lines():
            if line == "event: region":
                arrived.set()


async def _measure_updates(bench: Bench, dashboard: _Dashboard) -> list[float]:
    """Seconds from a change of the queue until an open page has it.

    Each change is made right after the page got the one before, so it waits for a whole round.
    """
    page, took_s = urlencode({"of": "queue", "name": QUEUE}), list[float]()
    async with (
        Queue(QUEUE, bench.url) as queue,
        httpx.AsyncClient(base_url=dashboard.address, timeout=60) as client,
        client.stream("GET", f"live?{page}") as stream,
    ):
        lines = stream.aiter_lines()
        for number in range(CHANGES):
            is_paused = number % 2 == 0
            began = monotonic()
            await (queue.pause() if is_paused else queue.resume())
            async for line in lines:
                if '"name": "state"' in line and ("Paused" in line) is is_paused:
                    break
            took_s.append(monotonic() - began)
    return took_s


def _update_figures(took_s: list[float], what: str) -> list[Figure]:
    longest_ms, usual_ms = 1000 * max(took_s), 1000 * median(took_s)
    return [
        Value(f"{what}: change to page, median", usual_ms, Unit.MS),
        Value(
            f"{what}: change to page, longest of {CHANGES}", longest_ms, Unit.MS, UPDATE_LIMIT_MS
        ),
    ]


async def _measure(bench: Bench, dashboard: _Dashboard, what: str) -> list[Figure]:
    with bench.server.admin() as admin:
        before, began = (_command_s(admin), _cpu_s(admin), dashboard.cpu_s), monotonic()
        await asyncio.sleep(MEASURE_S)
        after, took_s = (_command_s(admin), _cpu_s(admin), dashboard.cpu_s), monotonic() - began
    shares = [100 * (now - then) / took_s for then, now in zip(before, after, strict=True)]
    commands, server, own = shares
    return [
        Value(f"{what}: commands of the server", commands, Unit.PERCENT, LIMIT_PERCENT),
        Value(f"{what}: processor time of the server", server, Unit.PERCENT),
        Value(f"{what}: processor time of the dashboard", own, Unit.PERCENT),
    ]


def _command_s(admin: redis.Redis) -> float:
    """The time that the server has worked on commands, without our own looks at it."""
    stats: dict[str, Any] = admin.info("commandstats")
    spent = [int(each["usec"]) for name, each in stats.items() if name != "cmdstat_info"]
    return sum(spent) / 1e6


def _cpu_s(admin: redis.Redis) -> float:
    used: dict[str, Any] = admin.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
