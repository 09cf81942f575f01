import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from tampu.consumer import children as children_module
from tampu.consumer.child import ChildRequest
from tampu.consumer.children import Children
from tampu.consumer.handler import Function
from tampu.errors import OptionError
from tampu.outcome import Abandoned, Done, Failed, Hopeless, Outcome, PutOff
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.extras import Extras, encode_extras
from tampu.wire.payload import encode_payload
from tests.unit.consumer import child_handlers as handlers
from tests.waiting import block_until, wait_until

Make = Callable[..., Children]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Make children for a handler; all are closed after the test."""
    async with contextlib.AsyncExitStack() as stack:

        def made(function: Function, *, limit: int = 1) -> Children:
            made = Children(function, limit=limit)
            stack.push_async_callback(made.close)
            return made

        yield made


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "pid"


def request(data: object = None, *, job_id: str = "1", **fields: Any) -> ChildRequest:
    payload = encode_payload(data, max_bytes=1 << 30)
    return ChildRequest(
        **{"name": "n", "attempt": 1, "created_at_ms": 5, **fields}, job_id=job_id, payload=payload
    )


async def run(children: Children, data: object = None, **fields: Any) -> Outcome:
    """The outcome of one job, without a time limit."""
    return await children.run(request(data, **fields), timeout_s=None, on_progress=unexpected)


async def value_of(children: Children, data: object = None, **fields: Any) -> Any:  # noqa: ANN401
    outcome = await run(children, data, **fields)
    assert isinstance(outcome, Done), outcome
    return outcome.value


def unexpected(percent: int) -> None:
    raise AssertionError(percent)


async def pid_in(file: Path) -> int:
    """The pid that a handler wrote, as soon as it has."""
    await wait_until(file.exists, within=20, sentence="the handler runs")
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    """Not even a zombie is left."""
    return not Path(f"/proc/{pid}").exists()


def children_of_this_process() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("function", [handlers.echo, handlers.echo_async], ids=["plain", "async"])
async def test_a_handler_gets_the_data_and_its_result_comes_back(
    make: Make, function: Function
) -> None:
    children = make(function)
    for data in (None, {"to": ["ada", 1.5, b"\x00"]}, "é" * 100_000):
        assert await run(children, data) == Done(data)


async def test_a_callable_object_that_can_be_pickled_is_a_handler_too(make: Make) -> None:
    assert await run(make(handlers.Doubling()), 21) == Done(42)


async def test_the_child_has_the_whole_job_and_it_is_the_current_one(make: Make) -> None:
    extras = encode_extras(Extras(tenant="acme"))
    outcome = await run(
        make(handlers.facts), "d", name="mail", attempt=3, created_at_ms=7, extras=extras
    )
    assert outcome == Done(["1", "mail", "d", 3, 7, "acme", True])


async def test_jobs_of_a_child_share_its_loop_but_not_their_context(make: Make) -> None:
    assert len({await value_of(make(handlers.loop_id))}) == 1
    children = make(handlers.sees_context)
    assert [await value_of(children, job_id=id_) for id_ in "ab"] == ["nothing", "nothing"]


async def test_what_a_handler_raises_is_the_same_outcome_as_in_the_worker(make: Make) -> None:
    children = make(handlers.raises)
    outcomes = {data: await run(children, data) for data in handlers.ERRORS}

    retry, snooze = outcomes["retry"], outcomes["snooze"]
    assert isinstance(retry, Failed)
    assert (retry.failure.message, retry.after_ms) == ("later", 3000)
    assert snooze == PutOff(4000)
    for data, message in (("bury", "enough"), ("refused", "no")):
        outcome = outcomes[data]
        assert isinstance(outcome, Hopeless)
        assert (outcome.failure.message, outcome.reason) == (message, BuryReason.UNRECOVERABLE)
    for data, kind, message in (
        ("exit", "SystemExit", "7"),
        ("interrupt", "KeyboardInterrupt", ""),
        ("text", "ValueError", "é ?"),
    ):
        outcome = outcomes[data]
        assert isinstance(outcome, Failed), outcome
        assert (outcome.failure.error_type, outcome.failure.message) == (kind, message)


async def test_the_traceback_begins_with_the_handler(make: Make) -> None:
    for function, name in ((handlers.raises, "raises"), (handlers.raises_plain, "raises_plain")):
        outcome = await run(make(function), "text")
        assert isinstance(outcome, Failed)
        first = outcome.failure.traceback.splitlines()[1]
        assert "child_handlers.py" in first
        assert first.endswith(f"in {name}")


async def test_a_returned_bury_counts_as_raised(make: Make) -> None:
    outcome = await run(make(handlers.returns_bury))
    assert outcome == Hopeless(Failure("tampu.outcome.Bury", "enough"))


@pytest.mark.parametrize("function", [handlers.raises, handlers.raises_plain])
@pytest.mark.parametrize(("data", "kind"), [("exit", "SystemExit"), ("depth", "RecursionError")])
async def test_a_handler_that_exits_or_recurses_fails_and_its_child_lives_on(
    make: Make, function: Function, data: str, kind: str
) -> None:
    children = make(function)
    for _ in range(2):
        before = children_of_this_process()
        outcome = await run(children, data)
        assert isinstance(outcome, Failed)
        assert outcome.failure.error_type == kind
    assert children_of_this_process() == before


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
async def test_a_crashed_child_is_a_failed_attempt_and_is_replaced(
    make: Make, data: str, how: str
) -> None:
    children = make(handlers.crashes)
    first = await value_of(children)
    async with asyncio.timeout(4):
        outcome = await run(children, data)
    assert outcome == Failed(Failure("ProcessCrashed", f"the child process ended with {how}"))
    assert is_gone(first)
    assert await value_of(children) != first


async def test_a_child_that_died_while_idle_costs_no_attempt(make: Make) -> None:
    children = make(handlers.pid, limit=2)
    first = await value_of(children)
    os.kill(first, signal.SIGKILL)
    await wait_until(lambda: state_of(first) == "Z", within=5, sentence="it has ended")
    assert await value_of(children) != first
    await wait_until(lambda: is_gone(first), within=5, sentence="no zombie is left")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_past_its_time_a_job_has_failed_and_its_child_is_killed(
    make: Make, pid_file: Path
) -> None:
    children = make(handlers.sleeps)
    assert isinstance(await run(children, [str(pid_file), 0]), Done)  # ready: it may be slow
    began = time.monotonic()
    outcome = await children.run(
        request([str(pid_file), 60]), timeout_s=0.2, on_progress=unexpected
    )
    assert outcome == Failed(Failure("JobTimeout", "it ran longer than its time limit of 0.2 s"))
    assert 0.2 <= time.monotonic() - began < 2
    assert is_gone(await pid_in(pid_file))
    assert isinstance(await run(children, [str(pid_file), 0]), Done)


async def test_the_time_limit_does_not_count_the_start_of_a_child(make: Make) -> None:
    outcome = await make(handlers.echo).run(request(1), timeout_s=0.05, on_progress=unexpected)
    assert outcome == Done(1)


async def test_cancelling_kills_the_child(make: Make, pid_file: Path) -> None:
    children = make(handlers.sleeps)
    task = asyncio.create_task(run(children, [str(pid_file), 60]))
    pid = await pid_in(pid_file)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: is_gone(pid), within=2, sentence="the child is gone")
    assert isinstance(await run(children, [str(pid_file), 0]), Done)


async def test_cancelling_while_a_child_starts_leaves_none(make: Make) -> None:
    resource_tracker.ensure_running()
    before = children_of_this_process()
    children = make(handlers.echo)
    task = asyncio.create_task(run(children, 1))
    await wait_until(
        lambda: children_of_this_process() != before, within=5, sentence="a child was started"
    )
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: children_of_this_process() == before, within=2, sentence="it is gone")


async def test_fifty_jobs_spread_over_four_children_that_are_used_again(make: Make) -> None:
    children = make(handlers.pid_of_busy, limit=4)
    pids = await asyncio.gather(*(value_of(children) for _ in range(50)))
    assert len(set(pids)) == 4
    assert os.getpid() not in pids


async def test_the_child_that_became_idle_last_is_used_first(make: Make, tmp_path: Path) -> None:
    children = make(handlers.sleeps, limit=3)
    pids = await asyncio.gather(
        *(value_of(children, [str(tmp_path / str(n)), 0.1]) for n in range(3))
    )
    assert len(set(pids)) == 3
    again = {await value_of(children, [str(tmp_path / "again"), 0]) for _ in range(5)}
    assert len(again) == 1


async def test_printing_and_reading_input_disturb_nothing(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    children = make(handlers.prints)
    assert [await value_of(children) for _ in range(3)] == ["printed"] * 3
    assert "hello" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("function", "told"), [(handlers.progresses, [10, 100]), (handlers.progresses_plain, [30])]
)
async def test_progress_arrives_before_the_outcome(
    make: Make, function: Function, told: list[int]
) -> None:
    seen: list[int] = []
    outcome = await make(function).run(request(), timeout_s=None, on_progress=seen.append)
    assert (outcome, seen) == (Done("there"), told)


async def test_progress_of_a_job_that_is_over_is_not_taken_for_the_next_ones(make: Make) -> None:
    children = make(handlers.progresses_late)
    await value_of(children, "leave")
    assert await value_of(children) is True


async def test_a_handler_cannot_wait_for_its_own_result(make: Make) -> None:
    outcome = await run(make(handlers.waits_for_itself))
    assert isinstance(outcome, Failed)
    assert outcome.failure.error_type == "tampu.errors.OutOfPlace"


@pytest.mark.parametrize(
    ("data", "problem"),
    [("object", "MessagePack has no type for builtins.object"), ("size", "67108864 are allowed")],
)
async def test_a_result_that_cannot_be_encoded_is_hopeless(
    make: Make, data: str, problem: str
) -> None:
    outcome = await run(make(handlers.unencodable), data)
    assert isinstance(outcome, Hopeless)
    assert outcome.failure.error_type == "tampu.errors.EncodeError"
    assert problem in outcome.failure.message


async def test_a_large_request_and_a_large_result_pass(make: Make) -> None:
    outcome = await run(make(handlers.large), b"x" * (30 * 1024 * 1024))
    assert isinstance(outcome, Done)
    assert outcome.value == b"x" * (30 * 1024 * 1024)


async def test_a_payload_that_is_no_messagepack_is_buried(make: Make) -> None:
    broken = ChildRequest(job_id="1", name="n", payload=b"\xc1", attempt=1, created_at_ms=0)
    outcome = await make(handlers.echo).run(broken, timeout_s=None, on_progress=unexpected)
    assert isinstance(outcome, Hopeless)
    assert outcome.reason is BuryReason.DECODE_FAILED


async def test_signals_for_the_whole_group_do_not_end_a_child(make: Make) -> None:
    children = make(handlers.signals_itself)
    assert [await value_of(children) for _ in range(2)] == ["alive", "alive"]


async def test_signals_that_come_while_a_child_starts_do_not_end_it(make: Make) -> None:
    resource_tracker.ensure_running()
    before = children_of_this_process()
    task = asyncio.create_task(value_of(make(handlers.echo), 1))
    while not (started := children_of_this_process() - before):
        await asyncio.sleep(0)
    for pid in started:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    assert await task == 1


async def test_programs_that_a_handler_starts_can_be_terminated(make: Make) -> None:
    assert await value_of(make(handlers.ends_a_program)) == -signal.SIGTERM


async def test_a_handler_whose_module_is_missing_in_the_child_fails_with_that_error(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fleeting.py").write_text("def handler(job): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    fleeting = __import__("fleeting")
    children = make(fleeting.handler)
    (tmp_path / "fleeting.py").write_text("import no_such_module_at_all\n")
    outcome = await run(children)
    assert isinstance(outcome, Failed)
    assert outcome.failure.error_type == "ModuleNotFoundError"
    assert "no_such_module_at_all" in outcome.failure.message
    (tmp_path / "fleeting.py").write_text("def handler(job): return 'mended'\n")
    assert await run(children) == Done("mended")


async def test_a_child_that_is_not_ready_in_time_is_killed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children_module, "START_LIMIT_S", 0.001)
    before = children_of_this_process()
    children = make(handlers.echo)
    outcome = await run(children)
    assert outcome == Failed(Failure("ProcessCrashed", "no child process was ready in 0.001 s"))
    await children.close()
    assert children_of_this_process() <= before | {tracker_pid()}


async def test_no_process_to_be_had_is_a_failed_attempt(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    resource_tracker.ensure_running()
    monkeypatch.setattr("multiprocessing.spawn._python_exe", b"/nonexistent", raising=True)
    outcome = await run(make(handlers.echo))
    assert isinstance(outcome, Failed)


@pytest.mark.parametrize("given", [lambda job: job, open], ids=["lambda", "odd"])
def test_a_handler_that_a_child_could_not_import_is_refused_at_once(given: Any) -> None:  # noqa: ANN401
    def local(job: object) -> None:
        pass

    function = local if given is open else given
    with pytest.raises(OptionError, match="must be importable by a child process"):
        Children(function, limit=1)


def test_there_is_at_least_one_child() -> None:
    with pytest.raises(OptionError, match="limit=0"):
        Children(handlers.echo, limit=0)


def tracker_pid() -> int:
    """multiprocessing's own helper: started with its first process, it stays with the program."""
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


async def test_closing_kills_busy_children_and_abandons_their_jobs(
    make: Make, pid_file: Path
) -> None:
    children = make(handlers.sleeps)
    running = asyncio.create_task(run(children, [str(pid_file), 60]))
    waiting = asyncio.create_task(run(children, [str(pid_file), 60]))
    pid = await pid_in(pid_file)
    async with asyncio.timeout(2):
        await children.close()
        assert is_gone(pid)
        assert await running == await waiting == Abandoned()
    assert await run(children, [str(pid_file), 0]) == Abandoned()


async def test_an_idle_child_that_does_not_end_by_itself_is_killed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children_module, "END_LIMIT_S", 0.1)
    resource_tracker.ensure_running()
    before = children_of_this_process()
    children = make(handlers.leaves_a_thread)
    await value_of(children)
    async with asyncio.timeout(3):
        await children.close()
    assert children_of_this_process() == before
