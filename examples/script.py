"""A script without a framework: tasks, a worker, a retry, a delayed job, a job that fails.

It prints:

    welcome, Ada
    welcome, Bob (attempt 2)
    welcome, Cy
    nobody has no address
"""

import asyncio

from tampu import INJECTED, App, AppWorker, Backoff, Bury, Job, JobFailed

app = App(default_queue="script")  # uses TAMPU_URL, or an embedded server in ./.tampu


@app.task(attempts=5, backoff=Backoff.exponential("50ms"), timeout="10s")
async def welcome(name: str, job: Job = INJECTED) -> str:
    """Run by the worker, which also fills in `job`."""
    if name == "nobody":
        raise Bury("nobody has no address")  # a retry would not help
    if name == "Bob" and job.attempt == 1:
        raise ConnectionError("the mail server is busy")  # any other error: retried
    return f"welcome, {name}" + (f" (attempt {job.attempt})" if job.attempt > 1 else "")


async def main() -> None:
    # In this example the worker is in the same program. Usually you run `tampu worker script:app`.
    async with app, AppWorker(app):
        ada = await welcome.enqueue("Ada")
        bob = await welcome.enqueue("Bob")
        later = await welcome.options(delay="300ms").enqueue("Cy")
        for job in (ada, bob, later):
            print(await job.result(timeout=10))

        nobody = await welcome.enqueue("nobody")
        try:
            await nobody.result(timeout=10)
        except JobFailed as failed:  # now a dead letter: see `tampu dead ls script`
            print(failed.message)


if __name__ == "__main__":
    asyncio.run(main())
