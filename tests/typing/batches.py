"""What type checkers know of tasks that get batches; checked by both of them, run by nobody."""

from dataclasses import dataclass
from typing import Annotated, Any, assert_type

from tampu import App, Batch, BatchJob, Call, Cron, Depends, Handler, Job, JobBatch, SyncJob, Worker

app = App()


@dataclass
class Page:
    tenant: str
    url: str


class Db: ...


def get_db() -> Db:
    return Db()


@app.task(batch=Batch(100, wait="50ms", by="tenant"), attempts=3)
async def index(batch: JobBatch[Page], db: Annotated[Db, Depends(get_db)]) -> None:
    assert_type(batch.data, list[Page])
    assert_type(batch[0], BatchJob[Page])
    assert_type(batch.left, list[BatchJob[Page]])
    for job in batch:
        assert_type(job.data.url, str)
        batch.done(job, 5)
        batch.fail(job, "no", after="5s")
        batch.fail(job, ValueError("no"))
        batch.snooze(job, 60)


@app.schedule(Cron("0 9 * * *"), args={"tenant": "a", "url": "/"})
@app.task(batch=Batch(10))
def plain(batch: JobBatch[Page], db: Db = Depends(get_db)) -> int:
    return len(batch)


async def what_comes_out() -> None:
    assert_type(await index.enqueue(Page("a", "/")), Job[Any])
    assert_type(plain.enqueue_sync(Page("a", "/")), SyncJob[Any])
    assert_type(index.call(Page("a", "/")), Call[Any])
    assert_type(await index.enqueue_many([index.call(Page("a", "/"))]), list[Job[Any]])


async def what_is_refused() -> None:
    """Each of these must be an error: the ignore of one that is none is reported."""
    await index.enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await index.enqueue("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await index.enqueue(Page("a", "/"), 1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Batch("100")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def handle(batch: JobBatch[Any]) -> None: ...


def bare_workers() -> None:
    Worker("index", Handler(handle, batch=Batch(100)))
