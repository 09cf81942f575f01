"""A job that one world adds is run by the other: the same data, name and id."""

import math
from typing import Any

import pytest

from tampu import NewJob, OptionError
from tests.contract.workers import Calls
from tests.interop.chasqui import Refused
from tests.interop.peer.values import packed
from tests.interop.shared_queue import SharedQueue

pytestmark = pytest.mark.chasquimq

# Whole numbers on both sides of each length that MessagePack has for them.
BORDERS = (0, 2**7, 2**8, 2**16, 2**31, 2**32, 2**63)
INTS = sorted({edge - less for edge in BORDERS for less in (0, 1)} | {2**64 - 1, -1})
NEGATIVE = [-(2**5), -(2**7), -(2**15), -(2**31), -(2**63)]
VALUES: dict[str, Any] = {
    "nothing": None,
    "true": True,
    "false": False,
    **{f"{number}": number for number in INTS},
    **{f"{number - less}": number - less for number in NEGATIVE for less in (0, 1)},
    "zero": 0.0,
    "minus zero": -0.0,
    "fraction": 0.1,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "infinite": math.inf,
    "minus infinite": -math.inf,
    "not a number": math.nan,
    **{f"text of {size}": "a" * size for size in (0, 31, 32, 255, 256, 65_535, 65_536)},
    "text": "ñandú \N{LLAMA} \0 \n",
    **{f"bytes of {size}": b"\xff" * size for size in (0, 255, 256, 65_535, 65_536)},
    "every byte": bytes(range(256)),
    **{f"list of {size}": [0] * size for size in (0, 15, 16, 65_536)},
    **{f"map of {size}": {f"{n}": n for n in range(size)} for size in (0, 15, 16, 65_536)},
    "nested": {"a": [{"b": [None, {"c": (1.5, b"x", "y")}]}], "d": {"e": {}}},
    "large": "x" * 1_000_000,
}
del VALUES[f"{-(2**63) - 1}"]  # beyond what there is
NAMES = ["job", "", "x" * 256, "ñ" * 128, "süß \N{LLAMA}", "with space:and {colon}\n", "\0"]


def test_the_values_are_at_the_borders() -> None:
    heads = {bytes.fromhex(packed(value))[0] for value in VALUES.values()}
    assert heads >= {0xC0, 0xC2, 0xC3, *range(0xC4, 0xC7), 0xCB, *range(0xCC, 0xD4)}
    assert heads >= {0xD9, 0xDA, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xE0}


async def test_every_kind_of_data_that_the_peer_adds_reaches_our_handler(
    shared: SharedQueue,
) -> None:
    calls = Calls()
    await shared.start_worker(calls)
    ids = {await shared.peer_add(label, value): label for label, value in VALUES.items()}
    await calls.until(len(VALUES))
    await shared.settled()
    assert {job.id: job.name for job in calls.jobs} == ids
    wrong = [job.name for job in calls.jobs if packed(job.data) != packed(VALUES[job.name])]
    assert wrong == []
    assert {job.attempt for job in calls.jobs} == {1}
    assert await shared.queue.dead.peek() == []


async def test_every_kind_of_data_that_we_add_reaches_the_peers_handler(
    shared: SharedQueue,
) -> None:
    worker = await shared.start_peer_worker()
    jobs = await shared.queue.add_many([NewJob(label, value) for label, value in VALUES.items()])
    calls = await shared.called(worker, len(VALUES))
    await shared.settled()
    assert {call["id"]: call["name"] for call in calls} == {job.id: job.name for job in jobs}
    wrong = [each["name"] for each in calls if packed(each["data"]) != packed(VALUES[each["name"]])]
    assert wrong == []
    assert {call["attempt"] for call in calls} == {0}
    made = {job.id: job.created_at_ms for job in jobs}
    assert {call["id"]: call["created_at_ms"] for call in calls} == made


async def test_non_string_keys_reach_our_handler_and_are_buried_by_the_peer(
    shared: SharedQueue,
) -> None:
    """Its own decoder refuses them, and its worker takes that for a failure of the handler."""
    calls = Calls()
    worker = await shared.start_worker(calls)
    await shared.peer_add("numbers", {1: 2, b"k": 3})
    await calls.until(1)
    assert calls.data == [{1: 2, b"k": 3}]
    await worker.stop()
    await shared.start_peer_worker(max_attempts=1)
    await shared.queue.add("numbers", {1: 2})
    await shared.until(lambda: shared.admin.xlen(shared.keys.dead) == 1, "the peer has buried it")
    (letter,) = await shared.queue.dead.peek()
    assert letter.data == {1: 2}


async def test_names_are_the_same_on_both_sides(shared: SharedQueue) -> None:
    calls = Calls()
    ours = await shared.start_worker(calls)
    for name in NAMES:
        await shared.peer_add(name)
    await shared.ask("add_many", name="many", datas=[packed(number) for number in range(3)])
    await calls.until(len(NAMES) + 3)
    assert sorted(job.name for job in calls.jobs) == sorted([*NAMES, "many", "many", "many"])
    await ours.stop()
    theirs = await shared.start_peer_worker()
    for name in NAMES:
        await shared.queue.add(name)
    await shared.queue.add_each("many", range(3))
    found = await shared.called(theirs, len(NAMES) + 3)
    assert sorted(call["name"] for call in found) == sorted([*NAMES, "many", "many", "many"])


async def test_both_refuse_a_name_of_257_bytes(shared: SharedQueue) -> None:
    with pytest.raises(OptionError, match="256"):
        await shared.queue.add("x" * 257)
    with pytest.raises(Refused, match="256"):
        await shared.peer_add("x" * 257)


@pytest.mark.parametrize("job_id", ["my id:1", "ñ \N{LLAMA}", "x" * 512])
async def test_ids_of_the_users_are_the_same_on_both_sides(
    shared: SharedQueue, job_id: str
) -> None:
    calls = Calls()
    ours = await shared.start_worker(calls)
    assert await shared.peer_add("job", 1, job_id=job_id) == job_id
    await calls.until(1)
    await ours.stop()
    theirs = await shared.start_peer_worker()
    job = await shared.queue.add("job", 2, job_id=job_id)
    (call,) = await shared.called(theirs)
    assert job.id == call["id"] == calls.jobs[0].id == job_id


async def test_payloads_of_the_engines_own_door_are_bytes_of_messagepack(
    shared: SharedQueue,
) -> None:
    """The low-level consumer gets what our queue wrote, one layer less unpacked."""
    await shared.ask("start_consumer_of_bytes", worker="c-bytes")
    await shared.queue.add("job", {"x": 1})

    async def told() -> bool:
        return bool(await shared.peer.ask("calls", worker="c-bytes"))

    await shared.until(told, "the consumer has been called")
    (call,) = await shared.peer.ask("calls", worker="c-bytes")
    assert call["data"] == packed({"x": 1})
