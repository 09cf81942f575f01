"""A script without any framework: tasks, a worker, a retry, a job that waits, a job that fails.

It prints:

    welcome, Ada
    welcome, Bob (attempt 2)
    welcome, Cy
    nobody has no address
"""

import asyncio

from tampu import INJECTED, App, AppWorker, Backoff, Bury, Job, JobFailed

app = App(default_queue="script")  # on TAMPU_URL, else on a server of its own in ./.tampu


@app.task(attempts=5, backoff=Backoff.exponential("50ms"), timeout="10s")
async def welcome(name: str, job: Job = INJECTED) -> str:
    """What a worker runs. `job` is filled in by the worker, not by who enqueues."""
    if name == "nobody":
        raise Bury("nobody has no address")  # it would not help to try again
    if name == "Bob" and job.attempt == 1:
        raise ConnectionError("the mail server is busy")  # any error: tried again
    return f"welcome, {name}" + (f" (attempt {job.attempt})" if job.attempt > 1 else "")


async def main() -> None:
    # One program for the example. Else `tampu worker script:app` is a program of its own.
    async with app, AppWorker(app, store_results=True):
        ada = await welcome.enqueue("Ada")
        bob = await welcome.enqueue("Bob")
        later = await welcome.options(delay="300ms").enqueue("Cy")
        for job in (ada, bob, later):
            print(await job.result(timeout=10))

        nobody = await welcome.enqueue("nobody")
        try:
            await nobody.result(timeout=10)
        except JobFailed as failed:  # the job is a dead letter now: see `tampu dead ls script`
            print(failed.message)


if __name__ == "__main__":
    asyncio.run(main())
