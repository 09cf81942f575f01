"""Schedules: a task that runs by a cron rule, and one that runs every so often.

It prints:

    tick: Every second (UTC)
    report: At 09:00 on Monday through Friday (Europe/Berlin)
    tick 1 of a whole second: True
    tick 2 of a whole second: True
"""

import asyncio

from tampu import INJECTED, App, AppWorker, Cron, Job, Missed, Overlap

app = App(default_queue="cron")
ticks: asyncio.Queue[Job] = asyncio.Queue()


# A worker stores what is declared here when it starts. However many workers there are, one of
# them fires, each instant once.
@app.schedule(Cron("* * * * * *"), overlap=Overlap.SKIP)  # six fields: the first is seconds
@app.task
async def tick(job: Job = INJECTED) -> None:
    """Run once a second."""
    ticks.put_nowait(job)


@app.schedule(
    Cron("0 9 * * 1-5", tz="Europe/Berlin"),  # right across changes of the clock
    args={"to": "everybody"},
    missed=Missed.ONCE,  # no worker was there at nine: run it once when one is
)
@app.task
async def report(to: str) -> None:
    """Run on the mornings of working days."""


async def main() -> None:
    async with app, AppWorker(app):
        for schedule in app.schedules:
            print(f"{schedule.key}: {schedule.rule.explain()}")
        for number in (1, 2):
            at = (await asyncio.wait_for(ticks.get(), timeout=10)).scheduled_at
            # The instant that it was fired for, not the one at which it happened to run.
            print(f"tick {number} of a whole second:", at is not None and at.microsecond == 0)
        await app.queue().unschedule("tick")  # a schedule stays stored until it is removed


if __name__ == "__main__":
    asyncio.run(main())
