"""Limits at the gate: how many jobs pass, and when, by the clock of the server."""

import math
from collections import Counter
from collections.abc import Sequence

import pytest

from tampu import NewJob, OptionError
from tampu.limits import Concurrency, Limit, Rate
from tampu.limits.model import AnyLimit
from tampu.server.lane import Lane
from tampu.server.scripts.gate import regate
from tests.gates import ManualGate, TakenJob, slots
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

MANY = 1000
STALL_MS = 50  # an entry's id may be so much later than the moment at which the gate decided


def tenant_job(tenant: object, *limits: AnyLimit, name: str = "charge") -> NewJob:
    return NewJob(name, {"tenant": tenant}, limits=limits)


async def take_for(gate: ManualGate, count: int, *, within: float = 60) -> list[TakenJob]:
    """Take and settle jobs as they pass, until it are so many."""
    taken: list[TakenJob] = []

    async def is_enough() -> bool:
        await gate.admit()
        new = gate.read()
        await gate.settle(new)
        taken.extend(new)
        return len(taken) >= count

    await wait_until(is_enough, within=within, sentence=f"{count} jobs have passed")
    return taken


# --- concurrency ----------------------------------------------------------------------------------


async def test_of_each_value_so_many_run_at_a_time(gate: ManualGate) -> None:
    jobs = [tenant_job(number % 3, Concurrency(2, by="tenant")) for number in range(30)]
    await gate.queue.add_many(jobs)
    await gate.want(MANY)
    rounds = []
    while held := gate.read():
        rounds.append(Counter(job.data["tenant"] for job in held))
        gate.sound()
        await gate.settle(held)
    assert rounds == [{0: 2, 1: 2, 2: 2}] * 5
    assert slots(gate.admin, gate.keys) == {}


async def test_a_value_may_be_what_a_function_says(gate: ManualGate) -> None:
    def plan(data: dict[str, int]) -> str:
        return "odd" if data["tenant"] % 2 else "even"

    await gate.queue.add_many([tenant_job(n, Concurrency(1, by=plan)) for n in range(6)])
    await gate.want(MANY)
    assert sorted(job.data["tenant"] for job in gate.read()) == [0, 1]


async def test_a_job_without_that_value_is_not_limited(gate: ManualGate) -> None:
    jobs = [tenant_job(tenant, Concurrency(1, by="tenant")) for tenant in (1, *[None] * 4)]
    await gate.queue.add_many(jobs)
    await gate.want(MANY)
    assert len(gate.read()) == 5


async def test_each_job_name_has_its_own_limit(gate: ManualGate) -> None:
    for name in ("a", "b"):
        await gate.queue.add_many([NewJob(name, name, limits=[Concurrency(3)])] * 10)
    await gate.want(MANY)
    assert Counter(job.data for job in gate.read()) == {"a": 3, "b": 3}


async def declare(gate: ManualGate, name: str, text: str) -> None:
    """Store a named limit, as an app does that declares it."""
    gate.admin.hset(gate.keys.gate.decode() + ":limits", name, text)


async def test_a_named_limit_is_shared_by_jobs_of_any_name(gate: ManualGate) -> None:
    await declare(gate, "stripe", "4 0 0 1 0")
    shared = [Limit("stripe")]
    await gate.queue.add_many([NewJob(f"n{n % 5}", n, limits=shared) for n in range(20)])
    await gate.want(MANY)
    held = gate.read()
    assert len(held) == 4
    await gate.settle(held[:3])
    assert len(gate.read()) == 3
    gate.sound()


async def test_a_named_limit_may_count_each_value_apart(gate: ManualGate) -> None:
    await declare(gate, "api", "2 0 0 1 0")
    jobs = [NewJob("n", {"key": n % 2}, limits=[Limit("api", by="key")]) for n in range(20)]
    await gate.queue.add_many(jobs)
    await gate.want(MANY)
    assert Counter(job.data["key"] for job in gate.read()) == {0: 2, 1: 2}


async def test_a_named_limit_whose_definition_was_lost_limits_nothing(gate: ManualGate) -> None:
    await declare(gate, "nowhere", "1 0 0 1 0")
    await gate.queue.add_many([NewJob("n", n, limits=[Limit("nowhere")]) for n in range(5)])
    gate.admin.delete(gate.keys.gate.decode() + ":limits")
    await gate.want(MANY)
    assert len(gate.read()) == 5
    gate.sound()


async def test_a_job_needs_room_in_all_of_its_limits(gate: ManualGate) -> None:
    def group(data: dict[str, int]) -> int:
        return data["tenant"] % 2

    limits = (Concurrency(2, by="tenant"), Concurrency(3, by=group), Concurrency(5))
    await gate.queue.add_many([tenant_job(n % 6, *limits) for n in range(60)])
    await gate.want(MANY)
    done = 0
    while held := gate.read():
        tenants = Counter(job.data["tenant"] for job in held)
        assert len(held) <= 5
        assert max(tenants.values()) <= 2
        assert max(Counter(tenant % 2 for tenant in tenants.elements()).values()) <= 3
        gate.sound()
        done += await gate.settle(held)
    assert done == 60
    assert slots(gate.admin, gate.keys) == {}


async def test_a_freed_slot_goes_to_a_line_that_can_use_it(gate: ManualGate) -> None:
    """The line that waited longest needs another limit too, which is full."""
    shared = Concurrency(2)
    for tenant in ("blocked", "free"):
        jobs = [tenant_job(tenant, shared, Concurrency(1, by="tenant")) for _ in range(5)]
        await gate.queue.add_many(jobs)
    await gate.want(MANY)
    held = {job.data["tenant"]: job for job in gate.read()}
    assert set(held) == {"blocked", "free"}
    await gate.settle([held["free"]])
    assert [job.data["tenant"] for job in gate.read()] == ["free"]
    gate.sound()


async def test_many_jobs_may_have_as_many_limits_as_are_allowed(gate: ManualGate) -> None:
    fields = "abcdefgh"
    limits = [Concurrency(1, by=field) for field in fields]
    jobs = [NewJob("j", dict.fromkeys(fields, n), limits=limits) for n in range(MANY)]
    await gate.queue.add_many(jobs)
    await gate.want(MANY)
    await gate.admit()
    held = gate.read()
    assert len(held) == MANY
    gate.sound()
    assert await gate.settle(held) == MANY
    assert slots(gate.admin, gate.keys) == {}


async def test_a_limit_is_changed_for_thousands_of_values_that_wait(gate: ManualGate) -> None:
    values, limits = 4500, [Concurrency(1, by="tenant")]
    await gate.queue.add_many([tenant_job(n % values, *limits) for n in range(2 * values)])
    await gate.want(2 * values)
    while await gate.admit():
        pass
    assert len(gate.read()) == values
    await gate.queue.limits.set("charge(tenant)", Concurrency(2))
    while await gate.admit():
        pass
    assert len(gate.read()) == values
    gate.sound()


@pytest.mark.parametrize("batch", [1, 16])
async def test_keys_share_a_limit_evenly(gate: ManualGate, batch: int) -> None:
    for key in "abcd":
        jobs = [NewJob("j", key, key=key, limits=[Concurrency(4)])] * (200 if key == "a" else 50)
        await gate.queue.add_many(jobs)
    order = await gate.drain(batch)
    for at in range(4, 200, 4):
        served = Counter(order[:at])
        assert max(served.values()) - min(served[key] for key in "abcd") <= 1


# --- rates ----------------------------------------------------------------------------------------


def assert_below(times_ms: Sequence[int], *, count: int, per_ms: int, burst: int = 1) -> None:
    """Fail if in any time more passed than a smooth rate allows, but for its slack of 20 ms."""
    step = per_ms / count
    slack = min(20.0, step / 2) + STALL_MS
    arrival = -math.inf
    for at in times_ms:
        arrival = max(arrival, at) + step
        assert arrival - at <= burst * step + slack


async def test_a_rate_is_never_exceeded_and_used_up(gate: ManualGate) -> None:
    await gate.queue.add_many([NewJob("j", n, limits=[Rate("200/s")]) for n in range(500)])
    await gate.want(MANY)
    taken = await take_for(gate, 500)
    times = [job.at_ms for job in taken]
    assert_below(times, count=200, per_ms=1000)
    assert [job.data for job in taken] == list(range(500))
    gate.sound()


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
    assert len(gate.read()) == 10
    taken = await take_for(gate, 2)
    assert len(taken) <= 3
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
    assert slots(gate.admin, gate.keys)["charge(tenant):0"].startswith("0+")


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
