"""What type checkers know of tasks; checked by both of them, run by nobody."""

from typing import TYPE_CHECKING, Annotated, Any, assert_type

from tampu import (
    INJECTED,
    App,
    Backoff,
    Call,
    Concurrency,
    Cron,
    Depends,
    Job,
    Limit,
    Priority,
    Rate,
    Router,
    SyncJob,
    Task,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

app = App()
router = Router(queue="routed")


class Db: ...


def get_db() -> Db:
    return Db()


@app.task
async def send(to: str, template: str = "hello") -> int:
    return len(to + template)


@app.task(queue="emails", attempts=5, backoff=Backoff.exponential(1), timeout=60)
def shrink(name: str, *, width: int) -> bytes:
    return name.encode() * width


@app.task(
    priority=Priority.HIGH,
    key="tenant",
    weight=lambda tenant: 2.0 if tenant == "acme" else 1,
    limits=[Concurrency(4, by="tenant"), Rate("100/m"), app.limit("stripe", Rate("25/s"))],
    ordered=True,
    cost=lambda call: call["tokens"],
    expires="10m",
)
async def ask(tenant: str, tokens: int) -> str:
    return tenant * tokens


@router.task
async def injected(to: str, db: Db = Depends(get_db), job: Job[Any] = INJECTED) -> None: ...


@router.task(isolation="process")
async def annotated(
    to: str, db: Annotated[Db, Depends(get_db)] = INJECTED, job: Job[Any] | None = None
) -> None: ...


@app.task
async def bare(job: Job = INJECTED) -> None:
    """Without a parameter, as most programs write it."""
    assert_type(job, Job[Any])
    assert_type(await job.result(), Any)


@app.schedule(Cron("0 9 * * *"), key="daily")
@app.task
async def digest(top: int = 10) -> list[str]:
    return [""] * top


@app.schedule(Cron("0 9 * * *"))
def tick() -> bool:
    return True


async def what_comes_out() -> None:
    assert_type(await send("ada"), int)
    assert_type(shrink("a", width=1), bytes)
    assert_type(await send.enqueue("ada"), Job[int])
    assert_type(await (await send.enqueue("ada", template="bye")).result(), int)
    assert_type(await shrink.enqueue("a", width=1), Job[bytes])
    assert_type(shrink.enqueue_sync("a", width=1), SyncJob[bytes])
    assert_type(shrink.enqueue_sync("a", width=1).result(), bytes)
    assert_type(send.call("ada"), Call[int])
    assert_type(await send.enqueue_many([send.call("ada")]), list[Job[int]])
    assert_type(send.enqueue_many_sync([send.call("ada")]), list[SyncJob[int]])
    assert_type(await send.options(delay="1m", job_id="x").enqueue("ada"), Job[int])
    assert_type(await ask.enqueue("acme", 5), Job[str])
    assert_type(await ask.options(priority=9, key=7, cost=3).enqueue("acme", 5), Job[str])
    assert_type(router.limit("crm", Concurrency(1)), Limit)
    assert_type(await injected.enqueue("ada"), Job[None])
    assert_type(await annotated.enqueue("ada"), Job[None])
    assert_type(await digest.enqueue(), Job[list[str]])
    assert_type(await digest(), list[str])
    assert_type(tick(), bool)
    assert_type(await tick.enqueue(), Job[bool])


async def what_is_refused() -> None:
    """Each of these must be an error: the ignore of one that is none is reported."""
    await send.enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await send.enqueue(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await send.enqueue("a", delay=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    shrink.enqueue_sync("a", 1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    send.call(to=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send.options(dellay=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    send.options(attempts="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    app.limit("crm", 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    app.task(limits=["crm"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    app.task(atempts=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await send.enqueue_many([shrink.call("a", width=1)])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def a_task_is_what_its_function_was() -> None:
    task: Task[[str, str], int] = send
    anything: Task[..., int] = send
    called: Callable[[str, str], Coroutine[Any, Any, int]] = send
    plain: Callable[[], bool] = tick
    del task, anything, called, plain
