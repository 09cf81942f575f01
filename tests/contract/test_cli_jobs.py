"""`tampu job`, as users run it."""

import json
from collections.abc import AsyncIterator

import pytest

from tampu import App, AppWorker, Backoff
from tests.contract.cli import tampu
from tests.contract.workers import KEYS, QUEUE, Boom, Calls, Gate, Harness
from tests.servers import RunningServer
from tests.waiting import wait_until

SOON = 60.0
JOB_KEYS = [
    *("id", "state", "searched_all", "name", "data", "attempt", "attempts", "created_at"),
    *("due_at", "started_at", "ended_at", "progress", "failed_at", "failure", "reason"),
    *("dead_id", "worker", "entry_id", "result", "schedule_key", "scheduled_at", "headers"),
    *("tenant", "priority", "key"),
]


class TestShow:
    async def test_a_delayed_job(self, running: RunningServer, harness: Harness) -> None:
        url = running.url
        await harness.queue.add("later", {"raw": b"\x00\xff"}, delay="1h", job_id="later")
        shown = await tampu("job", "show", QUEUE, "later", url=url)
        assert shown.code == 0
        assert shown.lines[0].split() == ["Job", "later"]
        assert "State     delayed" in shown.lines
        assert 'Data      {"raw": {"base64": "AP8="}}' in shown.lines
        told = (await tampu("job", "show", QUEUE, "later", "--json", url=url)).json
        assert list(told) == JOB_KEYS
        assert (told["state"], told["data"]) == ("delayed", {"raw": {"base64": "AP8="}})

    async def test_a_job_between_attempts_with_its_last_error(
        self, running: RunningServer, harness: Harness
    ) -> None:
        await harness.start_worker(Boom(), attempts=3, backoff=Backoff.fixed(3600))
        await harness.queue.add("x", job_id="order:17", attempts=3)
        await wait_until(
            lambda: harness.admin.zcard(KEYS.delayed) == 1, within=SOON, sentence="it has failed"
        )
        shown = await tampu("job", "show", QUEUE, "order:17", url=running.url)
        pairs = dict(line.split(maxsplit=1) for line in shown.lines if "  " in line[:12])
        assert (pairs["State"], pairs["Attempts"]) == ("retrying", "1 of 3")
        assert pairs["Error"] == "ValueError: boom"
        assert "in __call__" in shown.out, "the traceback"
        told = (await tampu("job", "show", QUEUE, "order:17", "--json", url=running.url)).json
        assert list(told["failure"]) == ["error_type", "message", "traceback"]
        assert len(told["failed_at"]) == 1
        harness.admin.delete(KEYS.delayed)

    async def test_a_job_that_is_nowhere_is_a_failure(
        self, running: RunningServer, harness: Harness
    ) -> None:
        await harness.queue.add("x", job_id="x")
        nowhere = await tampu("job", "show", QUEUE, "nope", "--json", url=running.url)
        assert (nowhere.code, nowhere.json["state"]) == (1, "unknown")
        assert nowhere.err == (
            "tampu: Queue 'work' has no job 'nope'. "
            "It was never added, was removed, or finished without a stored result.\n"
        )


class TestList:
    async def test_jobs_are_listed_one_a_line(
        self, running: RunningServer, harness: Harness
    ) -> None:
        url = running.url
        await harness.queue.add_each("welcome", range(3))
        await harness.queue.add("bye", delay=60, job_id="order:17")
        listed = await tampu("job", "ls", QUEUE, url=url)
        assert listed.code == 0
        head, *rows = listed.lines
        assert head.split()[:4] == ["Id", "State", "Name", "Attempt"]
        assert [row.split()[1] for row in rows] == ["waiting"] * 3 + ["delayed"]
        told = (await tampu("job", "ls", QUEUE, "--json", url=url)).json
        assert (told["queue"], told["searched_all"]) == (QUEUE, True)
        assert [list(each) for each in told["jobs"]] == [JOB_KEYS] * 4

    async def test_they_can_be_chosen_by_state_name_and_age(
        self, running: RunningServer, harness: Harness
    ) -> None:
        async def ids(*options: str) -> list[str]:
            done = await tampu("job", "ls", QUEUE, *options, "--json", url=running.url)
            assert (done.code, done.err) == (0, "")
            return [each["id"] for each in done.json["jobs"]]

        for number in range(4):
            await harness.queue.add("odd" if number % 2 else "even", job_id=f"{number}")
        await harness.queue.add("odd", job_id="later", delay=60)
        assert await ids("--name", "odd") == ["1", "3", "later"]
        assert await ids("--state", "waiting", "--newest-first") == ["3", "2", "1", "0"]
        assert await ids("--state", "waiting", "--newest-first", "-n", "1") == ["3"]
        assert await ids("--state", "delayed", "--name", "even") == []

    async def test_nothing_to_list_is_said(self, running: RunningServer, harness: Harness) -> None:
        await harness.queue.add("x", delay=60)
        empty = await tampu("job", "ls", QUEUE, "--state", "dead", url=running.url)
        assert (empty.code, empty.out) == (0, "There are no such jobs.\n")

    async def test_an_unknown_state_is_a_usage_error(
        self, running: RunningServer, harness: Harness
    ) -> None:
        await harness.queue.add("x")
        wrong = await tampu("job", "ls", QUEUE, "--state", "done", url=running.url)
        assert (wrong.code, wrong.out) == (2, "")
        assert wrong.err.startswith("tampu: Invalid --state 'done': expected one of active, ")


async def test_job_wait_prints_the_result_or_the_failure(
    running: RunningServer, harness: Harness
) -> None:
    url = running.url
    await harness.start_worker({"good": Calls(), "bad": Boom()}, attempts=1, store_results=True)
    good, bad = await harness.queue.add("good", {"a": [1]}), await harness.queue.add("bad")
    done = await tampu("job", "wait", QUEUE, good.id, "--json", url=url)
    assert (done.code, done.json) == (0, {"job_id": good.id, "result": {"a": [1]}})
    failed = await tampu("job", "wait", QUEUE, bad.id, url=url)
    sentence = f"tampu: Job {bad.id} failed (retries_exhausted): ValueError: boom\n"
    assert (failed.code, failed.out, failed.err) == (1, "", sentence)
    told = await tampu("job", "wait", QUEUE, bad.id, "--json", url=url)
    assert (told.code, list(told.json)) == (1, ["job_id", "failed"])
    assert list(told.json["failed"]) == ["reason", "type", "message", "traceback"]
    late = await tampu("job", "wait", QUEUE, "nope", "--timeout", "50ms", url=url)
    assert late.code == 1
    assert late.err.startswith("tampu: No result of job nope within 0.05 s.")
    wrong = await tampu("job", "wait", QUEUE, "nope", "--timeout", "soon", url=url)
    assert wrong.code == 2
    assert wrong.err.startswith("tampu: Invalid --timeout 'soon': expected ")


async def test_waiting_for_a_cancelled_job_says_so(
    running: RunningServer, harness: Harness
) -> None:
    job = await harness.queue.add("x")
    await job.cancel()
    done = await tampu("job", "wait", QUEUE, job.id, url=running.url)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"tampu: Job {job.id} was cancelled.\n"


class TestCancel:
    async def test_it_says_what_became_of_each_and_names_those_that_are_over(
        self, running: RunningServer, harness: Harness
    ) -> None:
        await harness.queue.add("x", delay=60, job_id="a")
        done = await tampu("job", "cancel", QUEUE, "a", "b", "--json", url=running.url)
        assert done.code == 1
        assert done.json == {"queue": QUEUE, "jobs": {"a": "cancelled", "b": "too_late"}}
        assert done.err == "tampu: Ended already, or never added: b.\n"
        assert (await harness.queue.counts()).delayed == 0

    async def test_an_id_that_is_given_twice_counts_once(
        self, running: RunningServer, harness: Harness
    ) -> None:
        await harness.queue.add("x", job_id="a")
        done = await tampu("job", "cancel", QUEUE, "a", "a", url=running.url)
        assert (done.code, done.out, done.err) == (0, "1 of 1 job cancelled.\n", "")

    async def test_a_running_job_is_stopped_by_its_worker(
        self, running: RunningServer, harness: Harness
    ) -> None:
        gate = Gate()
        await harness.start_worker(gate)
        await harness.queue.add("x", job_id="a")
        await gate.until(1)
        await harness.queue.add("x", job_id="b", delay=60)
        done = await tampu("job", "cancel", QUEUE, "a", "b", url=running.url)
        sentence = "1 of 2 jobs cancelled and 1 being stopped by their workers.\n"
        assert (done.code, done.out) == (0, sentence)
        await harness.until_settled()
        assert gate.ended == 0


class TestMove:
    async def test_a_delayed_job_is_run_now(self, running: RunningServer, harness: Harness) -> None:
        url, calls = running.url, Calls()
        await harness.queue.add("x", 5, delay="1h", job_id="a")
        done = await tampu("job", "run-now", QUEUE, "a", url=url)
        assert (done.code, done.out) == (0, "a is waiting for a worker.\n")
        again = await tampu("job", "run-now", QUEUE, "a", "--json", url=url)
        assert (again.code, again.json["moved"]) == (1, False)
        assert again.err == "tampu: Queue 'work' has no delayed job 'a'.\n"
        await harness.start_worker(calls)
        await calls.until(1)

    async def test_a_delayed_job_is_rescheduled(
        self, running: RunningServer, harness: Harness
    ) -> None:
        url = running.url
        await harness.queue.add("x", delay="1h", job_id="a")
        done = await tampu("job", "reschedule", QUEUE, "a", "--delay", "2h", url=url)
        assert (done.code, done.out) == (0, "a runs in 2h.\n")
        info = await harness.queue.job("a").info()
        assert info.due_at is not None and info.created_at is not None
        assert (info.due_at - info.created_at).total_seconds() > 7000
        at = info.due_at.isoformat()
        done = await tampu("job", "reschedule", QUEUE, "a", "--at", at, "--json", url=url)
        assert (done.code, done.json) == (0, {"queue": QUEUE, "job_id": "a", "moved": True})
        nothing = await tampu("job", "reschedule", QUEUE, "b", "--delay", "1s", url=url)
        assert (nothing.code, nothing.out) == (1, "")
        assert nothing.err == "tampu: Queue 'work' has no delayed job 'b'.\n"

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ((), "Pass either --delay or --at."),
            (("--delay", "1s", "--at", "2030-01-31T09:00Z"), "Pass either --delay or --at."),
            (("--delay", "soon"), "Invalid --delay 'soon': expected "),
            (("--at", "soon"), "Invalid --at 'soon': expected a time such as "),
            (("--at", "2030-01-31T09:00"), "Invalid --at "),
        ],
    )
    async def test_wrong_times_are_usage_errors(
        self, running: RunningServer, harness: Harness, options: tuple[str, ...], sentence: str
    ) -> None:
        await harness.queue.add("x", delay="1h", job_id="a")
        wrong = await tampu("job", "reschedule", QUEUE, "a", *options, url=running.url)
        assert (wrong.code, wrong.out) == (2, "")
        assert wrong.err.startswith(f"tampu: {sentence}")


@pytest.mark.parametrize("command", ["show", "cancel", "run-now", "wait"])
async def test_an_invalid_id_is_a_usage_error(
    running: RunningServer, harness: Harness, command: str
) -> None:
    await harness.queue.add("x")
    wrong = await tampu("job", command, QUEUE, "", url=running.url)
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("tampu: ")


class TestTail:
    async def test_text_is_printed_as_it_comes(self, running: RunningServer) -> None:
        app = App(running.url, default_queue=QUEUE)

        @app.task
        async def answer() -> AsyncIterator[object]:
            for item in ("It ", "depends\x1b[2J.", {"tokens": 2}, "\n", "Really."):
                yield item

        async with app, AppWorker(app):
            job = await answer.enqueue()
            told = await tampu("job", "tail", QUEUE, job.id, url=running.url)
            assert (told.code, told.err) == (0, "")
            assert told.out == 'It depends\\u001b[2J.\n{"tokens": 2}\n\nReally.\n'
            lines = (await tampu("job", "tail", QUEUE, job.id, "--json", url=running.url)).lines
            found = [json.loads(line) for line in lines]
            assert [list(each) for each in found] == [["id", "attempt", "value"]] * 5
            rest = await tampu(
                "job", "tail", QUEUE, job.id, "--after", found[3]["id"], url=running.url
            )
            assert rest.out == "Really.\n"

    async def test_attempts_and_a_bad_end(self, running: RunningServer) -> None:
        app = App(running.url, default_queue=QUEUE)

        @app.task(attempts=2, backoff=Backoff.fixed(0))
        async def shaky() -> AsyncIterator[str]:
            yield "a"
            raise ValueError("no")

        async with app, AppWorker(app):
            job = await shaky.enqueue()
            told = await tampu("job", "tail", QUEUE, job.id, url=running.url)
        assert (told.code, told.out) == (1, "a\na\n")
        assert told.err.splitlines()[0] == "tampu: The job starts again: attempt 2."
        assert "ValueError: no" in told.err

    async def test_bad_input_is_a_sentence(self, running: RunningServer, harness: Harness) -> None:
        await harness.queue.add("x")
        unknown = await tampu("job", "tail", QUEUE, "nope", url=running.url)
        assert (unknown.code, unknown.out) == (1, "")
        assert unknown.err.startswith("tampu: Job nope has no stream: there is no such job, or")
        wrong = await tampu("job", "tail", QUEUE, "nope", "--after", "5", url=running.url)
        assert wrong.code == 2
        assert (
            wrong.err
            == "tampu: Invalid --after '5': expected the id of a chunk, or None for all chunks.\n"
        )
