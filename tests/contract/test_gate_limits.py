"""Limits on concurrency at the gate: how many jobs pass."""

from collections import Counter

import pytest

from tampu import NewJob
from tampu.limits import Concurrency, Limit
from tampu.limits.model import AnyLimit
from tests.gates import ManualGate, slots

pytestmark = pytest.mark.every_server

MANY = 1000


def tenant_job(tenant: object, *limits: AnyLimit, name: str = "charge") -> NewJob:
    return NewJob(name, {"tenant": tenant}, limits=limits)


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
