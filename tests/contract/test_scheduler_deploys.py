"""Two versions of one task at once, as while a new one is being rolled out."""

from tampu.scheduler import RunStarted, ScheduleChanged
from tampu.timing import Every
from tests.schedulers import SHORT, Deeds, Team, stopped, task_of


class TestTwoSchedulesOfOneTask:
    async def test_the_one_that_was_started_later_is_kept_to(self, team: Team) -> None:
        # Both intervals are longer than a lease: who begins anew at each look never runs.
        deeds = Deeds()
        old = await team.sharing("old", task_of("old", Every("1s"), deeds), lease=SHORT)
        new = await team.sharing("new", task_of("new", Every("900ms"), deeds), lease=SHORT)
        await new.until(RunStarted, 2)
        await stopped(old, new)
        assert [event.task_id for event in new.journal.of(ScheduleChanged)] == ["t"]
        assert old.journal.of(ScheduleChanged) == []
        assert {done.who for done in deeds.done} == {"new"}

    async def test_the_older_one_goes_on_when_the_newer_is_gone(self, team: Team) -> None:
        deeds = Deeds()
        old = await team.sharing("old", task_of("old", Every("200ms"), deeds), lease=SHORT)
        new = await team.sharing("new", task_of("new", Every("100ms"), deeds), lease=SHORT)
        await new.until(RunStarted)
        await stopped(new)
        await old.until(RunStarted)
        await stopped(old)
        assert len(old.journal.of(ScheduleChanged)) == 1
