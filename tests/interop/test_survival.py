"""What only one of the two understands is left whole by the other."""

from typing import Any

import msgpack
import pytest

from tampu import Cron, Every, Missed, Overlap, Promoter, TimeWindow
from tampu.util.clock import now_ms
from tampu.wire.envelope import decode_envelope
from tests.contract.workers import Boom, Calls
from tests.interop.chasqui import Refused
from tests.interop.road import Road

pytestmark = pytest.mark.chasquimq


def spec_of(key: str, *behind: Any) -> bytes:  # noqa: ANN401 - elements of the array
    """A spec of nine elements, as the peer reads it, and what is put behind them."""
    pattern = {"Every": [100]}
    inner = msgpack.packb(msgpack.packb({"x": 1}))
    fields = [key, "tick", pattern, inner, None, None, None, 0, {"FireAll": [1000]}, *behind]
    return bytes(msgpack.packb(fields))


def store(road: Road, key: str, spec: bytes, at_ms: int) -> None:
    road.admin.hset(road.keys.spec(key), "spec", spec)
    road.admin.zadd(road.keys.repeat, {key: at_ms})


async def until_fired(road: Road, count: int = 1) -> None:
    await road.until(lambda: road.admin.xlen(road.keys.stream) >= count, f"{count} fires")


@pytest.mark.parametrize("expression", ["0 0 13 * +FRI", "1,2, * * * *", "0 0 0 1 1 * 2099"])
async def test_a_rule_that_only_the_peer_reads_stays_and_is_reported(
    road: Road, expression: str
) -> None:
    key = await road.repeat_there("tick", pattern={"kind": "cron", "expression": expression})
    raw = road.admin.hgetall(road.keys.spec(key))
    due_ms = now_ms() - 1
    road.admin.zadd(road.keys.repeat, {key: due_ms}, xx=True)
    (found,) = await road.queue.schedules()
    assert found.problem is not None
    # Ours leads, and fires what it can read.
    stop = await road.fire_in("here")
    await road.queue.schedule("other", Every(0.05), limit=1)
    await until_fired(road)
    assert road.admin.hgetall(road.keys.spec(key)) == raw
    assert road.admin.zscore(road.keys.repeat, key) == due_ms
    # Theirs leads, and goes on with it.
    await stop()
    await road.fire_in("there")
    await until_fired(road, 2)
    assert [name for _, name in road.waiting()] == ["other", "tick"]


async def test_a_rule_that_only_we_read_is_dropped_by_a_peer_that_leads(road: Road) -> None:
    """It takes it out of its place and leaves the rest; ours then fires it no more, and says so.

    Such rules are `LW` and `@midnight`. What we promise is that they fire while one of ours leads.
    """
    key = (await road.queue.schedule("tick", Cron("0 0 LW * *"), missed=Missed.ONCE)).key
    later_ms = road.admin.zscore(road.keys.repeat, key)
    stop = await road.fire_in("there")
    await road.queue.schedule("other", Every(0.05), limit=1)
    await until_fired(road)
    assert road.admin.zscore(road.keys.repeat, key) == later_ms, "not looked at before it is due"
    await stop()
    road.admin.zadd(road.keys.repeat, {key: now_ms() - 2 * 3_600_000}, xx=True)
    stop = await road.fire_in("here")
    await until_fired(road, 2)
    await stop()
    road.admin.zadd(road.keys.repeat, {key: now_ms() - 1}, xx=True)
    await road.fire_in("there")
    await road.until(lambda: road.admin.zscore(road.keys.repeat, key) is None, "it is dropped")
    assert road.admin.hexists(road.keys.spec(key), "spec")
    assert await road.queue.schedules() == []
    # Storing it again, as a deploy does, has it fire again.
    assert (await road.queue.schedule("tick", Cron("0 0 LW * *"))).next_at is not None


async def test_a_spec_of_a_later_peer_is_fired_by_us(road: Road) -> None:
    """It has a tenth element, for which a scheduler of 1.3 drops it: theirs, not ours."""
    retry = [7, ["fixed", 5, None, None, None]]
    store(road, "later", spec_of("later", retry), now_ms() + 50)
    raw = road.admin.hget(road.keys.spec("later"), "spec")
    stop = await road.fire_in("here")
    await until_fired(road, 2)
    await stop()
    assert road.admin.hget(road.keys.spec("later"), "spec") == raw
    assert [envelope.retry.max_attempts for envelope, _ in road.waiting() if envelope.retry][
        :2
    ] == [7, 7]
    await road.fire_in("there")
    await road.until(lambda: not road.admin.exists(road.keys.repeat), "the peer has dropped it")
    assert road.admin.hget(road.keys.spec("later"), "spec") == raw


async def test_fields_of_ours_stay_beside_a_spec_that_the_peer_fires(road: Road) -> None:
    window = TimeWindow(tz="UTC")
    stored = await road.queue.schedule(
        "tick", Every(0.05), window=window, overlap=Overlap.SKIP, jitter=None, attempts=2
    )
    hash_key = road.keys.spec(stored.key)
    road.admin.hset(hash_key, mapping={"missed": 3, "outside": 4, "of a later tampu": "x"})
    before = road.admin.hgetall(hash_key)
    await road.fire_in("there")
    await until_fired(road, 2)
    after = road.admin.hgetall(hash_key)
    assert int(after.pop(b"fired")) >= 2
    assert after == before


async def test_entries_with_fields_of_others_are_run_by_both(road: Road) -> None:
    envelope = msgpack.packb(["j", msgpack.packb(1), now_ms(), 0])
    fields = {
        "z": "of a later peer",
        "n": "job",
        "d": envelope,
        "x": msgpack.packb({"tenant": "a"}),
    }
    calls = Calls()
    ours = await road.hire(calls)
    road.admin.xadd(road.keys.stream, fields)
    await calls.until(1)
    assert (calls.jobs[0].name, calls.jobs[0].tenant) == ("job", "a")
    await ours.stop()
    theirs = await road.hire_there()
    road.admin.xadd(road.keys.stream, fields)
    (call,) = await road.called(theirs)
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
    road: Road, form: object
) -> None:
    envelope = msgpack.packb(form)
    member = b"\x03\0\0\0job" + envelope
    calls, hired = Calls(), ""
    for world in ("here", "there"):
        road.admin.zadd(road.keys.delayed, {member: now_ms() - 1})
        async with Promoter(road.name, road.url):
            await road.until(lambda: road.admin.xlen(road.keys.stream) == 1, "it is promoted")
        ((_, fields),) = road.admin.xrange(road.keys.stream)
        assert fields == {b"d": envelope, b"n": b"job"}
        if world == "here":
            ours = await road.hire(calls)
            await calls.until(1)
            await ours.stop()
        else:
            hired = await road.hire_there()
    (call,) = await road.called(hired)
    (job,) = calls.jobs
    assert (
        (job.id, job.name, job.data) == (call["id"], call["name"], call["data"]) == ("m", "job", 1)
    )


async def test_a_backoff_that_neither_knows_survives_a_retry_by_us(road: Road) -> None:
    form = ["m", msgpack.packb(1), now_ms(), 0, [2, ["fibonacci", 1, None, None, None]]]
    road.admin.xadd(road.keys.stream, {"d": msgpack.packb(form), "n": "job"})
    await road.hire(Boom())
    await road.until(lambda: road.admin.xlen(road.keys.dead) == 1, "it is buried")
    (letter,) = await road.queue.dead.peek()
    retry = decode_envelope(letter.raw).retry
    assert retry is not None
    assert retry.backoff is not None
    assert retry.backoff.kind == "fibonacci"


async def test_a_member_that_is_no_job_stops_the_peers_promoter_and_not_ours(road: Road) -> None:
    """The peer's ends for good when it meets one; ours sets it aside, and the queue goes on."""
    calls = Calls()
    await road.hire(calls)
    await road.until(lambda: road.holder("promoter") is not None, "ours leads")
    theirs = await road.hire_there()
    road.admin.zadd(road.keys.delayed, {b"\x01\x02": now_ms() - 1})
    await road.add_there("job", 1, delay_ms=50)
    await road.settled()
    assert len(calls) + len(await road.peer.calls(theirs)) == 1
    (letter,) = await road.ask("peek")
    assert (letter["reason"], letter["payload"]) == ("malformed", "0102")


async def test_a_queue_whose_peer_has_lost_its_promoter_is_served_by_ours(road: Road) -> None:
    theirs = await road.hire_there()
    await road.until_led("promoter", theirs)
    road.admin.zadd(road.keys.delayed, {b"\x01\x02": now_ms() - 1})
    await road.add_there("job", 1, delay_ms=10)
    await road.until(lambda: road.holder("promoter") is None, "its promoter has ended")
    async with Promoter(road.name, road.url):
        await road.settled()
    (call,) = await road.called(theirs)
    assert call["data"] == 1
    with pytest.raises(Refused, match="arithmetic"):  # and only now it says so
        await road.peer.ask("dismiss", worker=theirs)
