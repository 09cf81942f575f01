"""Records the history of a queue every ten seconds: counts, times, gauges, and how we are doing."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from contextlib import suppress
from time import monotonic, process_time
from typing import TYPE_CHECKING, Final, NamedTuple

from tampu._version import __version__
from tampu.admin.history import measure_gauges, read_memory
from tampu.server.scripts.history import record
from tampu.server.service import Background, Service
from tampu.server.streams import server_time_ms, store_for
from tampu.util.clock import until_tick
from tampu.wire.history import Gauges, PackedProcess, PackedRun, encode_history

if TYPE_CHECKING:
    from collections.abc import Callable

    from tampu.consumer.intake import Delivery
    from tampu.consumer.pool import Pool
    from tampu.consumer.recorder import Recorder
    from tampu.server.lane import Lane
    from tampu.server.scripts.workers import Membership
    from tampu.services.reaper import Fleet
    from tampu.wire.keys import QueueKeys

EVERY_S: Final = 10.0
REPORT_TTL_MS: Final = 35_000
_LAG_EVERY_S: Final = 1.0
_LONGEST_S: Final = 60.0
_FLEET_A_PERIOD: Final = 20  # in larger fleets each worker records less often
_LAST_FLUSH_S: Final = 2.0
_MOST_RUNNING: Final = 50
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class ProcessMeter(Background):
    """Measures this process: its memory, processor time, and the delay of its event loop."""

    name = "process-meter"

    def __init__(self, app_version: str) -> None:
        self._app_version = app_version
        self._longest_lag_s = 0.0  # in this period
        self._lag_s = 0.0  # in the one before
        self._cpu_at, self._cpu_s = monotonic(), process_time()
        self._cpu = 0.0

    async def run(self) -> None:
        """Note how much later than asked for the loop wakes us."""
        while True:
            due = monotonic() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            self._longest_lag_s = max(self._longest_lag_s, monotonic() - due)

    def measure(self) -> None:
        """Begin a new period; called once in ten seconds, however many queues there are."""
        now, cpu_s = monotonic(), process_time()
        if now - self._cpu_at >= EVERY_S / 2:
            self._cpu = (cpu_s - self._cpu_s) / (now - self._cpu_at)
            self._cpu_at, self._cpu_s = now, cpu_s
            self._lag_s, self._longest_lag_s = self._longest_lag_s, 0.0

    def report(
        self, running: list[PackedRun], *, at_ms: int, slots: int, busy: int
    ) -> PackedProcess:
        """The state of the process, with the jobs of one queue."""
        self.measure()
        lag_ms = round(max(self._lag_s, self._longest_lag_s) * 1000, 1)
        return PackedProcess(
            at_ms=at_ms,
            host=socket.gethostname(),
            pid=os.getpid(),
            rss_bytes=resident_bytes(),
            cpu=round(self._cpu, 3),
            lag_ms=lag_ms,
            slots=slots,
            running=running,
            busy=busy,
            version=__version__,
            python=platform.python_version(),
            app_version=self._app_version,
        )


def resident_bytes() -> int:
    """The memory of this process that is in RAM; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
    return 0


class GaugeRecorder:
    """Records how many jobs a queue has, for whoever leads its promoter."""

    def __init__(self, lane: Lane, keys: QueueKeys, group: bytes) -> None:
        self._lane, self._keys, self._group = lane, keys, group
        self._last: Gauges | None = None
        self._read_memory_at = 0.0

    async def record(self, at_s: float, *, has_news: bool) -> None:
        """Record the gauges if they have changed or there is news, and at least once a minute."""
        is_stale = monotonic() - self._read_memory_at >= _LONGEST_S - EVERY_S / 2
        before = None if is_stale else self._last
        gauges = await measure_gauges(self._lane, self._keys, self._group, since=before)
        if is_stale:
            gauges = gauges.with_memory(await read_memory(self._lane))
        if gauges == before and not has_news:
            return
        await record(self._lane, self._keys, {}, at_s=at_s, gauges=gauges)
        self._last = gauges
        if is_stale:
            self._read_memory_at = monotonic()


class GaugeService(Service):
    """Records the gauges of a queue while `leads` says so, where no worker does."""

    name = "gauges"

    def __init__(
        self, lane: Lane, keys: QueueKeys, group: bytes, *, leads: Callable[[], bool]
    ) -> None:
        super().__init__(lane.server.outage, f"{self.name} of queue {keys.name!r}")
        self._lane, self._leads = lane, leads
        self._recorder = GaugeRecorder(lane, keys, group)

    async def tick(self) -> float:
        """Record them."""
        if self._leads():
            now_ms = await server_time_ms(self._lane)
            await self._recorder.record(now_ms / 1000, has_news=False)
        return until_tick(EVERY_S)


class RecordedWorker(NamedTuple):
    """The parts of a worker, for one queue, that its history is about."""

    member: Membership
    pool: Pool
    recorder: Recorder
    fleet: Fleet
    meter: ProcessMeter


class HistoryService(Service):
    """Records what a worker has done. The leader of the promoter records the gauges as well."""

    name = "history"

    def __init__(
        self, lane: Lane, keys: QueueKeys, worker: RecordedWorker, *, leads: Callable[[], bool]
    ) -> None:
        super().__init__(lane.server.outage, f"{self.name} of queue {keys.name!r}")
        self._lane, self._keys, self._leads = lane, keys, leads
        self._member, self._pool, self._recorder, self._fleet, self._meter = worker
        self._flushed_at = self._reported_at = monotonic()
        self._gauges = GaugeRecorder(lane, keys, worker.member.group)
        self._knows_clock = False

    async def tick(self) -> float:
        """Record, report and measure."""
        if not self._knows_clock:
            self._recorder.learn_clock(await server_time_ms(self._lane))
            self._knows_clock = True
            return until_tick(EVERY_S)
        now = monotonic()
        if now - self._flushed_at >= self._period_s() - EVERY_S / 2 and self._recorder.has_news:
            await self._flush()
        await self._report()
        if self._leads():
            at_s, has_news = self._recorder.server_ms() / 1000, self._recorder.has_news
            await self._gauges.record(at_s, has_news=has_news)
        return until_tick(EVERY_S)

    async def clean_up(self) -> None:
        """Record what is left, here and of workers that were killed, and remove our report."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_FLUSH_S):
                await self._flush()
                await self._lane.call("UNLINK", self._keys.process(self._member.consumer))

    def _period_s(self) -> float:
        """All workers of a large fleet together record about as often as twenty of them."""
        return min(_LONGEST_S, EVERY_S * max(1.0, self._fleet.size / _FLEET_A_PERIOD))

    async def _flush(self) -> None:
        self._flushed_at = monotonic()
        await self._recorder.flush()

    async def _report(self) -> None:
        running = self._pool.running()
        oldest = sorted(running, key=lambda each: each.read_at)[:_MOST_RUNNING]
        at_ms = self._recorder.server_ms()
        shown = [_pack_run(each, at_ms) for each in oldest]
        report = self._meter.report(shown, at_ms=at_ms, slots=self._pool.size, busy=len(running))
        self._reported_at = monotonic()
        key = self._keys.process(self._member.consumer)
        await store_for(self._lane, key, encode_history(report), ttl_ms=REPORT_TTL_MS)


def _pack_run(delivery: Delivery, at_ms: int) -> PackedRun:
    # When a handler starts is not kept, because that costs time. It was after the entry was read,
    # and mostly at once.
    job, age_s = delivery.job, monotonic() - delivery.read_at
    return PackedRun(job.id, job.name, job.attempt, at_ms - round(age_s * 1000))
