"""Why a job is not running yet: the true reason, in one sentence, for every way to wait."""

import pytest

from tampu import Backoff, Breaker, Concurrency, Rate, WaitsFor
from tampu.limits import RateLimited
from tampu.wire.lines import FOREVER_MS
from tests.contract.cli import tampu
from tests.contract.workers import KEYS, QUEUE, SOON, Boom, Calls, Gate, Harness
from tests.gates import look_at_gate
from tests.servers import RunningServer
from tests.waiting import wait_until


async def test_no_worker_and_a_paused_queue(harness: Harness) -> None:
    plain, keyed = await harness.queue.add("x"), await harness.queue.add("x", key="a")
    for job in (plain, keyed):
        why = await job.why()
        assert (why.waits_for, str(why)) == (WaitsFor.WORKER, "No worker serves its queue.")
    await harness.queue.pause()
    assert str(await keyed.why()) == "Its queue is paused."
    await harness.queue.resume()


async def test_what_holds_a_limit_is_named(harness: Harness) -> None:
    gate, limits = Gate(), [Concurrency(2, by="tenant")]
    await harness.start_worker(gate, concurrency=10)
    holders = [await harness.queue.add("charge", {"tenant": "a"}, limits=limits) for _ in range(2)]
    await gate.until(2)
    why = await (await harness.queue.add("charge", {"tenant": "a"}, limits=limits)).why()
    assert why.waits_for is WaitsFor.LIMIT
    assert sorted(why.holders) == sorted(job.id for job in holders)
    assert why.sentence.startswith("charge(tenant) lets 2 jobs of a run at a time, and 2 run now: ")
    running = await holders[0].why()
    assert running.waits_for is WaitsFor.NOTHING
    assert running.sentence.startswith("It is not waiting: worker ")
    gate.open.set()


async def test_a_rate_and_a_closed_limit_say_when_they_open(harness: Harness) -> None:
    calls = Calls()
    await harness.start_worker(calls)
    rate = [Rate("1/h")]
    await harness.queue.add("mail", limits=rate)
    late = await harness.queue.add("mail", limits=rate)
    await wait_until(lambda: len(calls.jobs) == 1, within=SOON, sentence="the first has run")
    why = await late.why()
    assert (why.waits_for, why.limit) == (WaitsFor.RATE, "mail()")
    assert why.until is not None

    async def handler(job: object) -> None:
        del job
        raise RateLimited("1h")

    await harness.workers[0].stop()
    await harness.start_worker(handler)
    closed = await harness.queue.add("api", limits=[Concurrency(5)])
    await wait_until(
        lambda: harness.admin.exists(KEYS.gate + b":over") == 1,
        within=SOON,
        sentence="it is closed",
    )
    why = await closed.why()
    assert (why.waits_for, why.limit) == (WaitsFor.CLOSED, "api()")
    assert why.sentence.startswith("A job has met a rate limit: api() is closed until ")


async def test_an_ordered_job_names_the_one_before_it(harness: Harness) -> None:
    gate = Gate()
    await harness.start_worker(gate)
    first = await harness.queue.add("x", key="a", ordered=True)
    second = await harness.queue.add("x", key="a", ordered=True)
    await gate.until(1)
    why = await second.why()
    assert why.waits_for is WaitsFor.ORDER
    assert str(why) == f"The jobs of key a run one after the other, and {first.id} runs now."
    gate.open.set()


async def test_an_ordered_job_waits_for_the_retry_of_the_one_before(harness: Harness) -> None:
    await harness.start_worker(Boom(), attempts=3, backoff=Backoff.fixed(3600))
    await harness.queue.add("x", key="a", ordered=True)
    second = await harness.queue.add("x", key="a", ordered=True)
    await wait_until(
        lambda: harness.admin.exists(KEYS.gate + b":over") == 1, within=SOON, sentence="it failed"
    )
    assert look_at_gate(harness.admin, KEYS).lined == 2
    why = await second.why()
    assert why.waits_for is WaitsFor.ORDER
    assert "waits for its next attempt until " in why.sentence


async def test_a_busy_worker_a_delay_a_retry_and_a_dead_letter(harness: Harness) -> None:
    gate = Gate()
    await harness.start_worker(gate, concurrency=1)
    await harness.queue.add("x", key="a")
    await gate.until(1)
    jobs = [await harness.queue.add("x", key="a") for _ in range(3)]
    why = await jobs[2].why()
    assert why.waits_for in {WaitsFor.TURN, WaitsFor.SLOT}
    delayed = await harness.queue.add("x", delay="1h")
    assert (await delayed.why()).waits_for is WaitsFor.TIME
    assert (await harness.queue.job("nope").why()).sentence.startswith("There is no such job")
    gate.open.set()
    await wait_until(lambda: gate.ended == 4, within=SOON, sentence="all have run")
    await harness.workers[0].stop()
    await harness.start_worker(Boom(), attempts=2, backoff=Backoff.fixed(3600))
    retrying = await harness.queue.add("x")
    dead = await harness.queue.add("x", attempts=1)
    await harness.dead_letters()
    assert (await dead.why()).waits_for is WaitsFor.REPLAY
    await wait_until(
        lambda: harness.admin.zcard(KEYS.delayed) == 2, within=SOON, sentence="it has failed"
    )
    assert (await retrying.why()).sentence.startswith("Attempt 1 failed; the next one is due at ")
    harness.admin.delete(KEYS.delayed)


async def test_a_pause_and_a_closed_limit_are_named_while_all_workers_are_busy(
    harness: Harness,
) -> None:
    gate, api = Gate(), [Concurrency(9)]
    await harness.start_worker(gate, concurrency=1)
    jobs = [await harness.queue.add("x", n, key="a") for n in range(20)]
    await gate.until(1)
    paused = await harness.queue.add("mail", key="a")
    ordinary = await harness.queue.add("x", key="a")
    closed = await harness.queue.add("api", key="b", priority=0, limits=api)
    ahead = look_at_gate(harness.admin, KEYS).lined - 3
    assert 0 < ahead < len(jobs)
    assert (await paused.why()).waits_for is WaitsFor.TURN
    assert (await ordinary.why()).sentence.startswith(f"{ahead + 1} jobs of its line come first")
    await harness.queue.pause(task="mail")
    await harness.queue.pause(key="b", until="1h")
    why = await paused.why()
    assert (why.waits_for, str(why)) == (WaitsFor.RESUME, "Its task mail is paused.")
    why = await closed.why()
    assert why.waits_for is WaitsFor.RESUME
    assert str(why).startswith("Its key b is paused until ")
    await harness.queue.resume(key="b")
    harness.admin.hset(KEYS.gate + b":over", "api()", f"- {FOREVER_MS}")
    assert (await closed.why()).waits_for is WaitsFor.CLOSED
    assert (await ordinary.why()).waits_for is WaitsFor.TURN
    harness.admin.hdel(KEYS.gate + b":over", "api()")
    await harness.queue.resume(task="mail")
    gate.open.set()


async def test_the_command_line_says_the_same(running: RunningServer, harness: Harness) -> None:
    job = await harness.queue.add("mail", priority=9)
    await harness.queue.pause(task="mail", key="a")
    said = await tampu("why", QUEUE, job.id, url=running.url)
    assert (said.code, said.out.strip()) == (0, "No worker serves its queue.")
    told = (await tampu("why", QUEUE, job.id, "--json", url=running.url)).json
    assert (told["job_id"], told["waits_for"]) == (job.id, "worker")


class TestLimitCommands:
    async def test_what_is_listed_changes_with_what_is_set(
        self, running: RunningServer, harness: Harness
    ) -> None:
        url = running.url
        limits: list[Concurrency | Rate] = [Concurrency(2, by="tenant"), Rate("5/m")]
        for n in range(4):
            await harness.queue.add(
                "charge", {"tenant": f"t{n % 2}"}, key=f"t{n % 2}", limits=limits
            )
        shown = await tampu("limits", "ls", QUEUE, url=url)
        rows = [line.split() for line in shown.lines]
        assert ["charge()", "0", "-", "5/m", "0"] in rows
        assert ["charge(tenant)", "0", "2", "-", "0"] in rows
        assert ["t0", "2", "1"] in rows
        done = await tampu("limits", "set", QUEUE, "charge()", "--rate", "9/s", url=url)
        assert (done.code, done.out) == (0, "charge() is changed.\n")
        await tampu("limits", "weigh", QUEUE, "t0", "2.5", url=url)
        told = (await tampu("limits", "ls", QUEUE, "--json", url=url)).json
        assert [(each["name"], each["rate"], each["changed"]) for each in told["limits"]] == [
            ("charge()", "9/s", True),
            ("charge(tenant)", None, False),
        ]
        assert {each["key"]: each["weight"] for each in told["keys"]} == {"t0": 2.5, "t1": 1}
        assert (await tampu("limits", "reset", QUEUE, "charge()", url=url)).code == 0
        refused = await tampu("limits", "open", QUEUE, "charge()", url=url)
        assert (refused.code, refused.err) == (
            1,
            "tampu: charge() was open already, or queue 'work' has no such limit.\n",
        )

    async def test_a_task_is_paused_and_resumed(
        self, running: RunningServer, harness: Harness
    ) -> None:
        url = running.url
        await harness.queue.add("mail")
        paused = await tampu("queue", "pause", QUEUE, "--task", "mail", "--for", "1h", url=url)
        assert paused.out == "task mail of work is paused.\n"
        shown = await tampu("limits", "ls", QUEUE, url=url)
        assert shown.lines[-1].startswith("Paused: task mail until ")
        again = await tampu("queue", "resume", QUEUE, "--task", "mail", url=url)
        assert again.out == "task mail of work is resumed.\n"

    async def test_a_task_that_its_breaker_stopped_is_listed_and_resumed(
        self, running: RunningServer, harness: Harness
    ) -> None:
        await harness.start_worker(Boom(), attempts=1)
        await harness.queue.add("mail", breaker=Breaker(failures=1, of=1, cooldown="1h"))
        await harness.dead_letters()
        shown = await tampu("limits", "ls", QUEUE, url=running.url)
        (line,) = [each for each in shown.lines if each.startswith("Stopped by its breaker: ")]
        assert "task mail; one of its jobs is tried at 20" in line
        told = (await tampu("limits", "ls", QUEUE, "--json", url=running.url)).json
        assert [each["task"] for each in told["stopped_tasks"]] == ["mail"]
        again = await tampu("queue", "resume", QUEUE, "--task", "mail", url=running.url)
        assert again.out == "task mail of work is resumed.\n"
        assert await harness.queue.limits.stopped_tasks() == []

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (("limits", "set", QUEUE, "stripe"), "Pass --concurrency, --rate, or both."),
            (("limits", "set", QUEUE, "x", "--concurrency", "1", "--strict"), "need a --rate"),
            (("limits", "set", QUEUE, "x", "--rate", "1/x"), "Invalid Rate '1/x'"),
            (("limits", "set", QUEUE, "a b", "--rate", "1/s"), "Invalid limit 'a b'"),
            (("queue", "pause", QUEUE, "--for", "5m"), "only a task or a key"),
        ],
    )
    async def test_what_cannot_be_is_refused(
        self,
        running: RunningServer,
        harness: Harness,
        arguments: tuple[str, ...],
        problem: str,
    ) -> None:
        await harness.queue.add("x")
        refused = await tampu(*arguments, url=running.url)
        assert refused.code == 2
        assert problem in refused.err
