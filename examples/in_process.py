"""The in-process scheduler: run functions of this program at fixed times, without a server.

It prints:

    cache refreshed, 1 of 3
    cache refreshed, 2 of 3
    cache refreshed, 3 of 3
    cache: 3 runs, none failed
    flaky: 2 runs, 1 failed
"""

import asyncio
from datetime import UTC, datetime, timedelta

from tampu import At, Every, Missed, Overlap
from tampu.scheduler import ScheduledTask, Scheduler, TaskRun

refreshed: list[datetime] = []
tried: list[datetime] = []


async def refresh(run: TaskRun) -> None:
    """Run three times. `scheduled_at` is the instant it was scheduled for."""
    refreshed.append(run.scheduled_at)
    print(f"cache refreshed, {len(refreshed)} of 3")


def flaky(run: TaskRun) -> None:
    """A plain function. An error fails this run; the task continues."""
    tried.append(run.scheduled_at)
    if len(tried) == 1:
        raise ConnectionError("not yet")


async def main() -> None:
    soon = [datetime.now(UTC) + timedelta(milliseconds=50 * number) for number in (1, 2)]
    # This scheduler forgets everything when it ends. With `store=SqliteStore("tasks.db")` or
    # `store=RedisStore()` the next start continues where this one ended.
    async with Scheduler() as scheduler:
        scheduler.add(
            ScheduledTask("cache", Every("100ms"), refresh, max_runs=3, overlap=Overlap.SKIP)
        )
        # Both instants count, even if this program is busy and late.
        scheduler.add(ScheduledTask("flaky", At(*soon), flaky, missed=Missed.all()))
        reports = await scheduler.serve()  # returns when every task has ended
    for name, report in sorted(reports.items()):
        failed = report.state.failed or "none"
        print(f"{name}: {report.state.ran} runs, {failed} failed")


if __name__ == "__main__":
    asyncio.run(main())
