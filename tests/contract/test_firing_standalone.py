"""A repeater without a worker on real servers."""

import pytest

from tampu import Every, OptionError
from tampu.standalone import ScheduleFirer
from tests.contract.schedules import SOON
from tests.contract.workers import KEYS, QUEUE, Calls, Harness
from tests.waiting import wait_until


async def test_it_fires_for_workers_that_do_not(harness: Harness) -> None:
    calls = Calls()
    await harness.start_worker(calls, schedule=False)
    await harness.queue.schedules.add("tick", Every("50ms"), 7)
    async with ScheduleFirer(QUEUE, harness.running.url, name="host-7") as repeater:
        assert repeater.id.startswith("s-host-7-")
        await calls.until(2)
        assert harness.admin.get(KEYS.scheduler_lock) == repeater.id.encode()
    assert harness.admin.get(KEYS.scheduler_lock) is None
    assert set(calls.data) == {7}


async def test_of_two_one_leads_and_the_other_takes_over(harness: Harness) -> None:
    calls = Calls()
    await harness.start_worker(calls, schedule=False)
    await harness.queue.schedules.add("tick", Every("50ms"))
    first, second = (
        ScheduleFirer(QUEUE, harness.running.url),
        ScheduleFirer(QUEUE, harness.running.url),
    )
    await first.start()
    await calls.until(1)
    async with second:
        await first.stop()
        await wait_until(
            lambda: harness.admin.get(KEYS.scheduler_lock) == second.id.encode(),
            within=SOON,
            sentence="the second leads",
        )
        await calls.until(len(calls) + 2)


@pytest.mark.parametrize("options", [{"name": "a b"}, {"events": 1}, {"metrics": print}])
def test_invalid_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        ScheduleFirer(QUEUE, **options)  # type: ignore[arg-type]
