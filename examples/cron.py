"""Schedules: one task that runs every second, one that runs at nine on weekdays.

It prints:

    tick: Every second (UTC)
    report: At 09:00 on Monday through Friday (Europe/Berlin)
    tick 1 is on a whole second: True
    tick 2 is on a whole second: True
"""

import asyncio

from tampu import INJECTED, App, AppWorker, Cron, Job, Missed, Overlap

app = App(default_queue="cron")
ticks: asyncio.Queue[Job] = asyncio.Queue()


# A worker stores these schedules when it starts. One worker fires at a time, each instant once.
@app.schedule(Cron("* * * * * *"), overlap=Overlap.SKIP)  # with six fields, the first is seconds
@app.task
async def tick(job: Job = INJECTED) -> None:
    """Run once a second."""
    ticks.put_nowait(job)


@app.schedule(
    Cron("0 9 * * 1-5", tz="Europe/Berlin"),  # also right when clocks change
    args={"to": "everybody"},
    missed=Missed.ONCE,  # if no worker runs at nine, run it once when one does
)
@app.task
async def report(to: str) -> None:
    """Run at nine on weekdays."""


async def main() -> None:
    async with app, AppWorker(app):
        for schedule in app.schedules:
            print(f"{schedule.key}: {schedule.rule.explain()}")
        for number in (1, 2):
            at = (await asyncio.wait_for(ticks.get(), timeout=10)).scheduled_at
            # The instant it was fired for, not the moment at which it ran.
            print(f"tick {number} is on a whole second:", at is not None and at.microsecond == 0)
        await app.queue().schedules.remove("tick")  # a schedule stays until you remove it


if __name__ == "__main__":
    asyncio.run(main())
