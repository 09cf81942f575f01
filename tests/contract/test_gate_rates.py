"""Rates at the gate: how many jobs pass, and when, by the clock of the server."""

import math
from collections import Counter
from collections.abc import Sequence

import pytest

from tampu import NewJob, OptionError
from tampu.limits import Concurrency, Rate
from tampu.limits.model import AnyLimit
from tampu.server.lane import Lane
from tampu.server.scripts.gate import regate
from tests.contract.workers import KEYS, Calls, Harness
from tests.gates import ManualGate, TakenJob, slots
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

MANY = 1000
STALL_MS = 50  # an entry's id may be so much later than the moment at which the gate decided


def tenant_job(tenant: object, *limits: AnyLimit, name: str = "charge") -> NewJob:
    return NewJob(name, {"tenant": tenant}, limits=limits)


async def take_for(gate: ManualGate, count: int, *, within: float = 60) -> list[TakenJob]:
    """Take and settle jobs as they pass, until there are so many."""
    taken: list[TakenJob] = []

    async def is_enough() -> bool:
        await gate.admit()
        new = gate.read()
        await gate.settle(new)
        taken.extend(new)
        return len(taken) >= count

    await wait_until(is_enough, within=within, sentence=f"{count} jobs have passed")
    return taken


def assert_below(times_ms: Sequence[int], *, count: int, per_ms: int, burst: int = 1) -> None:
    """Fail if in any time more passed than a smooth rate allows, but for its slack of 20 ms.

    In no window of its time have more than `count` and the burst passed.
    """
    step = per_ms / count
    slack = 20.0 + STALL_MS
    arrival, first = -math.inf, 0
    for place, at in enumerate(times_ms):
        arrival = max(arrival, at) + step
        assert arrival - at <= burst * step + slack
        while at - times_ms[first] > per_ms - STALL_MS:
            first += 1
        assert place - first + 1 <= count + burst


@pytest.mark.parametrize("count", [200, 1000, 5000])
async def test_a_rate_is_never_exceeded_and_used_up(gate: ManualGate, count: int) -> None:
    jobs = round(2.5 * count)
    await gate.queue.add_many([NewJob("j", n, limits=[Rate(f"{count}/s")]) for n in range(jobs)])
    await gate.want(jobs)
    taken = await take_for(gate, jobs)
    assert_below([job.at_ms for job in taken], count=count, per_ms=1000)
    assert [job.data for job in taken] == list(range(jobs))
    gate.sound()


@pytest.mark.parametrize(
    "rate",
    [
        Rate("40/s"),
        Rate("300/s"),
        Rate("2000/s"),
        Rate("300/2s", burst=9),
        Rate("100/s", strict=True),
    ],
    ids=["40", "300", "2000", "burst", "strict"],
)
async def test_workers_use_up_a_rate_that_all_jobs_wait_for(harness: Harness, rate: Rate) -> None:
    """By the server's clock, in the best of some seconds: the machine may be busy in others."""
    count, per_us = rate.parts
    a_second = count * 1_000_000 / per_us
    await harness.queue.add_many(
        [NewJob("x", n, limits=[rate]) for n in range(round(40 * a_second))]
    )
    await harness.start_worker(Calls())
    look = harness.admin.register_script(
        "local now = redis.call('TIME') "
        "return {redis.call('HGET', KEYS[1], 'waiting'), now[1] * 1000000 + now[2]}"
    )
    shares = list[float]()
    waiting, at_us = map(int, look(keys=[KEYS.gate]))

    async def is_used_up() -> bool:
        nonlocal waiting, at_us
        waits, now_us = map(int, look(keys=[KEYS.gate]))
        if now_us - at_us >= 1_000_000:
            shares.append((waiting - waits) / a_second / (now_us - at_us) * 1e6)
            waiting, at_us = waits, now_us
        return len(shares) > 1 and max(shares[1:]) >= 0.98

    await wait_until(is_used_up, within=35, sentence="98 % of the rate are used in some second")
    if not rate.strict:  # whose window may end where a second begins
        most = 1.02 + (rate.burst or 1) / a_second
        assert max(shares[1:]) <= most, "the first one begins with what is due at once"
    await harness.queue.limits.reset("x()")
    for worker in harness.workers:
        await worker.stop(grace=0)
    harness.admin.flushdb()


async def test_a_rate_whose_tokens_are_asked_for_in_time_is_used_up(gate: ManualGate) -> None:
    """What a look every 20 ms or less makes of it: at least 98 % of what it allows."""
    await gate.queue.add_many([NewJob("j", n, limits=[Rate("50/s")]) for n in range(200)])
    await gate.want(MANY)
    taken, lost_ms = await take_and_note(gate, 200)
    allowed = 1 + 50 * (taken[-1].at_ms - taken[0].at_ms - lost_ms) / 1000
    assert len(taken) >= 0.98 * allowed
    assert_below([job.at_ms for job in taken], count=50, per_ms=1000)


async def take_and_note(gate: ManualGate, count: int) -> tuple[list[TakenJob], float]:
    """Take jobs; how many ms were lost because nobody looked for more than 20 ms."""
    taken: list[TakenJob] = []
    lost, before = 0.0, now_of(gate)

    async def is_enough() -> bool:
        nonlocal lost, before
        await gate.admit()
        now = now_of(gate)
        lost, before = lost + max(0.0, now - before - 20), now
        new = gate.read()
        await gate.settle(new)
        taken.extend(new)
        return len(taken) >= count

    await wait_until(is_enough, within=60, sentence=f"{count} jobs have passed")
    return taken, lost


def now_of(gate: ManualGate) -> float:
    """The server's clock in ms."""
    seconds, micros = gate.admin.time()
    return float(seconds) * 1000 + float(micros) / 1000


async def test_after_a_quiet_time_a_burst_passes_at_once(gate: ManualGate) -> None:
    limits = [Rate("60/m", burst=10)]
    await gate.queue.add_many([NewJob("j", n, limits=limits) for n in range(50)])
    await gate.want(MANY)
    burst = gate.read()
    assert len(burst) == 10
    taken = burst + await take_for(gate, 2)
    assert_below([job.at_ms for job in taken], count=60, per_ms=60_000, burst=10)
    gate.sound()


async def test_each_value_has_a_rate_of_its_own(gate: ManualGate) -> None:
    limits = [Rate("1/h", by="tenant", burst=1)]
    await gate.queue.add_many([tenant_job(n % 4, *limits) for n in range(40)])
    await gate.want(MANY)
    assert Counter(job.data["tenant"] for job in gate.read()) == {0: 1, 1: 1, 2: 1, 3: 1}
    gate.sound()


async def test_a_window_is_filled_at_once_and_never_exceeded(gate: ManualGate) -> None:
    limits = [Rate("20/500ms", strict=True)]
    await gate.queue.add_many([NewJob("j", n, limits=limits) for n in range(100)])
    await gate.want(MANY)
    first = gate.read()
    assert len(first) == 20
    taken = first + await take_for(gate, 80)
    times = [job.at_ms for job in taken]
    for at, time in enumerate(times[20:]):
        assert time - times[at] >= 500 - STALL_MS, "more than 20 within 500 ms"
    gate.sound()


async def test_a_job_takes_as_many_tokens_as_it_costs(gate: ManualGate) -> None:
    limits = [Rate("10/h", burst=10)]
    for cost in (4, 4, 4, 4):
        await gate.queue.add("j", cost, limits=limits, cost=cost)
    await gate.want(1)
    taken = gate.read()
    while taken and (more := await next_ones(gate, taken)):
        taken += more
    # The third one still finds two tokens, and takes two in advance.
    assert [job.data for job in taken] == [4, 4, 4]
    gate.sound()


async def next_ones(gate: ManualGate, taken: list[TakenJob]) -> list[TakenJob]:
    await gate.settle(taken[-1:])
    return gate.read()


async def test_a_strict_rate_knows_no_cost(gate: ManualGate) -> None:
    with pytest.raises(OptionError, match="strict"):
        await gate.queue.add("j", 1, limits=[Rate("1/h", strict=True)], cost=2)


async def test_a_rate_that_is_raised_wakes_what_waits_for_the_old_one(gate: ManualGate) -> None:
    await gate.queue.add_many([NewJob("j", n, limits=[Rate("1/h")]) for n in range(3)])
    await gate.want(MANY)
    assert len(gate.read()) == 1
    await gate.queue.limits.set("j()", Rate("100/s"))
    assert len(await take_for(gate, 2)) == 2
    gate.sound()


async def test_a_rate_that_is_lowered_counts_what_has_passed(gate: ManualGate) -> None:
    jobs = [NewJob("j", n, limits=[Rate("10/m", burst=4)]) for n in range(8)]
    await gate.queue.add_many(jobs)
    await gate.want(MANY)
    assert len(gate.read()) == 4
    await gate.queue.limits.set("j()", Rate("10/h", burst=5))
    await gate.admit()
    assert len(gate.read()) == 1, "of a burst of five, four have passed"


async def test_a_limit_whose_rate_is_taken_away_lets_all_through(gate: ManualGate) -> None:
    await gate.queue.add_many([NewJob("j", n, limits=[Rate("1/h")]) for n in range(3)])
    await gate.want(MANY)
    await gate.queue.limits.set("j()", Concurrency(5))
    assert len(gate.read()) == 3
    gate.sound()


@pytest.mark.parametrize(
    ("limit", "cost"),
    [(Rate("2/h", by="tenant"), 2), (Rate("1/h", by="tenant", strict=True), None)],
    ids=["smooth", "strict"],
)
async def test_what_is_taken_back_unread_gives_back_its_tokens(
    gate: ManualGate, lane: Lane, limit: Rate, cost: int | None
) -> None:
    jobs = [NewJob("charge", {"tenant": n}, limits=[limit], cost=cost) for n in range(50)]
    await gate.queue.add_many(jobs)
    await gate.want(MANY)
    await gate.want(1)
    assert await regate(lane, gate.keys, count=MANY) == 49
    gate.sound()
    await gate.want(MANY)
    assert sorted(job.data["tenant"] for job in gate.read()) == list(range(50))
    gate.sound()


async def test_a_rate_and_a_concurrency_hold_together(gate: ManualGate) -> None:
    limits = (Rate("10/h", burst=5, by="tenant"), Concurrency(2, by="tenant"))
    await gate.queue.add_many([tenant_job(0, *limits) for _ in range(20)])
    await gate.want(MANY)
    sizes = []
    while held := gate.read():
        sizes.append(len(held))
        gate.sound()
        await gate.settle(held)
    assert sizes == [2, 2, 1]
    assert slots(gate.admin, gate.keys)["charge(tenant):0"].startswith("0-")


# --- what closes for a while ----------------------------------------------------------------------


async def test_a_limit_that_was_closed_lets_nothing_through_until_then(gate: ManualGate) -> None:
    await gate.queue.add_many([NewJob("j", n, limits=[Concurrency(2)]) for n in range(6)])
    await gate.want(MANY)
    first, second = gate.read()
    before = now_of(gate)
    assert await gate.run_again(first, wait_ms=300, closes=b"j()") == b"1"
    await gate.settle([second])
    gate.sound()
    taken = await take_for(gate, 5)
    assert min(job.at_ms for job in taken) >= before + 300 - STALL_MS
    assert [job.data for job in taken] == [0, 2, 3, 4, 5], "it is the first again"
    gate.sound()
    assert gate.admin.hlen(gate.keys.gate.decode() + ":over") == 0


async def test_other_limits_stay_open_then(gate: ManualGate) -> None:
    limits = (Concurrency(2, by="tenant"), Concurrency(20))
    await gate.queue.add_many([tenant_job(n % 2, *limits) for n in range(10)])
    await gate.want(MANY)
    held = gate.read()
    (closed, *others) = [job for job in held if job.data["tenant"] == 0]
    await gate.run_again(closed, wait_ms=60_000, closes=b"charge(tenant):0")
    await gate.settle(others)
    await gate.settle([job for job in held if job.data["tenant"] == 1])
    assert {job.data["tenant"] for job in gate.read()} == {1}
    gate.sound()
