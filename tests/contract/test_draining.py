"""Workers that are asked to stop from outside: through the queue, and with `tampu worker drain`."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tampu import App, AppWorker, Queue, Worker, current_job
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.server.scripts.control import request_drain
from tampu.wire.control import DrainRequest
from tests.contract.cli import tampu
from tests.contract.worker_command import SHOP, WorkerCommand, run_worker
from tests.contract.workers import KEYS, QUEUE, SOON, Calls, Gate, Harness
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
async def lane(server: Server, harness: Harness) -> AsyncIterator[Lane]:
    del harness  # it looks for tasks that are left: ours ends before
    async with await Lane.open(server, KEYS.stream) as opened:
        yield opened


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


async def until_stopped(running: "asyncio.Task[None]") -> None:
    await asyncio.wait_for(asyncio.shield(running), SOON)


class TestRequest:
    @pytest.mark.every_server
    async def test_the_worker_lets_running_jobs_finish_and_stops(
        self, lane: Lane, harness: Harness
    ) -> None:
        gate, others = Gate(), Calls()
        drained = harness.make_worker(gate, concurrency=1)
        running = asyncio.create_task(drained.run())
        await harness.queue.add("x", "first")
        await gate.until(1)
        await harness.start_worker(others)
        await request_drain(lane, KEYS, DrainRequest(drained.id))
        await wait_until(lambda: drained.is_stopping, within=SOON, sentence="it has been told")
        await harness.queue.add_each("x", range(10))
        await others.until(10)
        assert not running.done()
        gate.open.set()
        await until_stopped(running)
        assert (gate.data, gate.ended) == (["first"], 1)
        assert drained.id not in harness.consumers()

    async def test_a_request_for_another_worker_changes_nothing(
        self, lane: Lane, harness: Harness
    ) -> None:
        calls = Calls()
        kept, drained = await harness.start_worker(calls), await harness.start_worker(calls)
        await request_drain(lane, KEYS, DrainRequest("t-nobody"))
        await request_drain(lane, KEYS, DrainRequest(drained.id))
        await wait_until(lambda: drained.is_stopping, within=SOON, sentence="it has been told")
        assert not kept.is_stopping

    async def test_an_old_request_does_not_stop_a_new_worker(
        self, lane: Lane, harness: Harness
    ) -> None:
        worker = harness.make_worker(Calls())
        await request_drain(lane, KEYS, DrainRequest(worker.id))
        await worker.start()
        calls = Calls()
        await harness.start_worker(calls)
        await request_drain(lane, KEYS, DrainRequest(harness.workers[1].id))
        await wait_until(
            lambda: harness.workers[1].is_stopping, within=SOON, sentence="the other was told"
        )
        assert not worker.is_stopping

    async def test_a_message_that_nobody_understands_is_ignored(
        self, lane: Lane, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        worker = await harness.start_worker(Calls())
        await lane.call("XADD", KEYS.control, "*", "op", "from-the-future")
        await request_drain(lane, KEYS, DrainRequest(worker.id))
        await wait_until(lambda: worker.is_stopping, within=SOON, sentence="it has been told")
        assert "ignored a message on the control stream" in caplog.text

    async def test_a_worker_of_several_queues_stops_as_a_whole(
        self, running: RunningServer
    ) -> None:
        app, calls = App(url=running.url), Calls()

        @app.task(queue="mails")
        async def mail() -> None:
            await calls(current_job())

        @app.task(queue=QUEUE)
        async def work() -> None:
            await calls(current_job())

        async with app:
            worker = AppWorker(app, name="shop")
            working = asyncio.create_task(worker.run())
            await mail.enqueue()
            await work.enqueue()
            await calls.until(2)
            drained = await tampu("worker", "drain", "shop", url=running.url)
            assert drained.code == 0
            await until_stopped(working)


class TestCommand:
    async def test_a_worker_is_found_by_its_name_or_its_id(
        self, running: RunningServer, harness: Harness
    ) -> None:
        named = [Worker(QUEUE, Calls(), running.url, name=name) for name in ("web", "web", "mail")]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker.run()) for worker in named]

            async def all_alive() -> bool:
                return set(harness.consumers()) >= {worker.id for worker in named}

            await wait_until(all_alive, within=SOON, sentence="all have started")
            done = await tampu("worker", "drain", "web", "--json", url=running.url)
            expected = sorted(worker.id for worker in named[:2])
            assert (done.code, done.json) == (0, {"workers": expected})
            for task in tasks[:2]:
                await until_stopped(task)
            assert not tasks[2].done()
            last = await tampu("worker", "drain", named[2].id, url=running.url)
            assert last.out == f"Asked {named[2].id} to stop. Running jobs may finish first.\n"
            await until_stopped(tasks[2])

    async def test_an_unknown_name_is_an_error_and_similar_ones_are_suggested(
        self, running: RunningServer, harness: Harness
    ) -> None:
        worker = await harness.start_worker(Calls(), name="mailer")
        wrong = await tampu("worker", "drain", worker.id[:-1], url=running.url)
        assert (wrong.code, wrong.out) == (1, "")
        assert f"There is no running worker {worker.id[:-1]!r} on" in wrong.err
        assert worker.id in wrong.err
        assert not worker.is_stopping

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (("drain",), "Name the worker to drain."),
            (("shop:app", "web"), "Got an unexpected extra argument (web)."),
        ],
    )
    async def test_wrong_arguments_are_usage_errors(
        self, arguments: tuple[str, ...], sentence: str
    ) -> None:
        wrong = await tampu("worker", *arguments, url="redis://127.0.0.1:1")
        assert (wrong.code, wrong.out) == (2, "")
        assert wrong.err.startswith(f"tampu: {sentence}")


class TestProcesses:
    async def workers(self, running: RunningServer, count: int) -> list[str]:
        """The ids of the workers that are alive, as soon as there are so many."""
        found: list[str] = []

        async def are_there() -> bool:
            told = await tampu("inspect", "default", "--json", url=running.url)
            if told.code:
                return False
            alive = [each for each in told.json["queues"][0]["workers"] if each["state"] == "alive"]
            found[:] = [each["id"] for each in alive]
            return len(found) == count

        await wait_until(are_there, within=SOON, sentence=f"{count} workers are alive")
        return found

    async def test_a_process_that_was_drained_is_not_replaced_and_the_last_one_ends_the_command(
        self, running: RunningServer, home: Path
    ) -> None:
        with run_worker(running, home, "--processes", "2") as worker:
            first, second = await self.workers(running, 2)
            pids = set(worker.children())
            await self.drain(running, first)
            worker.until(lambda: len(worker.children()) == 1, "one process is left")
            assert set(worker.children()) < pids
            async with Queue("default", running.url) as queue:
                assert await (await queue.add("who")).result(SOON) in worker.children()
            assert worker.process.poll() is None
            assert await self.workers(running, 1) == [second]
            await self.drain(running, second)
            assert worker.wait() == 0
            self.check_log(worker)

    async def test_a_worker_of_one_process_ends_with_code_0(
        self, running: RunningServer, home: Path
    ) -> None:
        with run_worker(running, home) as worker:
            (only,) = await self.workers(running, 1)
            await self.drain(running, only)
            assert worker.wait() == 0
            self.check_log(worker)

    async def drain(self, running: RunningServer, worker_id: str) -> None:
        done = await tampu("worker", "drain", worker_id, url=running.url)
        assert (done.code, done.err) == (0, "")

    def check_log(self, worker: WorkerCommand) -> None:
        assert re.search(r"worker \S+ was asked to stop", worker.err)
        assert "drained from outside" in worker.err
        assert "starting another" not in worker.err
        assert "Traceback" not in worker.err
