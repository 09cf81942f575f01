import asyncio
import importlib
import os
import resource
import signal
import sys
import threading
import time
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tampu.consumer.runners import child_process
from tampu.outcome import Done, Failed, Released
from tampu.wire.dead import Failure
from tests.unit.consumer.runners import child_handlers as handlers
from tests.unit.consumer.runners.child_runs import (
    Make,
    children_of_this_process,
    is_gone,
    open_files,
    pid_in,
    pid_of,
    request,
    run,
    unexpected,
    value_of,
)
from tests.waiting import wait_until

SLOW_IN_CHILDREN = """
import multiprocessing, time
if multiprocessing.parent_process() is not None:
    time.sleep(0.6)
def echo(job):
    return job.data
"""


@pytest.mark.parametrize(
    ("data", "how"),
    [
        ("exit", "exit code 3"),
        ("kill", "signal SIGKILL"),
        ("segfault", "signal SIGSEGV"),
        ("fork", "exit code 4"),
        ("closes", "exit code 1"),
    ],
)
async def test_a_child_that_crashes_fails_the_attempt_and_is_replaced(
    make: Make, data: str, how: str
) -> None:
    children = make(handlers.crashes)
    first = await pid_of(children)
    async with asyncio.timeout(20):
        outcome = await run(children, data)
    assert outcome == Failed(Failure("ProcessCrashed", f"the child process ended with {how}"))
    assert is_gone(first)
    assert await pid_of(children) != first


async def test_where_a_process_has_no_descriptor_its_end_is_polled(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    children = make(handlers.crashes)
    first = await pid_of(children)
    async with asyncio.timeout(20):
        outcome = await run(children, "exit")
    assert outcome == Failed(Failure("ProcessCrashed", "the child process ended with exit code 3"))
    assert is_gone(first)


@pytest.mark.parametrize("has_descriptor", [True, False])
async def test_the_end_of_a_child_is_noticed_even_if_the_program_waits_for_it_first(
    make: Make,
    pid_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_descriptor: bool,  # noqa: FBT001
) -> None:
    if not has_descriptor:
        monkeypatch.delattr(os, "pidfd_open")
    children = make(handlers.sleeps)
    running = asyncio.create_task(run(children, [str(pid_file), 60]))
    pid = await pid_in(pid_file)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)  # noqa: ASYNC222 - before the loop can
    async with asyncio.timeout(20):
        assert await running == Failed(Failure("ProcessCrashed", "the child process ended"))
        assert isinstance(await run(children, [str(pid_file), 0]), Done)
        await children.close()


async def test_a_child_that_died_while_idle_costs_no_attempt(make: Make) -> None:
    children = make(handlers.pid, limit=2)
    first = await pid_of(children)
    os.kill(first, signal.SIGKILL)  # and at once, while it may still be dying, the next job
    assert await pid_of(children) != first
    await wait_until(lambda: is_gone(first), within=60, sentence="no zombie is left")


async def test_at_the_time_limit_the_attempt_fails_and_the_child_is_killed(
    make: Make, pid_file: Path
) -> None:
    children = make(handlers.sleeps)
    assert isinstance(await run(children, [str(pid_file), 0]), Done)  # ready: it may be slow
    began = time.monotonic()
    outcome = await children.run(request([str(pid_file), 60]), timeout_s=0.2, on_report=unexpected)
    assert outcome == Failed(Failure("JobTimeout", "it ran longer than its time limit of 0.2 s"))
    assert 0.2 <= time.monotonic() - began < 20
    assert is_gone(await pid_in(pid_file))
    assert isinstance(await run(children, [str(pid_file), 0]), Done)


async def test_the_time_limit_does_not_count_the_start_of_a_child(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_in_children.py").write_text(SLOW_IN_CHILDREN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow_in_children", raising=False)
    echo = importlib.import_module("slow_in_children").echo
    outcome = await make(echo).run(request(1), timeout_s=0.5, on_report=unexpected)
    assert outcome == Done(1)


async def test_cancelling_kills_the_child(
    make: Make, pid_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "END_LIMIT_S", 60)  # it is not left to end by itself
    children = make(handlers.sleeps)
    task = asyncio.create_task(run(children, [str(pid_file), 60]))
    pid = await pid_in(pid_file)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: is_gone(pid), within=60, sentence="the child is gone")
    assert isinstance(await run(children, [str(pid_file), 0]), Done)


async def test_cancelling_while_a_child_starts_leaves_none(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "END_LIMIT_S", 60)
    resource_tracker.ensure_running()
    before = children_of_this_process()
    children = make(handlers.echo)
    task = asyncio.create_task(run(children, 1))
    await wait_until(
        lambda: children_of_this_process() != before, within=60, sentence="a child was started"
    )
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: children_of_this_process() == before, within=60, sentence="it is gone")


async def test_signals_for_the_whole_group_do_not_end_a_child(make: Make) -> None:
    children = make(handlers.signals_itself)
    assert [await value_of(children) for _ in range(2)] == ["alive", "alive"]


async def test_signals_that_come_while_a_child_starts_do_not_end_it(make: Make) -> None:
    resource_tracker.ensure_running()
    before = children_of_this_process()
    task = asyncio.create_task(value_of(make(handlers.echo), 1))
    await wait_until(
        lambda: children_of_this_process() != before, within=60, sentence="a child was started"
    )
    for pid in children_of_this_process() - before:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    assert await task == 1


async def test_programs_that_a_handler_starts_can_be_terminated(make: Make) -> None:
    assert await value_of(make(handlers.ends_a_program)) == -signal.SIGTERM


async def test_a_child_that_is_not_ready_in_time_is_killed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "START_LIMIT_S", 0.001)
    before = children_of_this_process()
    children = make(handlers.echo)
    outcome = await run(children)
    assert outcome == Failed(Failure("ProcessCrashed", "no child process was ready in 0.001 s"))
    await children.close()
    assert children_of_this_process() <= before | {tracker_pid()}


async def test_an_attempt_fails_and_leaves_nothing_if_no_process_can_be_started(make: Make) -> None:
    resource_tracker.ensure_running()
    children = make(handlers.echo)
    files = open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files + 3, hard))  # a socket pair, and no more
    try:
        outcome = await run(children)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(outcome, Failed)
    assert outcome.failure.error_type == "OSError"
    assert open_files() == files
    assert await value_of(children, 1) == 1


def tracker_pid() -> int:
    """The helper that multiprocessing starts with its first process and keeps."""
    pid: int = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    return pid


async def test_building_starts_nothing_and_closing_leaves_nothing(make: Make) -> None:
    resource_tracker.ensure_running()
    processes, files, threads = children_of_this_process(), open_files(), threading.active_count()
    children = make(handlers.crashes, limit=3)
    assert children_of_this_process() == processes
    await asyncio.gather(*(run(children, data) for data in ("", "kill", "exit", "", "", "")))
    assert children_of_this_process() != processes
    await children.close()
    await children.close()
    assert children_of_this_process() == processes
    assert open_files() == files
    assert threading.active_count() == threads
    assert len(asyncio.all_tasks()) == 1


async def test_closing_kills_busy_children_and_releases_their_jobs(
    make: Make, pid_file: Path
) -> None:
    children = make(handlers.sleeps)
    running = asyncio.create_task(run(children, [str(pid_file), 60]))
    waiting = asyncio.create_task(run(children, [str(pid_file), 60]))
    pid = await pid_in(pid_file)
    async with asyncio.timeout(20):
        await children.close()
        assert is_gone(pid)
        assert await running == await waiting == Released()
    assert await run(children, [str(pid_file), 0]) == Released()


async def test_an_idle_child_that_does_not_end_by_itself_is_killed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "END_LIMIT_S", 0.1)
    resource_tracker.ensure_running()
    before = children_of_this_process()
    children = make(handlers.leaves_a_thread)
    await value_of(children)
    async with asyncio.timeout(20):
        await children.close()
    assert children_of_this_process() == before
