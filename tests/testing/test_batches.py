"""Tasks that get batches, in a test."""

from dataclasses import dataclass

import pytest

from tampu import App, Backoff, Batch, Bury, JobBatch
from tampu.testing import Kit


@dataclass
class Page:
    tenant: str
    url: str


class Shop:
    def __init__(self) -> None:
        self.app = App()
        self.log: list[list[str]] = []


@pytest.fixture
def shop() -> Shop:
    made = Shop()

    @made.app.task(batch=Batch(3, wait="1h", by="tenant"), attempts=2, backoff=Backoff.fixed(60))
    async def index(batch: JobBatch[Page]) -> None:
        urls = [page.url for page in batch.data]
        made.log.append(urls)
        for job in batch:
            if job.data.url == "bad":
                batch.fail(job, Bury("bad page"))
        if "boom" in urls:
            raise ValueError("boom")

    @made.app.task
    async def note(text: str) -> None:
        made.log.append([text])

    return made


async def test_a_batch_runs_with_what_is_there(tampu: Kit, shop: Shop) -> None:
    index, note = shop.app.tasks["index"], shop.app.tasks["note"]
    async with tampu.use(shop.app) as jobs:
        for tenant, url in ("a1", "b1", "a2", "a3", "a4"):
            await index.enqueue(Page(tenant, url))
        await note.enqueue("n")
        ran = await jobs.run()
    assert shop.log == [["1", "2", "3"], ["1"], ["4"], ["n"]]
    assert [each.name for each in ran] == ["index"] * 5 + ["note"]
    assert [each.job.data["url"] for each in ran[:5]] == ["1", "2", "3", "1", "4"]


async def test_each_job_of_a_batch_has_its_own_outcome(tampu: Kit, shop: Shop) -> None:
    index = shop.app.tasks["index"]
    async with tampu.use(shop.app) as jobs:
        for url in ("boom", "bad", "good"):
            await index.enqueue(Page("a", url))
        first = await jobs.run(raise_errors=False)
        assert [str(each.error) for each in first[::2]] == ["boom", "boom"]
        assert "bad page" in str(first[1].error)
        assert [job.attempts for job in jobs.enqueued(index)] == [1, 1]
        with pytest.raises(ValueError, match="boom"):
            await jobs.travel("61s")
    assert shop.log == [["boom", "bad", "good"], ["boom", "good"]]


async def test_inline_jobs_are_batches_of_those_that_were_added_together(
    tampu: Kit, shop: Shop
) -> None:
    index = shop.app.tasks["index"]
    async with tampu.use(shop.app, inline=True):
        job = await index.enqueue(Page("a", "1"))
        assert await job.result() is None
        await index.enqueue_many([index.call(Page("a", url)) for url in "234"])
    assert shop.log == [["1"], ["2", "3", "4"]]


async def test_what_is_enqueued_is_found_by_record_or_by_fields(tampu: Kit, shop: Shop) -> None:
    index = shop.app.tasks["index"]
    async with tampu.use(shop.app) as jobs:
        await index.enqueue(Page("a", "1"))
        jobs.assert_enqueued(index, Page("a", "1"))
        jobs.assert_enqueued(index, tenant="a")
        jobs.assert_not_enqueued(index, url="2")
