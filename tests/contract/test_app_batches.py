"""Tasks that get many jobs at once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from tampu import (
    App,
    ArgumentError,
    Batch,
    Depends,
    Job,
    JobBatch,
    JobFailed,
    OptionError,
    Unique,
)
from tests.contract.apps import dead, working
from tests.contract.workers import SOON
from tests.servers import RunningServer

LONG = "1h"


@dataclass(frozen=True)
class Page:
    tenant: str
    url: str
    tags: list[str] = field(default_factory=list)


class PageStruct(msgspec.Struct, rename="camel"):
    tenant_name: str
    url: str = "/"


class PageDict(TypedDict, total=False):
    tenant: str


class PageModel(pydantic.BaseModel):
    tenant: str = pydantic.Field(min_length=1)
    depth: int = 2


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


@pytest.mark.every_server
async def test_a_task_gets_its_records_converted(app: App) -> None:
    seen: list[Page] = []

    @app.task(batch=Batch(3, wait=LONG))
    async def index(batch: JobBatch[Page]) -> None:
        seen.extend(batch.data)
        for job in batch:
            batch.done(job, job.data.url.upper())

    async with working(app):
        first = await index.enqueue(Page("ada", "/a", ["x"]))
        others = await index.enqueue_many([index.call(Page("bob", "/b"))])
        by_name = await app.queue("default").add("index", {"tenant": "eve", "url": "/c"})
        results = [await job.result(SOON) for job in (first, *others, by_name)]
    assert results == ["/A", "/B", "/C"]
    assert seen == [Page("ada", "/a", ["x"]), Page("bob", "/b"), Page("eve", "/c")]
    assert first.data == {"tenant": "ada", "url": "/a", "tags": ["x"]}


async def test_every_kind_of_record_is_taken(app: App) -> None:
    seen: list[object] = []

    @app.task(batch=Batch(1))
    async def struct(batch: JobBatch[PageStruct]) -> None:
        seen.extend(batch.data)

    @app.task(batch=Batch(1))
    def typed_dict(batch: JobBatch[PageDict]) -> None:
        seen.extend(batch.data)

    @app.task(batch=Batch(1))
    async def model(batch: JobBatch[PageModel]) -> None:
        seen.extend(batch.data)

    async with working(app):
        for job in (
            await struct.enqueue(PageStruct("ada")),
            await typed_dict.enqueue({"tenant": "bob"}),
            await model.enqueue(PageModel(tenant="eve")),
        ):
            await job.result(SOON)
    assert seen == [PageStruct("ada"), {"tenant": "bob"}, PageModel(tenant="eve")]


async def test_what_does_not_fit_is_refused_when_it_is_added(app: App) -> None:
    @app.task(batch=Batch(2))
    async def index(batch: JobBatch[Page]) -> None: ...

    @app.task(batch=Batch(2))
    async def model(batch: JobBatch[PageModel]) -> None: ...

    async with app:
        for given, problem in (
            (({"tenant": "ada"},), "argument 'url': required, but missing"),
            ((Page("ada", 5),), "argument 'url': expected str"),  # type: ignore[arg-type]
            (("ada",), "expected a Page"),
            ((Page("ada", "/"), 1), "expected one Page"),
            ((object(),), "cannot be encoded"),
        ):
            with pytest.raises(ArgumentError, match=problem):
                await index.enqueue(*given)
        with pytest.raises(ArgumentError, match="tenant"):
            await model.enqueue(PageModel.model_construct(tenant=""))


@pytest.mark.every_server
async def test_a_job_that_does_not_fit_is_buried_and_the_others_run(app: App) -> None:
    seen: list[str] = []

    @app.task(batch=Batch(2, wait=LONG))
    def index(batch: JobBatch[Page]) -> None:
        seen.extend(page.url for page in batch.data)

    async with working(app):
        await app.queue("default").add("index", {"tenant": "ada", "url": 5})
        good = await index.enqueue(Page("ada", "/a"))
        await good.result(SOON)
        (letter,) = await dead(app)
        for _ in range(2):
            await app.queue("default").add("index", {"url": "/"})
        await dead(app, count=3)
    assert letter.failure is not None
    assert letter.failure.message == "Task 'index', argument 'url': expected str."
    assert seen == ["/a"]


async def test_middleware_and_dependencies_are_there_once_for_a_batch(app: App) -> None:
    log: list[object] = []

    @asynccontextmanager
    async def around(job: Job[Any]) -> AsyncIterator[None]:
        assert isinstance(job, JobBatch)
        log.append(("in", job.name, len(job)))
        yield
        log.append("out")

    def connection(job: Job[Any]) -> Any:  # noqa: ANN401 - a generator
        log.append(("open", len(job.data)))
        yield "connection"
        log.append("close")

    @app.task(batch=Batch(2, wait=LONG), middleware=[around])
    async def index(
        batch: JobBatch[Page], db: Annotated[str, Depends(connection)] = "none"
    ) -> None:
        log.append((db, [page.url for page in batch.data]))

    async with working(app):
        jobs = [await index.enqueue(Page("ada", url)) for url in ("/a", "/b")]
        for job in jobs:
            await job.result(SOON)
    assert log == [
        ("in", "index", 2),
        ("open", 2),
        ("connection", ["/a", "/b"]),
        "close",
        "out",
    ]


async def test_a_plain_task_settles_jobs_from_its_thread(app: App) -> None:
    @app.task(batch=Batch(2, wait=LONG), attempts=1)
    def index(batch: JobBatch[Page]) -> int:
        batch.fail(batch[0], "no such page")
        return 7

    async with working(app):
        jobs = [await index.enqueue(Page("ada", url)) for url in ("/a", "/b")]
        assert await jobs[1].result(SOON) == 7
        with pytest.raises(JobFailed, match="no such page"):
            await jobs[0].result(SOON)


async def test_options_of_jobs_are_those_of_any_task(app: App) -> None:
    seen: list[list[str]] = []

    @app.task(batch=Batch(2, wait=LONG, by="tenant"), unique=Unique())
    async def index(batch: JobBatch[Page]) -> None:
        seen.append([page.url for page in batch.data])

    async with working(app):
        first = await index.enqueue(Page("ada", "/a"))
        again = await index.enqueue(Page("ada", "/a"))
        assert again.duplicate
        other = await index.options(delay=0.01).enqueue(Page("bob", "/b"))
        same = await index.enqueue(Page("ada", "/c"))
        await first.result(SOON)
        await same.result(SOON)
        await index.enqueue(Page("bob", "/d"))
        await other.result(SOON)
    assert sorted(sorted(urls) for urls in seen) == [["/a", "/c"], ["/b", "/d"]]


def test_functions_that_cannot_take_batches_are_refused(app: App) -> None:
    def no_batch(pages: list[Page]) -> None: ...

    def two(one: JobBatch[Page], other: JobBatch[Page]) -> None: ...

    def with_job(batch: JobBatch[Page], job: Job[Any]) -> None: ...

    def no_record(batch: JobBatch[str]) -> None: ...

    def untyped(batch: JobBatch) -> None: ...  # type: ignore[type-arg]

    for function, problem in (
        (no_batch, "takes one JobBatch"),
        (two, "takes one JobBatch"),
        (with_job, "takes one JobBatch"),
        (no_record, "expected JobBatch.Record."),
        (untyped, "expected JobBatch.Record."),
    ):
        task = app.task(batch=Batch(2), name=function.__name__)(function)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=problem):
            _ = task.definition

    @app.task
    async def forgotten(batch: JobBatch[Page]) -> None: ...

    with pytest.raises(OptionError, match=r"declare the task with batch=Batch"):
        _ = forgotten.definition
    with pytest.raises(OptionError, match="not supported with batch"):
        app.task(batch=Batch(2), isolation="process")(with_job)
