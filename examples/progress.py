"""Progress: a long job reports how far it is, and another program follows it.

It prints:

    active
    progress 25 %
    progress 50 %
    progress 75 %
    progress 100 %
    completed
    4 pictures
"""

import asyncio

from tampu import INJECTED, App, AppWorker, EventKind, Job, QueueEvents

app = App(default_queue="pictures")


@app.task
async def shrink(pictures: list[str], job: Job = INJECTED) -> str:
    """Shrink pictures one after the other, and report progress."""
    for done, _ in enumerate(pictures, start=1):
        await asyncio.sleep(0.05)  # the work
        job.progress(100 * done // len(pictures))  # does not wait and does not fail
    return f"{len(pictures)} pictures"


async def follow(events: QueueEvents, job_id: str) -> None:
    """Print what happens to one job until it ends."""
    async for event in events:  # pushed by the server; nothing polls
        if event.job_id != job_id:
            continue
        if event.kind is EventKind.PROGRESS:
            print("progress", event.fields["progress"], "%")
        elif event.kind is EventKind.ACTIVE:
            print("active")
        elif event.kind in (EventKind.COMPLETED, EventKind.DEAD):
            print("completed" if event.kind is EventKind.COMPLETED else "dead")
            return


async def main() -> None:
    # Listen first, then add the job: earlier events are not shown.
    async with app, AppWorker(app), QueueEvents("pictures") as events:
        job = await shrink.enqueue(["a.png", "b.png", "c.png", "d.png"])
        await asyncio.wait_for(follow(events, job.id), timeout=20)
        print(await job.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
