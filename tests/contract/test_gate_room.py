"""The room that workers have told the gate: it lasts as long as they do."""

import pytest

from tests.contract.workers import KEYS, SOON, Gate, Harness
from tests.gates import assert_sound
from tests.waiting import wait_until

WANT = KEYS.gate + b":want"


@pytest.mark.every_server
async def test_room_of_a_worker_that_others_have_forgotten_before_it_died_is_taken_away(
    harness: Harness,
) -> None:
    """Such as one that was cut off, came back to tell its room, and died before it read again."""
    gate = Gate()
    worker = await harness.start_worker(gate, concurrency=5)
    await harness.queue.add("j", 0, key="k")
    await gate.until(1)
    with harness.admin.pipeline() as calls:
        calls.hset(WANT, "t-gone", 50)
        calls.hincrby(KEYS.gate, "room", 50)
        calls.execute()
    await wait_until(
        lambda: harness.admin.hkeys(WANT) == [worker.id.encode()],
        within=SOON,
        sentence="only the worker that lives has room",
    )
    assert_sound(harness.admin, KEYS)
    assert harness.admin.hget(KEYS.gate, "room") == harness.admin.hget(WANT, worker.id)
    gate.open.set()
