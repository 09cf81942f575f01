"""What only one of the two understands is left whole by the other."""

from typing import Any

import msgpack
import pytest

from tampu import Cron, Every, Missed, Overlap, Promoter, TimeWindow
from tampu.util.clock import now_ms
from tampu.wire.envelope import decode_envelope
from tests.contract.workers import Boom, Calls
from tests.interop.chasqui import Refused
from tests.interop.shared_queue import SharedQueue

pytestmark = pytest.mark.chasquimq


def spec_of(key: str, *behind: Any) -> bytes:  # noqa: ANN401 - elements of the array
    """A spec of nine elements, as the peer reads it, and what is put behind them."""
    pattern = {"Every": [100]}
    inner = msgpack.packb(msgpack.packb({"x": 1}))
    fields = [key, "tick", pattern, inner, None, None, None, 0, {"FireAll": [1000]}, *behind]
    return bytes(msgpack.packb(fields))


def store(shared: SharedQueue, key: str, spec: bytes, at_ms: int) -> None:
    shared.admin.hset(shared.keys.spec(key), "spec", spec)
    shared.admin.zadd(shared.keys.repeat, {key: at_ms})


async def until_fired(shared: SharedQueue, count: int = 1) -> None:
    await shared.until(lambda: shared.admin.xlen(shared.keys.stream) >= count, f"{count} fires")


@pytest.mark.parametrize("expression", ["0 0 13 * +FRI", "1,2, * * * *", "0 0 0 1 1 * 2099"])
async def test_a_rule_that_only_the_peer_reads_stays_and_is_reported(
    shared: SharedQueue, expression: str
) -> None:
    key = await shared.peer_repeat("tick", pattern={"kind": "cron", "expression": expression})
    raw = shared.admin.hgetall(shared.keys.spec(key))
    due_ms = now_ms() - 1
    shared.admin.zadd(shared.keys.repeat, {key: due_ms}, xx=True)
    (found,) = await shared.queue.schedules.list()
    assert found.problem is not None
    # Ours leads, and fires what it can read.
    stop = await shared.fire_in("here")
    await shared.queue.schedules.add("other", Every(0.05), limit=1)
    await until_fired(shared)
    assert shared.admin.hgetall(shared.keys.spec(key)) == raw
    assert shared.admin.zscore(shared.keys.repeat, key) == due_ms
    # Theirs leads, and goes on with it.
    await stop()
    await shared.fire_in("there")
    await until_fired(shared, 2)
    assert [name for _, name in shared.waiting()] == ["other", "tick"]


async def test_a_rule_that_only_we_read_is_dropped_by_a_peer_that_leads(
    shared: SharedQueue,
) -> None:
    """It takes it out of its place and leaves the rest; ours then fires it no more, and says so.

    Such rules are `LW` and `@midnight`. What we promise is that they fire while one of ours leads.
    """
    key = (await shared.queue.schedules.add("tick", Cron("0 0 LW * *"), missed=Missed.ONCE)).key
    later_ms = shared.admin.zscore(shared.keys.repeat, key)
    stop = await shared.fire_in("there")
    await shared.queue.schedules.add("other", Every(0.05), limit=1)
    await until_fired(shared)
    assert shared.admin.zscore(shared.keys.repeat, key) == later_ms, (
        "not looked at before it is due"
    )
    await stop()
    shared.admin.zadd(shared.keys.repeat, {key: now_ms() - 2 * 3_600_000}, xx=True)
    stop = await shared.fire_in("here")
    await until_fired(shared, 2)
    await stop()
    shared.admin.zadd(shared.keys.repeat, {key: now_ms() - 1}, xx=True)
    await shared.fire_in("there")
    await shared.until(
        lambda: shared.admin.zscore(shared.keys.repeat, key) is None, "it is dropped"
    )
    assert shared.admin.hexists(shared.keys.spec(key), "spec")
    assert await shared.queue.schedules.list() == []
    # Storing it again, as a deploy does, has it fire again.
    assert (await shared.queue.schedules.add("tick", Cron("0 0 LW * *"))).next_at is not None


async def test_a_spec_of_a_later_peer_is_fired_by_us(shared: SharedQueue) -> None:
    """It has a tenth element, for which a scheduler of 1.3 drops it: theirs, not ours."""
    retry = [7, ["fixed", 5, None, None, None]]
    store(shared, "later", spec_of("later", retry), now_ms() + 50)
    raw = shared.admin.hget(shared.keys.spec("later"), "spec")
    stop = await shared.fire_in("here")
    await until_fired(shared, 2)
    await stop()
    assert shared.admin.hget(shared.keys.spec("later"), "spec") == raw
    assert [envelope.retry.max_attempts for envelope, _ in shared.waiting() if envelope.retry][
        :2
    ] == [7, 7]
    await shared.fire_in("there")
    await shared.until(
        lambda: not shared.admin.exists(shared.keys.repeat), "the peer has dropped it"
    )
    assert shared.admin.hget(shared.keys.spec("later"), "spec") == raw


async def test_fields_of_ours_stay_beside_a_spec_that_the_peer_fires(shared: SharedQueue) -> None:
    window = TimeWindow(tz="UTC")
    stored = await shared.queue.schedules.add(
        "tick", Every(0.05), window=window, overlap=Overlap.SKIP, jitter=None, attempts=2
    )
    hash_key = shared.keys.spec(stored.key)
    shared.admin.hset(hash_key, mapping={"missed": 3, "outside": 4, "of a later tampu": "x"})
    before = shared.admin.hgetall(hash_key)
    await shared.fire_in("there")
    await until_fired(shared, 2)
    after = shared.admin.hgetall(hash_key)
    assert int(after.pop(b"fired")) >= 2
    assert after == before


async def test_entries_with_fields_of_others_are_run_by_both(shared: SharedQueue) -> None:
    envelope = msgpack.packb(["j", msgpack.packb(1), now_ms(), 0])
    fields = {
        "z": "of a later peer",
        "n": "job",
        "d": envelope,
        "x": msgpack.packb({"tenant": "a"}),
    }
    calls = Calls()
    ours = await shared.start_worker(calls)
    shared.admin.xadd(shared.keys.stream, fields)
    await calls.until(1)
    assert (calls.jobs[0].name, calls.jobs[0].tenant) == ("job", "a")
    await ours.stop()
    theirs = await shared.start_peer_worker()
    shared.admin.xadd(shared.keys.stream, fields)
    (call,) = await shared.called(theirs)
    assert (call["name"], call["data"]) == ("job", 1)


@pytest.mark.parametrize(
    "form",
    [
        ["m", b"\x01", 1_700_000_000_000],
        {"id": "m", "payload": b"\x01", "created_at_ms": 1_700_000_000_000, "other": 1},
        ["m", b"\x01", 1_700_000_000_000, 0, [3, ["fibonacci", 9, None, None, None]]],
    ],
    ids=["without an attempt", "by names", "a backoff that is not known"],
)
async def test_forms_that_we_never_write_are_promoted_as_they_are_and_run_by_both(
    shared: SharedQueue, form: object
) -> None:
    envelope = msgpack.packb(form)
    member = b"\x03\0\0\0job" + envelope
    calls, worker = Calls(), ""
    for world in ("here", "there"):
        shared.admin.zadd(shared.keys.delayed, {member: now_ms() - 1})
        async with Promoter(shared.name, shared.url):
            await shared.until(lambda: shared.admin.xlen(shared.keys.stream) == 1, "it is promoted")
        ((_, fields),) = shared.admin.xrange(shared.keys.stream)
        assert fields == {b"d": envelope, b"n": b"job"}
        if world == "here":
            ours = await shared.start_worker(calls)
            await calls.until(1)
            await ours.stop()
        else:
            worker = await shared.start_peer_worker()
    (call,) = await shared.called(worker)
    (job,) = calls.jobs
    assert (
        (job.id, job.name, job.data) == (call["id"], call["name"], call["data"]) == ("m", "job", 1)
    )


async def test_an_unknown_backoff_survives_a_retry_by_us(shared: SharedQueue) -> None:
    form = ["m", msgpack.packb(1), now_ms(), 0, [2, ["fibonacci", 1, None, None, None]]]
    shared.admin.xadd(shared.keys.stream, {"d": msgpack.packb(form), "n": "job"})
    await shared.start_worker(Boom())
    await shared.until(lambda: shared.admin.xlen(shared.keys.dead) == 1, "it is buried")
    (letter,) = await shared.queue.dead.peek()
    retry = decode_envelope(letter.raw).retry
    assert retry is not None
    assert retry.backoff is not None
    assert retry.backoff.kind == "fibonacci"


async def test_a_member_that_is_no_job_stops_the_peers_promoter_and_not_ours(
    shared: SharedQueue,
) -> None:
    """The peer's ends for good when it meets one; ours sets it aside, and the queue goes on."""
    calls = Calls()
    await shared.start_worker(calls)
    await shared.until(lambda: shared.holder("promoter") is not None, "ours leads")
    theirs = await shared.start_peer_worker()
    shared.admin.zadd(shared.keys.delayed, {b"\x01\x02": now_ms() - 1})
    await shared.peer_add("job", 1, delay_ms=50)
    await shared.settled()
    assert len(calls) + len(await shared.peer.calls(theirs)) == 1
    (letter,) = await shared.ask("peek")
    assert (letter["reason"], letter["payload"]) == ("malformed", "0102")


async def test_a_queue_whose_peer_has_lost_its_promoter_is_served_by_ours(
    shared: SharedQueue,
) -> None:
    theirs = await shared.start_peer_worker()
    await shared.until_led("promoter", theirs)
    shared.admin.zadd(shared.keys.delayed, {b"\x01\x02": now_ms() - 1})
    await shared.peer_add("job", 1, delay_ms=10)
    await shared.until(lambda: shared.holder("promoter") is None, "its promoter has ended")
    async with Promoter(shared.name, shared.url):
        await shared.settled()
    (call,) = await shared.called(theirs)
    assert call["data"] == 1
    with pytest.raises(Refused, match="arithmetic"):  # and only now it says so
        await shared.peer.ask("stop_worker", worker=theirs)
