"""Looking at what is enqueued."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from unittest.mock import ANY

import pytest

from tampu import App, ArgumentError, Queue
from tampu.testing import Kit

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
app = App("redis://192.0.2.1", default_queue="mails")


@dataclass(frozen=True)
class Address:
    name: str
    city: str = "Lima"


@app.task
async def remind(order: int, on: date | None = None, *, tags: list[str] | None = None) -> None: ...


@app.task(queue="letters")
def send(to: Address, delay: int = 0) -> None: ...


class TestFound:
    async def test_arguments_that_are_given_must_match(self, tampu: Kit) -> None:
        async with tampu.use(app) as jobs:
            await remind.enqueue(17, date(2026, 5, 1), tags=["a"])
            await send.enqueue(Address("ada"))
            assert jobs.assert_enqueued(remind).data["order"] == 17
            jobs.assert_enqueued(remind, 17)
            jobs.assert_enqueued(remind, order=17, tags=["a"])
            jobs.assert_enqueued(remind, 17, date(2026, 5, 1), tags=("a",))
            jobs.assert_enqueued(remind, ANY, on=ANY)
            jobs.assert_enqueued(send, Address("ada", "Lima"))
            jobs.assert_not_enqueued(remind, 18)
            jobs.assert_not_enqueued(remind, 17, tags=["b"])
            jobs.assert_not_enqueued(send, Address("bob"))
            jobs.assert_not_enqueued(remind, object())
            jobs.assert_not_enqueued(remind.options(queue="others"), 17)

    async def test_defaults_count_as_arguments(self, tampu: Kit) -> None:
        async with tampu.use(app) as jobs:
            await remind.enqueue(17)
            jobs.assert_enqueued(remind, 17, None)
            jobs.assert_not_enqueued(remind, 17, date(2026, 5, 1))

    async def test_delays_are_from_now_and_exact(self, tampu: Kit) -> None:
        async with tampu.use(app, now=START) as jobs:
            await remind.options(delay="3d").enqueue(17)
            await remind.enqueue(18)
            found = jobs.assert_enqueued(remind, 17, delay="3d")
            assert (found.due_at, found.delay) == (START + timedelta(days=3), timedelta(days=3))
            jobs.assert_enqueued(remind, 17, at=START + timedelta(days=3))
            jobs.assert_enqueued(remind.options(delay="3d"), 17)
            jobs.assert_enqueued(remind, 18, delay=0)
            jobs.assert_not_enqueued(remind, 17, delay=0)
            jobs.assert_not_enqueued(remind, 17, delay="2d")
            await jobs.travel("1d")
            jobs.assert_enqueued(remind, 17, delay="2d")

    async def test_a_parameter_with_the_name_of_an_option_is_an_argument(self, tampu: Kit) -> None:
        async with tampu.use(app) as jobs:
            await send.options(delay=60).enqueue(Address("ada"), delay=5)
            jobs.assert_enqueued(send, delay=5)
            jobs.assert_enqueued(send.options(delay=60), delay=5)
            jobs.assert_not_enqueued(send, delay=60)
            jobs.assert_not_enqueued(send.options(delay=5))

    async def test_jobs_that_ran_or_were_cancelled_are_not_enqueued(self, tampu: Kit) -> None:
        async with tampu.use(app) as jobs:
            await remind.enqueue(1)
            job = await remind.options(delay=60).enqueue(2)
            await jobs.run()
            jobs.assert_not_enqueued(remind, 1)
            await job.cancel()
            jobs.assert_not_enqueued(remind)

    async def test_all_are_listed_in_their_order(self, tampu: Kit) -> None:
        async with tampu.use(app) as jobs:
            await remind.options(delay=2).enqueue(4)
            await remind.options(delay=1, headers={"trace": "x"}).enqueue(3)
            await remind.enqueue(1)
            await remind.enqueue(2)
            await send.enqueue(Address("ada"))
            async with Queue("mails") as queue:
                await queue.add("by-name", [1, 2])
            assert [each.data["order"] for each in jobs.enqueued(remind)] == [1, 2, 3, 4]
            assert [each.data for each in jobs.enqueued("by-name")] == [[1, 2]]
            assert [each.name for each in jobs.enqueued()][:1] == ["send"]
            assert len(jobs.enqueued()) == 6
            assert jobs.enqueued(remind)[2].headers == {"trace": "x"}


class TestMessages:
    async def test_the_message_shows_what_is_enqueued_and_what_has_run(self, tampu: Kit) -> None:
        async with tampu.use(app) as jobs:
            await remind.enqueue(1)
            await jobs.run()
            await remind.options(delay="3d").enqueue(18, date(2026, 5, 1))
            await send.enqueue(Address("ada"))
            with pytest.raises(AssertionError) as caught:
                jobs.assert_enqueued(remind, 17, delay="1h")
        assert str(caught.value).splitlines() == [
            "remind(order=17), due in 1h is not enqueued.",
            "Enqueued are:",
            "  send(to={'name': 'ada', 'city': 'Lima'}), on queue letters",
            "  remind(order=18, on='2026-05-01'), due in 3d, on queue mails",
            "Have run already:",
            "  remind(order=1)",
        ]

    async def test_nothing_enqueued_is_said(self, tampu: Kit) -> None:
        async with tampu.use(app) as jobs:
            with pytest.raises(AssertionError, match=r"due now is not enqueued.\n.*\n  no jobs$"):
                jobs.assert_enqueued(remind, delay=0)

    async def test_what_should_not_be_there_is_shown(self, tampu: Kit) -> None:
        async with tampu.use(app) as jobs:
            await remind.enqueue(17)
            text = "remind() is enqueued:\n  remind(order=17), on queue mails"
            with pytest.raises(AssertionError, match=f"^{re.escape(text)}$"):
                jobs.assert_not_enqueued(remind)

    async def test_an_argument_that_the_task_does_not_have_is_an_error(self, tampu: Kit) -> None:
        async with tampu.use(app) as jobs:
            with pytest.raises(ArgumentError, match="'oder': unknown; the task accepts order"):
                jobs.assert_not_enqueued(remind, oder=17)
            with pytest.raises(ArgumentError, match="at most 2 positional"):
                jobs.assert_enqueued(remind, 1, 2, 3)


async def test_the_running_job_is_not_enqueued_but_its_next_attempt_is(tampu: Kit) -> None:
    own = App("redis://192.0.2.1")
    seen: list[list[str]] = []

    @own.task
    async def look() -> None:
        seen.append([each.name for each in jobs.enqueued()])
        raise ValueError

    @own.task
    async def other() -> None: ...

    async with tampu.use(own) as jobs:
        await look.enqueue()
        await other.enqueue()
        await jobs.run(raise_errors=False)
        (again,) = jobs.enqueued()
        assert (again.name, again.attempts) == ("look", 1)
    assert seen == [["other"]]
