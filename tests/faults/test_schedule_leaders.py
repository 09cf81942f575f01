"""Whoever leads, dies or wakes up late: each instant of a schedule fires exactly once."""

import asyncio
import os
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import cycle, repeat
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tampu import Every, Queue
from tampu.wire.extras import decode_extras
from tampu.wire.keys import QueueKeys
from tests.faults.conftest import QUEUE
from tests.faults.firer_process import FirerProcess
from tests.servers import RunningServer
from tests.waiting import wait_until

KEYS = QueueKeys(QUEUE)
PROCESSES = 3
# `make faults` has the long form: 50 schedules for a minute, and a leader replaced every 2 s.
LASTS_S = float(os.environ.get("TAMPU_FAULTS_LEADERS_S", "2"))
LONG = LASTS_S > 2
CHANGE_EVERY_S = 2.0 if LONG else 0.5
INTERVALS_MS = [50 + 5 * n for n in range(50 if LONG else 11)]


class Firers:
    """Repeater processes on one server, and the lock they fight for."""

    def __init__(self, running: RunningServer, admin: Any) -> None:  # noqa: ANN401 - a client
        self._running = running
        self._admin = admin
        self.environments: Iterator[dict[str, str]] = repeat({})
        self.processes: list[FirerProcess] = []

    async def join(self) -> None:
        env = next(self.environments)
        self.processes.append(await FirerProcess.start(self._running.url, QUEUE, env))

    def leader(self) -> FirerProcess | None:
        holder = self._admin.get(KEYS.scheduler_lock)
        return next((each for each in self.processes if each.holder == holder), None)

    def lapse(self, of: FirerProcess) -> None:
        """Have a lease run out, which takes 5 s otherwise."""
        if self._admin.get(KEYS.scheduler_lock) == of.holder:
            self._admin.delete(KEYS.scheduler_lock)

    def kill(self, process: FirerProcess) -> None:
        process.kill()
        self.processes.remove(process)
        self.lapse(process)

    async def replace_frozen(self, process: FirerProcess) -> None:
        """Have it sleep until another leads, and then go on."""
        process.freeze()
        try:
            self.lapse(process)
            await wait_until(
                lambda: self.leader() not in {None, process}, within=60, sentence="another leads"
            )
        finally:
            process.thaw()


@pytest.fixture
async def firers(running: RunningServer) -> AsyncIterator[Firers]:
    with running.admin() as admin:
        made = Firers(running, admin)
        try:
            yield made
        finally:
            for process in made.processes:
                with suppress(ProcessLookupError):
                    process.thaw()
                process.kill()


def fired(admin: Any) -> dict[str, list[int]]:  # noqa: ANN401 - a client
    """The instants that each schedule has fired for, in the order of the stream."""
    found: dict[str, list[int]] = defaultdict(list)
    for _, entry in admin.xrange(KEYS.stream):
        extras = decode_extras(entry[b"x"])
        assert extras.schedule_key is not None
        assert extras.scheduled_at_ms is not None
        found[extras.schedule_key].append(extras.scheduled_at_ms)
    return found


@pytest.mark.every_server
@pytest.mark.timeout(60 + 3 * LASTS_S)
async def test_each_instant_fires_exactly_once_while_leaders_die_and_wake_up(
    running: RunningServer, firers: Firers
) -> None:
    await survive(running, firers, LASTS_S)


@pytest.mark.timeout(60 + 3 * LASTS_S)
async def test_programs_whose_clocks_differ_fire_at_the_same_instants(
    running: RunningServer, firers: Firers, shift_library: Path, tmp_path: Path
) -> None:
    environments = []
    for skew_s in (-5, 5, 3600):
        offset = tmp_path / f"{skew_s}"
        offset.write_bytes(struct.pack("q", skew_s))
        environments.append({"LD_PRELOAD": str(shift_library), "CLOCKSHIFT": str(offset)})
    firers.environments = cycle(environments)
    await survive(running, firers, LASTS_S / 2)


async def survive(running: RunningServer, firers: Firers, lasts_s: float) -> None:
    """Replace whoever leads, again and again, and look at what was fired."""
    await asyncio.gather(*(firers.join() for _ in range(PROCESSES)))
    async with Queue(QUEUE, running.url) as queue:
        stored = [
            await queue.schedules.add("tick", Every(ms / 1000), key=f"{ms}") for ms in INTERVALS_MS
        ]
        replaced = 0
        async with asyncio.TaskGroup() as joining:
            ends = monotonic() + lasts_s
            while monotonic() < ends or replaced < 3:
                await wait_until(
                    lambda: firers.leader() is not None, within=60, sentence="somebody leads"
                )
                await asyncio.sleep(CHANGE_EVERY_S)
                if (leader := firers.leader()) is None:
                    continue
                if replaced % 2:
                    await firers.replace_frozen(leader)
                else:
                    firers.kill(leader)
                    joining.create_task(firers.join())
                replaced += 1
        with running.admin() as admin:
            seen = {key: len(found) for key, found in fired(admin).items()}
            await wait_until(
                lambda: all(len(found) > seen[key] for key, found in fired(admin).items()),
                within=60,
                sentence="the last leader has caught up",
            )
            for schedule in stored:
                await queue.schedules.remove(schedule.key)
            found = fired(admin)
    for schedule, interval_ms in zip(stored, INTERVALS_MS, strict=True):
        assert schedule.next_at is not None
        first_ms, told = round(schedule.next_at.timestamp() * 1000), found[schedule.key]
        assert told == [first_ms + interval_ms * n for n in range(len(told))]
        assert len(told) > lasts_s * 1000 / interval_ms / 2
