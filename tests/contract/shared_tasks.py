"""Helpers of the tests of tasks that several schedulers share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tampu.scheduler.stores.coordinated import CoordinatedStore, RunInFlight
from tampu.server.lane import Lane
from tampu.server.scripts import scheduler as scripts
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
async def open_store(url: str, **options: object) -> AsyncIterator[CoordinatedStore]:
    made = CoordinatedStore(url, **options)  # type: ignore[arg-type]
    await made.open()
    yield made
    await made.close()


async def claim_run(store: CoordinatedStore, version: int = 0) -> str:
    token = await store.claim(version, state(1), RUN)
    assert token is not None
    return token


async def claim_short_run(lane: Lane) -> str:
    """Claim a run whose lease is about to expire; return its token."""
    term, decided = Term("d" * 32, SHORT_MS), Decided(0, encode_task_state(state(1)))
    assert await scripts.claim(lane, KEYS, decided, run=RUN, term=term)
    return term.token


async def wait_for_expiry(store: CoordinatedStore) -> RunInFlight:
    async def is_expired() -> bool:
        view = await store.read("t")
        return view.in_flight is not None and view.in_flight.left_ms <= 0

    await wait_until(is_expired, within=60, sentence="the lease has expired")
    view = await store.read("t")
    assert view.in_flight is not None
    return view.in_flight
