"""SyncQueue: a queue for threads without an event loop."""

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection

import pytest
import redis

from tampu import (
    Closed,
    NewJob,
    OptionError,
    QueueFull,
    ResultTimeout,
    ServerError,
    SyncQueue,
    WrongContext,
)
from tests.contract.queues import (
    KEYS,
    QUEUE,
    delayed,
    flat_entries,
    script_calls,
    waiting,
    waiting_ids,
)
from tests.servers import RunningServer
from tests.waiting import block_until


@pytest.fixture
def queue(running: RunningServer) -> Iterator[SyncQueue]:
    with SyncQueue(QUEUE, running.url) as opened:
        yield opened


def blocked(admin: redis.Redis) -> int:
    return int(admin.info("clients")["blocked_clients"])


def portals() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "tampu-portal"]


def test_methods_work_as_those_of_queue(queue: SyncQueue, admin: redis.Redis) -> None:
    one = queue.add("a", {"x": 1}, tenant="t")
    two, three = queue.add_many([NewJob("b", 2), NewJob("c", 3, delay=60, job_id="later")])
    (four,) = queue.add_each("d", iter([4]))
    assert waiting_ids(admin) == [one.id, two.id, four.id]
    assert (three.id, len(delayed(admin))) == ("later", 1)
    found = queue.counts()
    assert (found.waiting, found.delayed) == (3, 1)
    admin.set(KEYS.result(one.id), b"\x01")
    assert one.result(timeout=10) == queue.job(one.id).result() == 1
    assert queue.results([one.id, two.id]) == {one.id: 1}
    with pytest.raises(ResultTimeout):
        two.result(timeout=0.05)


def test_a_job_has_the_added_values(queue: SyncQueue) -> None:
    job, again = queue.add("a", [1], job_id="x"), queue.add("a", [2], job_id="x")
    assert (job.id, job.name, job.data, job.duplicate) == ("x", "a", [1], False)
    assert again.duplicate
    assert abs(job.created_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert repr(job) == "<SyncJob x 'a'>"
    assert repr(queue) == "<SyncQueue 'emails'>"


def test_dead_letters_can_be_read_and_replayed(queue: SyncQueue, admin: redis.Redis) -> None:
    job = queue.add("a", 1)
    (flat,) = flat_entries(admin)
    for _ in range(3):
        admin.execute_command("XADD", KEYS.dead, "*", *flat, "reason", "unrecoverable")
    assert [letter.job_id for letter in queue.dead.peek(2)] == [job.id, job.id]
    assert queue.dead.replay(1) == 1
    assert queue.dead.purge(everything=True) == 2
    assert len(waiting(admin)) == 2


def test_threads_share_a_queue_and_their_adds_are_joined(
    queue: SyncQueue, admin: redis.Redis
) -> None:
    queue.add("warm")
    admin.config_resetstat()
    with ThreadPoolExecutor(16) as threads:
        jobs = list(threads.map(lambda number: queue.add("a", number), range(800)))
    assert sorted(waiting_ids(admin)[1:]) == sorted(job.id for job in jobs)
    assert [job.data for job in jobs] == list(range(800))
    assert script_calls(admin) < 800
    assert len(portals()) == 1


def test_errors_are_raised_in_the_calling_thread(running: RunningServer) -> None:
    with SyncQueue(QUEUE, running.url, max_len=1) as queue:
        with pytest.raises(OptionError, match=r"^Invalid delay -1"):
            queue.add("a", delay=-1)
        queue.add("a")
        with pytest.raises(QueueFull):
            queue.add("a")
    with pytest.raises(OptionError, match=r"^Invalid max_len 0"):
        SyncQueue(QUEUE, running.url, max_len=0)


def test_it_connects_on_first_use_and_cannot_be_reopened(
    running: RunningServer, admin: redis.Redis
) -> None:
    before = len(admin.client_list())
    queue = SyncQueue(QUEUE, running.url)
    assert portals() == []
    queue.add("a")
    assert [each.daemon for each in portals()] == [True]
    queue.close()
    queue.close()
    assert portals() == []
    with pytest.raises(Closed):
        queue.add("a")
    block_until(
        lambda: len(admin.client_list()) == before, within=60, sentence="no connection is left"
    )


def test_closing_ends_calls_that_wait(running: RunningServer, admin: redis.Redis) -> None:
    queue = SyncQueue(QUEUE, running.url)
    job = queue.add("a")
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            job.result(timeout=60)
        except ServerError as error:  # Closed, or ConnectionLost if it was just asking
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    block_until(
        lambda: blocked(admin) == 1, within=60, sentence="the waiter listens for its result"
    )
    queue.close()
    waiter.join(20)
    assert not waiter.is_alive()
    assert len(raised) == 1


def test_a_call_from_its_own_loop_is_refused(
    queue: SyncQueue,
) -> None:
    async def call_within() -> str:
        with pytest.raises(WrongContext, match="loop"):
            queue.counts()
        with pytest.raises(WrongContext, match="loop"):
            queue.close()
        return "refused"

    assert queue._portal.call(call_within) == "refused"
    assert queue.counts().waiting == 0


async def test_it_may_be_used_next_to_a_loop_in_another_thread(running: RunningServer) -> None:
    with SyncQueue(QUEUE, running.url) as queue:
        job = await asyncio.to_thread(queue.add, "a", 1)
        assert job.data == 1


def _use_after_fork(queue: SyncQueue, answer: Connection) -> None:
    try:
        queue.add("a")
    except WrongContext as error:
        answer.send(str(error))
    queue.close()
    answer.close()
    os._exit(0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # that threads and forks do not mix
def test_it_cannot_be_used_after_a_fork(queue: SyncQueue) -> None:
    queue.add("a")
    fork = multiprocessing.get_context("fork")
    mine, theirs = fork.Pipe()
    child = fork.Process(target=_use_after_fork, args=(queue, theirs), daemon=True)
    child.start()
    try:
        assert mine.poll(10), "the child waits for a thread that it does not have"
        assert "fork" in mine.recv()
        child.join(10)
        assert child.exitcode == 0
    finally:
        child.kill()
    assert queue.counts().waiting == 1


def test_a_failed_connection_leaves_no_thread() -> None:
    before = len(portals())
    with pytest.raises(ServerError), SyncQueue(QUEUE, "redis://127.0.0.1:1/0"):
        pass
    block_until(lambda: len(portals()) == before, within=60, sentence="the thread has ended")
