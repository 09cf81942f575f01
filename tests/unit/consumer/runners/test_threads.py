"""Threads that call plain functions for the loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from tampu.consumer.runners.threads import HandlerThreads
from tests.waiting import wait_until

SOON = 60.0


class Gate:
    """A function that waits in its thread until it is opened."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.open.wait(SOON)
        return "opened"

    async def until_begun(self) -> None:
        await wait_until(self.begun.is_set, within=SOON, sentence="the call has begun")


def handler_threads() -> int:
    return sum(each.name.startswith("tampu-handler") for each in threading.enumerate())


@pytest.fixture
async def make() -> AsyncIterator[Callable[[int], HandlerThreads]]:
    """Make threads, which end after the test."""
    all_made: list[HandlerThreads] = []

    def make(size: int) -> HandlerThreads:
        all_made.append(HandlerThreads(size))
        return all_made[-1]

    yield make
    for each in all_made:
        each.close()
    await wait_until(lambda: handler_threads() == 0, within=SOON, sentence="the threads ended")


Make = Callable[[int], HandlerThreads]


async def test_every_call_has_its_own_result(make: Make) -> None:
    threads = make(4)

    def call(number: int) -> "asyncio.Future[int]":
        return threads.call(lambda: number)

    for _ in range(20):
        assert await asyncio.gather(*(call(number) for number in range(50))) == list(range(50))
    assert handler_threads() <= 4


async def test_as_many_calls_run_at_the_same_time_as_there_are_threads(make: Make) -> None:
    threads, together = make(8), threading.Barrier(8)
    for _ in range(5):
        async with asyncio.timeout(SOON):
            await asyncio.gather(*(threads.call(lambda: together.wait(SOON)) for _ in range(8)))


async def test_calls_do_not_wait_behind_a_slow_one_while_a_thread_is_idle(make: Make) -> None:
    threads, slow = make(2), Gate()
    first = threads.call(slow)
    others = [threads.call(lambda: 1) for _ in range(50)]
    async with asyncio.timeout(SOON):
        assert await asyncio.gather(*others) == [1] * 50
    assert not first.done()
    slow.open.set()
    assert await first == "opened"


async def test_a_call_that_is_cancelled_before_it_begins_is_left_out(make: Make) -> None:
    threads, slow, calls = make(1), Gate(), list[str]()
    first = threads.call(slow)
    await slow.until_begun()
    second, third = (threads.call(partial(calls.append, name)) for name in "ab")
    second.cancel()
    slow.open.set()
    await first
    await third
    assert calls == ["b"]


async def test_a_call_that_is_cancelled_while_it_runs_goes_on_and_its_value_is_dropped(
    make: Make,
) -> None:
    threads, slow = make(1), Gate()
    first = threads.call(slow)
    await slow.until_begun()
    first.cancel()
    slow.open.set()
    assert await threads.call(lambda: "next") == "next"


async def test_new_threads_replace_one_that_a_call_holds(make: Make) -> None:
    threads, slow = make(1), Gate()
    first = threads.call(slow)
    await slow.until_begun()
    waiting = threads.call(lambda: "waited")
    threads.replace()
    async with asyncio.timeout(SOON):
        assert await waiting == "waited"
        assert await threads.call(lambda: "next") == "next"
    slow.open.set()
    assert await first == "opened"
    await wait_until(lambda: handler_threads() == 1, within=SOON, sentence="the old one has ended")


async def test_nothing_begins_after_closing_and_what_runs_goes_on(make: Make) -> None:
    threads, slow = make(1), Gate()
    first, second = threads.call(slow), threads.call(lambda: 1)
    await slow.until_begun()
    threads.close()
    threads.replace()
    slow.open.set()
    assert await first == "opened"
    await wait_until(lambda: handler_threads() == 0, within=SOON, sentence="the thread ended")
    assert not second.done()


async def test_a_call_fails_if_no_thread_can_be_started_and_a_later_one_succeeds(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = make(2)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.call(lambda: 1)
    assert await threads.call(lambda: 2) == 2


def test_a_thread_that_outlives_the_loop_ends_quietly() -> None:
    threads, slow = HandlerThreads(1), Gate()

    async def leave() -> None:
        threads.call(slow)
        await slow.until_begun()

    asyncio.run(leave())
    slow.open.set()
    threads.close()
