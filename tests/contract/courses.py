"""What tests of tasks that several schedulers share have in common."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tampu.scheduler.stores.coordinated import CoordinatedStore, Inflight
from tampu.server.lane import Lane
from tampu.server.scripts import scheduler as coordination
from tampu.server.scripts.scheduler import Decided, Term
from tampu.wire.keys import TaskKeys, shared_task_keys
from tampu.wire.task_state import TaskState, Waiting, encode_task_state
from tests.waiting import wait_until

KEYS = shared_task_keys(TaskKeys(), "t")
RUN = Waiting(1000, catch_up=True)
SHORT_MS = 50


def state(fired: int = 0, *, task_id: str = "t") -> TaskState:
    return TaskState(task_id=task_id, fired=fired)


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[CoordinatedStore]:
    made = CoordinatedStore(url, **options)  # type: ignore[arg-type]
    await made.open()
    yield made
    await made.close()


async def claimed(store: CoordinatedStore, version: int = 0) -> str:
    token = await store.claim(version, state(1), RUN)
    assert token is not None
    return token


async def claimed_shortly(lane: Lane) -> str:
    """The token of a run whose lease is about to end."""
    term, decided = Term("d" * 32, SHORT_MS), Decided(0, encode_task_state(state(1)))
    assert await coordination.claim(lane, KEYS, decided, run=RUN, term=term)
    return term.token


async def until_run_out(store: CoordinatedStore) -> Inflight:
    async def run_out() -> bool:
        seen = await store.look("t")
        return seen.inflight is not None and seen.inflight.left_ms <= 0

    await wait_until(run_out, within=10, sentence="the lease has run out")
    seen = await store.look("t")
    assert seen.inflight is not None
    return seen.inflight
