"""The `add` script on real servers, and how scripts are loaded."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
import redis

from tampu.errors import CommandRefused, ConnectionLost, QueueFull
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.server.protocol import Reply, pack
from tampu.server.scripts.adding import (
    PRODUCER_MEMORY_MS,
    AddKeys,
    AddRequest,
    FullJobs,
    PlainJobs,
    add,
)
from tampu.server.streams import entries_from
from tests.conftest import Start
from tests.contract.lanes import PATIENT, OpenThroughProxy
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_version

TAG = b"{chasqui:scripts}"
STREAM, DELAYED, MEMORY = TAG + b":stream", TAG + b":delayed", TAG + b":memory"
WAKEUP = TAG + b":tampu:bell"
GATE, CONTROL = TAG + b":tampu:gate", TAG + b":tampu:control"
MARKER, INDEX = TAG + b":dlid:a", TAG + b":didx:a"
KEPT = (TAG + b":result:a", TAG + b":tampu:failure:a")
KEYS = AddKeys(
    stream=STREAM,
    delayed=DELAYED,
    memory=MEMORY,
    wakeup=WAKEUP,
    gate=GATE,
    control=CONTROL,
    notices=TAG + b":notices",
)
GROUP = b"default"


async def add_jobs(
    lane: Lane,
    jobs: PlainJobs | FullJobs,
    *,
    number: int,
    max_len: int = 0,
    limit_s: float | None = None,
    keys: AddKeys = KEYS,
) -> bytes:
    request = AddRequest(keys=keys, jobs=jobs, number=number, max_len=max_len, limit_s=limit_s)
    return await add(lane, request)


def full(
    body: bytes = b"envelope",
    *,
    name: bytes = b"",
    extras: bytes = b"",
    due: bytes = b"",
    marker_s: bytes = b"",
    index_s: bytes = b"",
    unique: bytes = b"",
) -> tuple[bytes, ...]:
    return (body, name, extras, due, marker_s, index_s, unique)


async def entries(lane: Lane) -> list[list[Reply]]:
    reply = await lane.call("XRANGE", STREAM, "-", "+")
    assert isinstance(reply, list)
    return [entry[1] for entry in reply]  # type: ignore[index, misc]


async def state(lane: Lane) -> list[Reply]:
    """The contents of all keys."""
    found = await lane.call("KEYS", "*")
    assert isinstance(found, list)
    return [[key, await lane.call("DUMP", key)] for key in sorted(map(bytes, found))]  # type: ignore[arg-type]


class TestAdd:
    async def test_jobs_are_added_in_order_with_their_names(self, lane: Lane) -> None:
        jobs = PlainJobs([b"one", b"first", b"two", b"", b"three", b"third"])
        assert await add_jobs(lane, jobs, number=1) == b""
        assert await entries(lane) == [
            [b"d", b"one", b"n", b"first"],
            [b"d", b"two"],
            [b"d", b"three", b"n", b"third"],
        ]

    async def test_a_thousand_jobs_in_one_call(self, lane: Lane) -> None:
        await add_jobs(lane, PlainJobs([b"envelope", b"job"] * 1000), number=1)
        assert await lane.call("XLEN", STREAM) == 1000

    async def test_a_repeated_number_adds_nothing_and_gets_the_same_reply(self, lane: Lane) -> None:
        flat = full(b"a", marker_s=b"60") + full(b"a", marker_s=b"60")
        jobs = FullJobs(flat, [MARKER, *KEPT, MARKER, *KEPT])
        assert await add_jobs(lane, jobs, number=5) == b"10"
        assert await add_jobs(lane, jobs, number=5) == b"10"
        assert await lane.call("XLEN", STREAM) == 1

    async def test_sixteen_calls_in_flight_can_all_be_repeated(self, lane: Lane) -> None:
        for _ in range(2):
            for number in range(1, 17):
                await add_jobs(lane, PlainJobs([b"e", b"n"]), number=number)
        assert await lane.call("XLEN", STREAM) == 16

    async def test_the_memory_of_a_producer_stays_small_and_expires(self, lane: Lane) -> None:
        for number in range(1, 101):
            with suppress(QueueFull):
                full_now = number % 3 == 0
                jobs = PlainJobs([b"e", b"n"])
                await add_jobs(lane, jobs, number=number, max_len=1 if full_now else 0)
        assert await lane.call("HLEN", MEMORY) == 16
        left_ms = await lane.call("PTTL", MEMORY)
        assert isinstance(left_ms, int)
        assert 0 < left_ms <= PRODUCER_MEMORY_MS

    async def test_an_id_is_taken_once_for_immediate_and_delayed_jobs(self, lane: Lane) -> None:
        now = FullJobs(full(b"now", marker_s=b"60"), [MARKER, *KEPT])
        later = FullJobs(
            full(b"later", due=b"+60000", marker_s=b"60", index_s=b"60"), [MARKER, INDEX, *KEPT]
        )
        assert await add_jobs(lane, now, number=1) == b""
        assert await add_jobs(lane, later, number=2) == b"0"
        assert await lane.call("ZCARD", DELAYED) == 0
        ((entry_id, _),) = await entries_from(lane, STREAM, start=b"-", count=2)
        assert await lane.call("GET", MARKER) == entry_id
        assert await lane.call("TTL", MARKER) in {59, 60}
        assert await lane.call("EXISTS", INDEX) == 0

    async def test_a_delayed_job_has_its_member_marker_and_index(self, lane: Lane) -> None:
        flat = full(b"member", due=b"1794725043642", marker_s=b"3660", index_s=b"3601")
        assert await add_jobs(lane, FullJobs(flat, [MARKER, INDEX, *KEPT]), number=1) == b""
        assert await lane.call("ZSCORE", DELAYED, b"member") == b"1794725043642"
        assert await lane.call("GET", INDEX) == b"member"
        assert await lane.call("TTL", MARKER) in {3659, 3660}
        assert await lane.call("TTL", INDEX) in {3600, 3601}

    async def test_a_relative_delay_counts_from_the_server_s_clock(self, lane: Lane) -> None:
        await add_jobs(lane, FullJobs(full(b"m", due=b"+5000"), []), number=1)
        seconds, micros = await lane.call("TIME")  # type: ignore[misc]
        now_ms = int(seconds) * 1000 + int(micros) // 1000  # type: ignore[arg-type]
        score = await lane.call("ZSCORE", DELAYED, b"m")
        assert isinstance(score, bytes)
        assert 4000 < int(score) - now_ms <= 5000

    async def test_extras_are_a_separate_field(self, lane: Lane) -> None:
        flat = full(b"e", extras=b"x1") + full(b"e", name=b"n", extras=b"x2")
        await add_jobs(lane, FullJobs(flat, []), number=1)
        assert await entries(lane) == [
            [b"d", b"e", b"x", b"x1"],
            [b"d", b"e", b"n", b"n", b"x", b"x2"],
        ]

    async def test_a_full_queue_refuses_the_whole_call(self, lane: Lane) -> None:
        await add_jobs(lane, PlainJobs([b"e", b"n"] * 3), number=1, max_len=4)
        with pytest.raises(QueueFull):
            await add_jobs(lane, PlainJobs([b"e", b"n"] * 2), number=2, max_len=4)
        assert await lane.call("XLEN", STREAM) == 3
        await add_jobs(lane, PlainJobs([b"e", b"n"]), number=3, max_len=4)
        assert await lane.call("XLEN", STREAM) == 4

    async def test_delayed_jobs_do_not_count_towards_max_len(self, lane: Lane) -> None:
        await add_jobs(lane, PlainJobs([b"e", b"n"]), number=1, max_len=1)
        later = full(b"later", due=b"+1000")
        assert await add_jobs(lane, FullJobs(later, []), number=2, max_len=1) == b""
        with pytest.raises(QueueFull):
            await add_jobs(lane, FullJobs(later + full(b"now"), []), number=3, max_len=1)
        assert await lane.call("ZCARD", DELAYED) == 1

    async def test_numbers_sixteen_apart_are_different_calls(self, lane: Lane) -> None:
        for number in (1, 17, 161):
            await add_jobs(lane, PlainJobs([b"e", b"n"]), number=number)
        assert await lane.call("XLEN", STREAM) == 3

    async def test_a_number_that_is_too_old_is_unknown_and_adds_nothing(self, lane: Lane) -> None:
        for number in range(1, 41):
            await add_jobs(lane, PlainJobs([b"e", b"n"]), number=number)
        for number in range(1, 25):
            with pytest.raises(ConnectionLost, match="carried out since"):
                await add_jobs(lane, PlainJobs([b"e", b"n"]), number=number)
        assert await lane.call("XLEN", STREAM) == 40

    async def test_ten_thousand_jobs_of_either_kind_in_one_call(self, lane: Lane) -> None:
        await add_jobs(lane, PlainJobs([b"e", b"n"] * 10_000), number=1)
        await add_jobs(lane, FullJobs(full() * 10_000, []), number=2)
        assert await lane.call("XLEN", STREAM) == 20_000

    @pytest.mark.parametrize(
        "wrong",
        [
            full(due=b"soon"),
            full(due=b"-5"),
            full(due=b"1e400"),
            full(due=b"9" * 17),
            full(marker_s=b"0"),
            full(marker_s=b"9" * 11),
            full(due=b"1", index_s=b"x"),
            full(unique=b"60000"),
            full(unique=b"0 id"),
            full()[:-1],
        ],
        ids=str,
    )
    async def test_an_invalid_job_refuses_the_whole_call(
        self, lane: Lane, wrong: tuple[bytes, ...]
    ) -> None:
        jobs = FullJobs(full(b"right", marker_s=b"60") + wrong, [MARKER, INDEX])
        with pytest.raises(CommandRefused):
            await add_jobs(lane, jobs, number=1)
        assert await state(lane) == []

    async def test_a_repeated_call_at_the_memory_limit_is_recognised(
        self, open_through_proxy: OpenThroughProxy, running: RunningServer
    ) -> None:
        lane, proxy = await open_through_proxy()
        await add_jobs(lane, PlainJobs([b"e", b"n"]), number=1)
        proxy.hold_replies = True
        call = asyncio.create_task(add_jobs(lane, PlainJobs([b"e", b"n"]), number=2))
        with running.admin() as admin:
            await wait_until(
                lambda: admin.xlen(STREAM) == 2, within=60, sentence="the server carried it out"
            )
            admin.config_set("maxmemory", 1)
            try:
                proxy.hold_replies = False
                proxy.cut()
                assert await call == b""
            finally:
                admin.config_set("maxmemory", 0)

    async def test_an_add_fails_at_its_own_limit(
        self, open_through_proxy: OpenThroughProxy
    ) -> None:
        lane, proxy = await open_through_proxy(PATIENT)
        await add_jobs(lane, PlainJobs([b"e", b"n"]), number=1)
        proxy.hold_replies = True
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionLost):
                await add_jobs(lane, PlainJobs([b"e", b"n"]), number=2, limit_s=0.2)

    async def test_a_repeated_call_after_a_lost_reply_adds_nothing_twice(
        self, running: RunningServer
    ) -> None:
        async with Proxy(running.port) as proxy, await connect(proxy.url) as server:
            async with await Lane.open(server, STREAM) as lane:
                with running.admin() as admin:
                    for number in range(1, 21):
                        await self._lose_the_reply(lane, proxy, admin, number)
                    assert admin.xlen(STREAM) == 20

    async def _lose_the_reply(
        self, lane: Lane, proxy: Proxy, admin: redis.Redis, number: int
    ) -> None:
        if number == 1:  # the script is loaded from here on
            await add_jobs(lane, PlainJobs([b"e", b"n"]), number=number)
        proxy.hold_replies = True
        call = asyncio.create_task(add_jobs(lane, PlainJobs([b"e", b"n"]), number=number))
        await wait_until(
            lambda: admin.xlen(STREAM) == number, within=60, sentence="the server carried it out"
        )
        proxy.hold_replies = False
        proxy.cut()
        assert await call == b""


class TestLoading:
    async def test_an_unknown_script_is_loaded(self, lane: Lane, running: RunningServer) -> None:
        with running.admin() as admin:
            for number in range(1, 20):
                admin.script_flush()
                await add_jobs(lane, PlainJobs([b"e", b"n"]), number=number)
        assert await lane.call("XLEN", STREAM) == 19

    @pytest.mark.parametrize("rights", ["+evalsha +script", "+evalsha +eval"])
    async def test_a_user_needs_permission_for_script_or_eval(
        self, running: RunningServer, rights: str
    ) -> None:
        needed = "+exists +hget +hset +pexpire +xadd +xlen +zcard +ping"
        with running.admin() as admin:
            admin.script_flush()
            admin.execute_command(
                "ACL", "SETUSER", "maker", "on", ">pw", "~*", *needed.split(), *rights.split()
            )
            try:
                url = f"redis://maker:pw@127.0.0.1:{running.port}"
                async with await connect(url) as server, await Lane.open(server, STREAM) as lane:
                    await add_jobs(lane, PlainJobs([b"e", b"n"]), number=1)
                assert admin.xlen(STREAM) == 1
            finally:
                admin.acl_deluser("maker")

    async def test_script_flush_under_load_loses_no_call(
        self, lane: Lane, running: RunningServer
    ) -> None:
        done = asyncio.Event()

        def flush() -> None:
            with running.admin() as admin:
                while not done.is_set():
                    admin.script_flush()

        flushing = asyncio.create_task(asyncio.to_thread(flush))
        keys = [replace(KEYS, memory=MEMORY + b"%d" % n) for n in range(8)]

        async def produce(own: AddKeys) -> None:
            for number in range(1, 51):
                await add_jobs(lane, PlainJobs([b"e", b"n"]), number=number, keys=own)

        try:
            await asyncio.gather(*(produce(own) for own in keys))
        finally:
            done.set()
            await flushing
        assert await lane.call("XLEN", STREAM) == 400


class TestAtomicity:
    @pytest.mark.parametrize("key", [STREAM, DELAYED, MEMORY], ids=lambda k: k.decode())
    async def test_a_key_of_a_wrong_type_changes_nothing(self, lane: Lane, key: bytes) -> None:
        await lane.call("SET", key, b"text")
        before = await state(lane)
        flat = full(b"now", marker_s=b"60") + full(b"later", due=b"+1000", index_s=b"60")
        for jobs in (PlainJobs([b"e", b"n"]), FullJobs(flat, [MARKER, *KEPT, INDEX])):
            with pytest.raises(CommandRefused) as caught:
                await add_jobs(lane, jobs, number=1)
            assert caught.value.code == "WRONGTYPE"
            assert await state(lane) == before

    async def test_running_out_of_memory_changes_nothing(self, start: Start) -> None:
        running = start()
        async with await connect(running.url) as server:
            async with await Lane.open(server, STREAM) as lane:
                await add_jobs(lane, PlainJobs([b"e", b"n"]), number=1)
                before = await state(lane)
                with running.admin() as admin:
                    admin.config_set("maxmemory", 1)
                flat = full(b"now", marker_s=b"60") + full(b"later", due=b"+1000", index_s=b"60")
                for jobs in (PlainJobs([b"e", b"n"]), FullJobs(flat, [MARKER, *KEPT, INDEX])):
                    with pytest.raises(QueueFull):
                        await add_jobs(lane, jobs, number=2)
                assert await state(lane) == before


async def test_many_calls_of_a_script_can_be_in_flight(lane: Lane) -> None:
    calls = [
        asyncio.create_task(add_jobs(lane, PlainJobs([b"e", b"n"] * 10), number=n))
        for n in range(1, 11)
    ]
    await asyncio.gather(*calls)
    assert await lane.send(pack("XLEN", STREAM)) == 100
