import asyncio
import os
from pathlib import Path

import pytest

from tampu.consumer.handler import Function
from tampu.consumer.runners.child import ChildRequest, Progress, Report
from tampu.consumer.runners.children import Children
from tampu.errors import OptionError
from tampu.outcome import Done, Failed, Snoozed, Throttled, UnrecoverableFailure
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.extras import Extras, encode_extras
from tampu.wire.payload import encode_payload
from tests.unit.consumer.runners import child_handlers as handlers
from tests.unit.consumer.runners.child_runs import (
    Make,
    children_of_this_process,
    request,
    run,
    unexpected,
    value_of,
)


@pytest.mark.parametrize("function", [handlers.echo, handlers.echo_async], ids=["plain", "async"])
async def test_a_handler_gets_the_data_and_its_result_is_returned(
    make: Make, function: Function
) -> None:
    children = make(function)
    for data in (None, {"to": ["ada", 1.5, b"\x00"]}, "é" * 100_000):
        assert await run(children, data) == Done(data)


async def test_a_callable_object_that_can_be_pickled_is_a_handler(make: Make) -> None:
    assert await run(make(handlers.Doubling()), 21) == Done(42)


async def test_the_child_gets_the_whole_job_and_it_is_the_current_one(make: Make) -> None:
    whole = ChildRequest(
        job_id="a",
        name="mail",
        payload=encode_payload("d", max_bytes=10),
        attempt=3,
        created_at_ms=7,
        extras=encode_extras(Extras(tenant="acme")),
    )
    outcome = await make(handlers.facts).run(whole, timeout_s=None, on_report=unexpected)
    assert outcome == Done(["a", "mail", "d", 3, 7, "acme", True])


async def test_jobs_of_a_child_share_its_loop_but_not_their_context(make: Make) -> None:
    children = make(handlers.loop_and_context)
    first, second = await value_of(children, "a"), await value_of(children, "b")
    assert isinstance(first, list)
    assert first[1] == "nothing"
    assert second == first


async def test_an_exception_has_the_same_outcome_as_in_the_worker(make: Make) -> None:
    children = make(handlers.raises)
    outcomes = {data: await run(children, data) for data in handlers.ERRORS}

    retry, snooze = outcomes["retry"], outcomes["snooze"]
    assert isinstance(retry, Failed)
    assert (retry.failure.message, retry.after_ms) == ("later", 3000)
    assert snooze == Snoozed(4000)
    assert outcomes["limit"] == Throttled(3000, "stripe")
    for data, message in (("bury", "enough"), ("refused", "no")):
        outcome = outcomes[data]
        assert isinstance(outcome, UnrecoverableFailure)
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
    assert outcome == UnrecoverableFailure(Failure("tampu.outcome.Bury", "enough"))


@pytest.mark.parametrize("function", [handlers.raises, handlers.raises_plain])
@pytest.mark.parametrize(("data", "kind"), [("exit", "SystemExit"), ("depth", "RecursionError")])
async def test_a_handler_that_exits_or_recurses_fails_and_its_child_goes_on(
    make: Make, function: Function, data: str, kind: str
) -> None:
    children = make(function)
    for _ in range(2):
        before = children_of_this_process()
        outcome = await run(children, data)
        assert isinstance(outcome, Failed)
        assert outcome.failure.error_type == kind
    assert children_of_this_process() == before


async def test_fifty_jobs_share_four_children(make: Make) -> None:
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


async def test_a_handler_can_print_and_read_standard_input(
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
    seen: list[Report] = []
    outcome = await make(function).run(
        request(None), timeout_s=None, on_report=lambda report, _: seen.append(report)
    )
    assert (outcome, seen) == (Done("there"), [Progress(each) for each in told])


async def test_late_progress_is_not_reported_for_the_next_job(make: Make) -> None:
    children = make(handlers.progresses_late)
    await value_of(children, "leave")
    assert await value_of(children) is True


async def test_a_handler_cannot_wait_for_its_own_result(make: Make) -> None:
    outcome = await run(make(handlers.waits_for_itself))
    assert isinstance(outcome, Failed)
    assert outcome.failure.error_type == "tampu.errors.WrongContext"


@pytest.mark.parametrize(
    ("data", "problem"),
    [("object", "MessagePack has no type for builtins.object"), ("size", "the limit is 67108864")],
)
async def test_a_result_that_cannot_be_encoded_is_unrecoverable(
    make: Make, data: str, problem: str
) -> None:
    outcome = await run(make(handlers.unencodable), data)
    assert isinstance(outcome, UnrecoverableFailure)
    assert outcome.failure.error_type == "tampu.errors.EncodeError"
    assert problem in outcome.failure.message


async def test_large_payloads_and_results_work(make: Make) -> None:
    outcome = await run(make(handlers.large), b"x" * (30 * 1024 * 1024))
    assert isinstance(outcome, Done)
    assert outcome.value == b"x" * (30 * 1024 * 1024)


async def test_a_payload_that_is_not_messagepack_is_buried(make: Make) -> None:
    broken = ChildRequest(job_id="1", name="n", payload=b"\xc1", attempt=1, created_at_ms=0)
    outcome = await make(handlers.echo).run(broken, timeout_s=None, on_report=unexpected)
    assert isinstance(outcome, UnrecoverableFailure)
    assert outcome.reason is BuryReason.DECODE_FAILED


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


def test_a_handler_that_a_child_could_not_import_is_refused_at_once() -> None:
    def local(job: object) -> None:
        pass

    for function in (local, lambda job: job):
        with pytest.raises(OptionError, match="must be importable by a child process") as raised:
            Children(function, limit=1)
        assert f"Invalid handler {__name__}.test_a_handler_that" in str(raised.value)


def test_the_limit_must_be_at_least_one_child() -> None:
    with pytest.raises(OptionError, match="Invalid limit 0"):
        Children(handlers.echo, limit=0)
