"""The server's clock jumps by an hour while jobs run."""

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tampu import Backoff, Job, Queue
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.conftest import Start
from tests.faults.conftest import QUEUE, StartWorker
from tests.faults.jobs import add_all
from tests.faults.ledger import Kind, Ledger, check
from tests.faults.worker_process import Handlers, gate_of
from tests.servers import RunningServer
from tests.waiting import wait_until

KEYS = QueueKeys(QUEUE)
HOUR_S = 3600
LEASE_MS = 30_000  # unless the worker is told otherwise
JOBS = 20

Jump = Callable[[int], None]


@pytest.fixture
def shifted(
    shift_library: Path, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[RunningServer, Jump]:
    """A server and how to move its clock."""
    offset = tmp_path / "offset"
    offset.write_bytes(struct.pack("q", 0))
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(shift_library))
        patch.setenv("CLOCKSHIFT", str(offset))
        server = start()

    def jump(seconds: int) -> None:
        with server.admin() as admin, offset.open("r+b") as file:
            before = admin.time()[0]
            file.write(struct.pack("q", seconds))
            file.flush()
            if abs(admin.time()[0] - before - seconds) > 60:
                pytest.skip("the library does not shift this server's clock: linked statically")

    return server, jump


@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S], ids=["ahead", "back"])
async def test_a_jump_loses_nothing_and_the_dead_are_still_noticed(
    shifted: tuple[RunningServer, Jump], ledger: Ledger, start_worker: StartWorker, seconds: int
) -> None:
    server, jump = shifted
    async with Queue(QUEUE, server.url) as queue:
        first = await start_worker(url=server.url, concurrency=JOBS)
        await begin(queue, ledger, "value", range(JOBS))
        handlers = Handlers(ledger, lambda: second.id)
        async with Worker(QUEUE, handlers.by_name(), server.url) as second:
            jump(seconds)
            if seconds > 0:
                ledger.fault(first.id)  # its sign of life has run out: what it holds may be taken
            await add_all(queue, ledger, "short", range(JOBS, 2 * JOBS))
            await until_done(ledger, range(JOBS, 2 * JOBS))
            for number in (1, 2):
                gate_of(ledger, number).touch()
            await until_done(ledger, range(JOBS))
        check(ledger.lines()).assert_sound()

        with server.admin() as admin:
            mark = KEYS.worker(first.id.encode())
            await wait_until(
                lambda: 0 < admin.pttl(mark) <= LEASE_MS,
                within=60,
                sentence="it says that it lives",
            )
        await begin(queue, ledger, "hang", range(2 * JOBS, 3 * JOBS))
        handlers = Handlers(ledger, lambda: third.id)
        async with Worker(QUEUE, handlers.by_name(), server.url) as third:
            await first.kill()
            await until_done(ledger, range(2 * JOBS, 3 * JOBS))
        report = check(ledger.lines())
        report.assert_sound()
        assert max(report.runs.values()) <= 2


@pytest.mark.every_server
@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S], ids=["ahead", "back"])
async def test_delays_and_backoff_count_by_the_server_s_clock_however_far_it_is_off(
    shifted: tuple[RunningServer, Jump], seconds: int
) -> None:
    server, jump = shifted
    jump(seconds)
    began: list[float] = []

    async def handle(job: Job[Any]) -> None:
        began.append(time.time())
        if job.attempt == 1:
            raise RuntimeError("the first attempt")

    retry = Backoff.fixed(0.3)
    async with Queue(QUEUE, server.url) as queue, Worker(QUEUE, handle, server.url, backoff=retry):
        added = time.time()
        await queue.add("a", delay=0.3)
        await wait_until(lambda: len(began) == 2, within=60, sentence="it ran twice")
    first, second = began
    assert 0.3 <= first - added < HOUR_S / 2
    assert 0.3 <= second - first < HOUR_S / 2


async def begin(queue: Queue, ledger: Ledger, name: str, tags: range) -> None:
    """Add jobs, and return when all of them are running."""
    await add_all(queue, ledger, name, tags)
    await wait_until(
        lambda: told(ledger, Kind.STARTED) >= set(map(str, tags)),
        within=60,
        sentence="all jobs are running",
    )


async def until_done(ledger: Ledger, tags: range) -> None:
    await wait_until(
        lambda: told(ledger, Kind.DONE) >= set(map(str, tags)), within=60, sentence="they are done"
    )


def told(ledger: Ledger, kind: Kind) -> set[str]:
    return {line.tag for line in ledger.lines() if line.kind is kind}
