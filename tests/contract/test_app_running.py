"""From `enqueue` to the result, on real servers."""

import asyncio
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pydantic
import pytest

from tampu import (
    INJECTED,
    App,
    ArgumentError,
    Backoff,
    BuryReason,
    DecodeError,
    Job,
    JobFailed,
    NewJob,
    OptionError,
    Router,
    Worker,
    current_job,
)
from tests.contract import isolated_tasks
from tests.contract.apps import dead, working
from tests.servers import RunningServer

SECRET = "s3cr3t"  # noqa: S105 - must not be found in a text


@dataclass(frozen=True)
class Order:
    number: int
    at: datetime


class Invoice(pydantic.BaseModel):
    number: int


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


class TestResults:
    async def test_an_async_task_gets_typed_arguments_and_its_result_is_typed(
        self, app: App
    ) -> None:
        @app.task
        async def later(order: Order, by: timedelta, times: int = 1) -> Order:
            return Order(order.number, order.at + by * times)

        at = datetime(2026, 11, 15, tzinfo=UTC)
        async with working(app):
            job = await later.enqueue(Order(1, at), timedelta(hours=1), times=2)
            assert await job.result() == Order(1, at + timedelta(hours=2))

    async def test_a_plain_task_runs_in_a_thread_and_knows_its_job(self, app: App) -> None:
        @app.task
        def whoami(job: Job[Any] = INJECTED) -> tuple[str, str, bool]:
            return (job.name, threading.current_thread().name, current_job() is job)

        async with working(app):
            name, thread, same = await (await whoami.enqueue()).result()
        assert (name, thread.startswith("tampu-handler"), same) == ("whoami", True, True)

    async def test_pydantic_models_work_as_arguments_and_results(self, app: App) -> None:
        @app.task
        async def copy(invoice: Invoice, more: list[Invoice]) -> Invoice:
            assert isinstance(more[0], Invoice)
            return Invoice(number=invoice.number + len(more))

        async with working(app):
            job = await copy.enqueue(Invoice(number=1), [Invoice(number=2)])
            assert await job.result() == Invoice(number=2)

    async def test_a_result_of_another_type_is_refused(self, app: App) -> None:
        @app.task
        async def lie() -> Order:
            lies: Any = {"number": "one"}
            return lies  # type: ignore[no-any-return]

        async with working(app):
            with pytest.raises(DecodeError, match="Cannot decode the result: expected Order"):
                await (await lie.enqueue()).result()

    async def test_arguments_are_sent_as_a_map_of_names(self, app: App) -> None:
        @app.task
        async def send(to: str, copies: int = 1) -> None: ...

        async def seen(job: Job[Any]) -> object:
            return job.data

        await app.queue().add("other")
        async with app, Worker("default", seen, app.url, store_results=True):
            job = await send.enqueue("ada")
            assert await app.queue().job(job.id).result() == {"to": "ada"}

    async def test_other_programs_can_add_its_jobs_by_name(self, app: App) -> None:
        @app.task
        async def send(to: str, copies: int = 1) -> str:
            return to * copies

        async with working(app):
            job = await app.queue().add("send", {"to": "ada"})
            assert await job.result() == "ada"

    async def test_a_plain_call_adds_no_job(self, app: App) -> None:
        @app.task
        async def send(to: str) -> str:
            return to

        assert await send("plain call") == "plain call"
        assert (await app.queue().counts()).waiting == 0
        await app.close()


class TestIsolation:
    async def test_tasks_run_in_child_processes_with_middleware_and_dependencies(
        self, running: RunningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(isolated_tasks.app, "url", running.url)
        async with working(isolated_tasks.app, concurrency=1):
            picture = isolated_tasks.Picture("cat", 100)
            shrunk = await isolated_tasks.shrink.enqueue(picture, os.getpid())
            assert await shrunk.result(timeout=20) == isolated_tasks.Picture("cat", 50)
            stored = await isolated_tasks.store.enqueue("cat")
            assert await stored.result(timeout=20) == "cat opened for attempt 1 store"
            assert (
                await (await isolated_tasks.plain.enqueue()).result(timeout=20) == "plainly opened"
            )
            assert await (await isolated_tasks.marked.enqueue()).result(timeout=20) == "marked"
        assert "TAMPU_TEST_MARK" not in os.environ


class TestWrongArguments:
    async def test_nothing_is_added_if_they_do_not_fit(self, app: App) -> None:
        @app.task
        async def send(to: str, order: Order | None = None) -> None: ...

        wrong: Any = send
        async with app:
            for args in ((), (5,), ("ada", {"number": SECRET}), ("ada", None, 1)):
                with pytest.raises(ArgumentError) as refusal:
                    await wrong.enqueue(*args)
                assert SECRET not in str(refusal.value)
            with pytest.raises(ArgumentError):
                wrong.call(cc="bob")
            assert (await app.queue().counts()).waiting == 0

    @pytest.mark.parametrize(
        ("data", "sentence"),
        [
            ({"to": 5}, "Task 'send', argument 'to': expected str."),
            ({}, "Task 'send', argument 'to': required, but missing."),
            (
                {"to": "a", "cc": SECRET},
                "Task 'send', argument 'cc': unknown; the task accepts to, order.",
            ),
            (
                {"to": "a", "order": {"number": SECRET, "at": "2026-11-15T00:00:00Z"}},
                "Task 'send', argument 'order': expected tests.contract.test_app_running.Order | "
                "None; invalid at number.",
            ),
            (SECRET, "Task 'send': the job's data must be a map of arguments."),
        ],
    )
    async def test_a_job_with_wrong_arguments_is_buried_at_once(
        self, app: App, data: object, sentence: str
    ) -> None:
        ran: list[str] = []

        @app.task
        async def send(to: str, order: Order | None = None) -> None:
            ran.append(to)

        async with working(app, attempts=5):
            job = await app.queue().add("send", data)
            (letter,) = await dead(app)
            assert letter.failure is not None
            assert letter.failure.message == sentence
            assert (letter.attempt, letter.reason) == (1, BuryReason.UNRECOVERABLE)
            assert SECRET not in f"{letter.failure}"
            with pytest.raises(JobFailed, match="InvalidArguments"):
                await job.result()
        assert ran == []

    async def test_a_job_without_a_task_is_buried(self, app: App) -> None:
        @app.task
        async def send() -> None: ...

        async with working(app):
            await app.queue().add("sned")
            (letter,) = await dead(app)
            assert letter.reason is BuryReason.UNKNOWN_HANDLER
            assert "this worker has 'send'" in str(letter.detail)


class TestOptions:
    async def test_options_of_a_task_apply_to_its_jobs(self, app: App) -> None:
        attempts: list[int] = []

        @app.task(attempts=2, backoff=Backoff.fixed(0))
        async def fails(job: Job[Any] = INJECTED) -> None:
            attempts.append(job.attempt)
            raise ValueError

        async with working(app, attempts=5):
            await fails.enqueue()
            await dead(app)
        assert attempts == [1, 2]

    async def test_a_timeout_includes_dependencies(self, app: App) -> None:
        @app.task(timeout="50ms", attempts=1)
        async def slow() -> None:
            await asyncio.Event().wait()

        async with working(app):
            with pytest.raises(JobFailed, match="JobTimeout"):
                await (await slow.enqueue()).result()

    async def test_options_of_a_call_apply_to_its_job_only(self, app: App) -> None:
        @app.task
        async def send(to: str, job: Job[Any] = INJECTED) -> list[object]:
            return [to, job.id, job.tenant]

        async with working(app):
            one = await send.options(job_id="x", tenant="acme", delay="5ms").enqueue("ada")
            assert await one.result() == ["ada", "x", "acme"]
            assert (await send.options(job_id="x").enqueue("ada")).duplicate
            other = await send.enqueue("bob")
            assert await other.result() == ["bob", other.id, None]

    async def test_jobs_in_another_queue_run_the_same_tasks(self, app: App) -> None:
        @app.task
        async def send(to: str) -> str:
            return to

        async with working(app, {"default": 1, "slow": 1}):
            job = await send.options(queue="slow").enqueue("ada")
            assert await job.result() == "ada"
            with pytest.raises(OptionError, match="delay"):
                await send.options(delay="soon").enqueue("ada")

    async def test_tasks_of_a_router_run(self, app: App) -> None:
        router = Router(queue="routed")

        @router.task
        def routed(n: int) -> int:
            return n + 1

        app.include(router)
        async with working(app) as worker:
            assert list(worker.queues) == ["routed"]
            assert await (await routed.enqueue(1)).result() == 2


class TestMany:
    async def test_calls_are_added_in_order_each_with_its_options(self, app: App) -> None:
        @app.task
        async def double(n: int, job: Job[Any] = INJECTED) -> tuple[int, str | None]:
            return n * 2, job.tenant

        async with working(app, {"default": 10, "other": 10}):
            calls = [double.call(n) for n in range(5)]
            calls.append(double.options(tenant="acme").call(5))
            calls.append(double.options(queue="other").call(6))
            calls.append(double.call(7))
            jobs = await double.enqueue_many(calls)
            results = [await job.result() for job in jobs]
        assert results == [(n * 2, "acme" if n == 5 else None) for n in range(8)]

    async def test_only_calls_of_the_task_are_accepted(self, app: App) -> None:
        one = app.task(name="one")(lambda: None)
        two = app.task(name="two")(lambda: None)
        async with app:
            for calls in ([two.call()], [NewJob("one")]):
                with pytest.raises(OptionError, match=r"expected calls created by one\.call"):
                    await one.enqueue_many(calls)  # type: ignore[arg-type]
            assert await one.enqueue_many([]) == []
