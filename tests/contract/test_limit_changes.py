"""Limits, weights and pauses that are changed while workers run."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from tampu import App, AppWorker, Concurrency, Limit, NewJob, OptionError, Queue, Rate
from tampu.limits import RateLimited
from tests.contract.workers import KEYS, SOON, Calls, Gate, Harness, until_empty
from tests.gates import look_at_gate
from tests.servers import RunningServer
from tests.waiting import wait_until

FOR_TENANT = [Concurrency(1, by="tenant")]


async def until(condition: Callable[[], bool], sentence: str) -> None:
    await wait_until(condition, within=SOON, sentence=sentence)


def jobs_of(tenant: str, count: int, **options: Any) -> list[NewJob]:  # noqa: ANN401 - of a job
    return [NewJob("charge", {"tenant": tenant, "n": n}, **options) for n in range(count)]


@pytest.mark.every_server
class TestLimits:
    async def test_a_limit_that_is_raised_wakes_what_waits(self, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate, concurrency=20)
        await harness.queue.add_many(
            [*jobs_of("a", 5, limits=FOR_TENANT), *jobs_of("b", 5, limits=FOR_TENANT)]
        )
        await until(lambda: gate.inside == 2, "one of each tenant runs")
        await harness.queue.limits.set("charge(tenant)", Concurrency(3))
        await until(lambda: gate.inside == 6, "three of each tenant run")
        await harness.queue.limits.set("charge(tenant)", Concurrency(5), value="a")
        await until(lambda: gate.inside == 8, "all of tenant a run")
        gate.open.set()
        await until_empty(harness)

    async def test_a_limit_that_is_lowered_lets_nothing_through_until_enough_have_ended(
        self, harness: Harness
    ) -> None:
        gate, limits = Gate(), [Concurrency(4)]
        await harness.start_worker(gate, concurrency=20)
        await harness.queue.add_many(jobs_of("a", 6, limits=limits))
        await until(lambda: gate.inside == 4, "four run")
        await harness.queue.limits.set("charge()", Concurrency(1))
        gate.open.set()
        await until_empty(harness)
        assert gate.ended == 6

    async def test_the_list_tells_what_is_in_use_and_what_was_changed(
        self, harness: Harness
    ) -> None:
        gate = Gate()
        await harness.start_worker(gate, concurrency=20)
        await harness.queue.add_many(jobs_of("a", 3, limits=[*FOR_TENANT, Rate("100/m")]))
        await until(lambda: gate.inside == 1, "one runs")
        overall, tenant = await harness.queue.limits.list()
        assert (overall.name, overall.rate, overall.concurrency) == ("charge()", "100/m", None)
        assert (tenant.name, tenant.concurrency, tenant.running) == ("charge(tenant)", 1, 1)
        assert [(use.value, use.running, use.waiting) for use in tenant.uses] == [("a", 1, 2)]
        assert not tenant.changed
        await harness.queue.limits.set("charge(tenant)", Concurrency(2))
        assert [each.changed for each in await harness.queue.limits.list()] == [False, True]
        assert await harness.queue.limits.reset("charge(tenant)") is True
        assert [each.concurrency for each in await harness.queue.limits.list()] == [None, 1]
        gate.open.set()
        await until_empty(harness)

    async def test_a_limit_that_a_job_has_closed_can_be_opened(self, harness: Harness) -> None:
        calls: list[int] = []

        async def handler(job: Any) -> None:  # noqa: ANN401 - any job
            calls.append(job.data["n"])
            if len(calls) == 1:
                raise RateLimited("1h", limit="charge()")

        await harness.start_worker(handler)
        await harness.queue.add_many(jobs_of("a", 2, limits=[Concurrency(1)]))
        await until(lambda: harness.admin.exists(KEYS.gate + b":over") == 1, "it is closed")
        assert look_at_gate(harness.admin, KEYS).lined == 2
        (closed,) = await harness.queue.limits.list()
        assert closed.uses[0].closed_until is not None
        assert await harness.queue.limits.open("charge()") is True
        await until_empty(harness)
        assert calls == [0, 0, 1], "the job that met the limit is the next one"

    async def test_tokens_that_a_job_takes_afterwards_delay_the_next_ones(
        self, harness: Harness
    ) -> None:
        calls = Calls()

        async def handler(job: Any) -> None:  # noqa: ANN401 - any job
            await calls(job)
            if job.data["n"] == 0:
                job.charge("charge()", 3600)

        await harness.start_worker(handler)
        await harness.queue.add_many(jobs_of("a", 1, limits=[Rate("1/s")]))
        await until(lambda: len(calls.jobs) == 1, "the first has run")

        async def is_charged() -> bool:
            score = harness.admin.zscore(KEYS.gate + b":rate", "charge()")
            return bool(score) and score > (harness.admin.time()[0] + 3000) * 1_000_000

        await wait_until(is_charged, within=SOON, sentence="the rate is charged")
        late = await harness.queue.add("charge", {"tenant": "a", "n": 1}, limits=[Rate("1/s")])
        assert "charge()" in (await late.why()).sentence
        assert len(calls.jobs) == 1

    async def test_impossible_changes_are_refused(self, harness: Harness) -> None:
        limits = harness.queue.limits
        for refused in (
            limits.set("a|b", Concurrency(1)),
            limits.set("charge()"),
            limits.set("charge()", Concurrency(1), Concurrency(2)),
            limits.set("charge(tenant)", Rate("1/s"), value="a"),
            limits.weigh("a", float("nan")),
            limits.weigh("a", 0),
            limits.weigh("x" * 300, 1),
        ):
            with pytest.raises(OptionError):
                await refused
        assert not harness.admin.exists(KEYS.gate)


async def test_a_worker_declares_its_limits_and_says_once_what_has_changed(
    running: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    def make(most: int) -> App:
        app = App(running.url)
        app.limit("stripe", Rate("5/s"))

        @app.task(limits=[Concurrency(most, by="tenant"), Limit("stripe")])
        async def charge(tenant: str) -> None: ...

        return app

    async def start_and_stop(app: App) -> list[tuple[str, int | None, str | None]]:
        async with app, AppWorker(app):
            found = await app.queue().limits.list()
        return [(each.name, each.concurrency, each.rate) for each in found]

    first = await start_and_stop(make(4))
    assert first == [("charge(tenant)", 4, None), ("stripe", None, "5/s")]
    async with make(4) as app:
        await app.queue().limits.set("stripe", Rate("1/m"))
    assert (await start_and_stop(make(4)))[1] == ("stripe", None, "1/m"), "set by hand, it stays"
    assert "from now on" not in caplog.text
    assert (await start_and_stop(make(8)))[0] == ("charge(tenant)", 8, None)
    told = [each.getMessage() for each in caplog.records if "from now on" in each.getMessage()]
    assert told == [
        "limit charge(tenant) of queue default was 4 at a time and is 8 at a time from now on"
    ]


@pytest.mark.every_server
class TestPauses:
    async def test_a_paused_task_is_held_and_others_run(self, harness: Harness) -> None:
        calls = Calls()
        assert await harness.queue.pause(task="mail") is True
        assert await harness.queue.pause(task="mail") is False
        await harness.start_worker(calls)
        await harness.queue.add_many([NewJob("mail", 1), NewJob("bill", 2), NewJob("mail", 3)])
        await until(lambda: len(calls.jobs) == 1, "the other task runs")
        await until(lambda: look_at_gate(harness.admin, KEYS).lined == 2, "two are held")
        assert await harness.queue.resume(task="mail") is True
        await until_empty(harness)
        assert calls.data == [2, 1, 3]
        assert set(calls.attempts) == {1}
        assert await harness.queue.resume(task="mail") is False

    async def test_a_task_is_paused_while_its_jobs_wait_in_a_plain_queue(
        self, harness: Harness
    ) -> None:
        gate = Gate()
        await harness.start_worker(gate, concurrency=1)
        await harness.queue.add_many(
            [NewJob("bill", 0), *(NewJob("mail", n) for n in range(1, 50))]
        )
        await harness.queue.add("bill", 50)
        await gate.until(1)
        await harness.queue.pause(task="mail")
        await until(lambda: look_at_gate(harness.admin, KEYS).lined >= 49, "they are in lines")
        gate.open.set()
        await until(lambda: gate.data == [0, 50], "only the other task runs")
        await harness.queue.resume(task="mail")
        await until_empty(harness)
        assert sorted(gate.data) == list(range(51))

    async def test_a_key_and_a_task_with_a_key_are_held(self, harness: Harness) -> None:
        calls = Calls()
        await harness.queue.pause(key="k1")
        await harness.queue.pause(task="mail", key="k2", until="1h")
        await harness.start_worker(calls)
        await harness.queue.add("mail", "1", key="k1")
        await harness.queue.add("mail", "2", key="k2")
        await harness.queue.add("bill", "3", key="k2")
        await until(lambda: calls.data == ["3"], "the job that is not paused runs")
        pauses = await harness.queue.limits.pauses()
        assert [(each.task, each.key, each.until is None) for each in pauses] == [
            (None, "k1", True),
            ("mail", "k2", False),
        ]
        await harness.queue.resume(key="k1")
        await harness.queue.resume(task="mail", key="k2")
        await until_empty(harness)
        assert sorted(calls.data) == ["1", "2", "3"]

    async def test_a_pause_with_an_end_ends_by_itself(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.pause(task="mail", until="1s")
        began = harness.admin.time()
        await harness.queue.add("mail", 1)
        await until_empty(harness)
        ended = harness.admin.time()
        assert calls.data == [1]
        assert ended[0] + ended[1] / 1e6 - began[0] - began[1] / 1e6 > 0.9
        assert await harness.queue.limits.pauses() == []

    async def test_bad_pauses_are_refused(self, harness: Harness) -> None:
        for refused in (
            harness.queue.pause(until="1h"),
            harness.queue.pause(key=""),
            harness.queue.pause(task="x" * 300),
            harness.queue.pause(task="mail", until="soon"),
        ):
            with pytest.raises(OptionError):
                await refused
        assert not harness.admin.exists(KEYS.gate)


@pytest.mark.every_server
async def test_a_weight_that_is_set_by_hand_wins_over_that_of_jobs(harness: Harness) -> None:
    queue, calls = harness.queue, Calls()
    await queue.limits.weigh("big", 3)
    await queue.add_many([NewJob("x", "big", key="big", weight=1) for _ in range(40)])
    await queue.add_many([NewJob("x", "small", key="small") for _ in range(40)])
    assert {each.key: each.weight for each in await queue.limits.keys()} == {"big": 3, "small": 1}
    await harness.start_worker(calls, concurrency=1)
    await until_empty(harness)
    assert calls.data[:40].count("big") in range(29, 32)


@pytest.mark.every_server
async def test_a_producer_whose_limits_are_ignored_says_so_once(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if "ignored" in each.getMessage()]

    await harness.queue.add("mail", limits=[Concurrency(3)])
    async with Queue(KEYS.name, harness.running.url) as other:
        await other.add("mail", limits=[Concurrency(3)])
        await other.add("call", limits=[Rate("5/s")])
        await harness.queue.limits.set("call()", Rate("9/s"))  # that is no contradiction
    async with Queue(KEYS.name, harness.running.url) as other:
        for _ in range(3):
            await other.add("mail", limits=[Concurrency(5)])
            await other.add("call", limits=[Rate("5/s")])
        await until(lambda: bool(told()), "it has said so")
    (sentence,) = told()
    assert sentence.startswith("limit mail() of queue work is 3 at a time: ")
    assert sentence.endswith("this producer says 5 at a time, which is ignored")


@pytest.mark.parametrize(
    "weight", [0, -1, 1e-9, 1e7, 10**400, math.nan, math.inf, -math.inf, "2", True, b"3", [1]]
)
async def test_a_weight_that_no_task_may_have_is_refused(
    harness: Harness,
    weight: Any,  # noqa: ANN401 - anything
) -> None:
    with pytest.raises(OptionError, match=r"Invalid weight .* expected a number above 0"):
        await harness.queue.limits.weigh("big", weight)
    with pytest.raises(OptionError, match=r"Invalid weight .* expected a number above 0"):
        await harness.queue.add("x", key="big", weight=weight)
    assert not harness.admin.exists(KEYS.gate)
