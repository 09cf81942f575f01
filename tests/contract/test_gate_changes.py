"""Limits, weights and pauses that change at the gate: what may pass now passes at once."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tampu import Concurrency, NewJob, Queue, Rate
from tampu.limits.model import AnyLimit
from tests.gates import ManualGate, assert_empty, look_at_gate

pytestmark = pytest.mark.every_server

MANY = 100
ONE_EACH: list[AnyLimit] = [Concurrency(1, by="t")]
Change = Callable[[Queue], Awaitable[object]]


def jobs_of(tenant: str, count: int, **options: Any) -> list[NewJob]:  # noqa: ANN401 - of a job
    return [NewJob("j", {"t": tenant, "n": n}, **options) for n in range(count)]


def passed(gate: ManualGate) -> dict[str, int]:
    """How many jobs of each tenant have passed since the last look."""
    return dict(Counter(job.data["t"] for job in gate.read()))


WAKES: dict[str, tuple[Change, dict[str, int]]] = {
    "a limit": (lambda queue: queue.limits.set("j(t)", Concurrency(3)), {"a": 2, "b": 2}),
    "a value": (lambda queue: queue.limits.set("j(t)", Concurrency(4), value="a"), {"a": 3}),
    "a limit that becomes a rate": (
        lambda queue: queue.limits.set("j(t)", Rate("100/h", burst=2)),
        {"a": 2, "b": 2},
    ),
    "a limit that becomes a window": (
        lambda queue: queue.limits.set("j(t)", Rate("3/h", strict=True)),
        {"a": 3, "b": 3},
    ),
}


@pytest.mark.parametrize("name", WAKES)
async def test_a_limit_that_is_raised_lets_through_what_waited_for_it(
    gate: ManualGate, name: str
) -> None:
    change, expected = WAKES[name]
    await gate.queue.add_many(jobs_of("a", 6, limits=ONE_EACH) + jobs_of("b", 6, limits=ONE_EACH))
    await gate.want(MANY)
    held = gate.read()
    assert len(held) == 2
    await change(gate.queue)
    assert passed(gate) == expected
    gate.sound()


async def test_a_limit_that_was_lowered_and_is_reset_lets_through_what_waited(
    gate: ManualGate,
) -> None:
    await gate.queue.add("j", {"t": "a"}, limits=[Concurrency(5, by="t")])
    await gate.queue.limits.set("j(t)", Concurrency(1))
    await gate.queue.limits.set("j(t)", Concurrency(2), value="b")
    await gate.queue.add_many(jobs_of("a", 6) + jobs_of("b", 6, limits=[Concurrency(5, by="t")]))
    await gate.queue.add_many(jobs_of("a", 6, limits=[Concurrency(5, by="t")]))
    await gate.want(MANY)
    held = gate.read()
    assert Counter(job.data["t"] for job in held) == {"a": 1 + 6, "b": 2}, "six have no limit"
    assert await gate.queue.limits.reset("j(t)", value="b")
    assert passed(gate) == {}, "the limit of all is lower still"
    assert await gate.queue.limits.reset("j(t)")
    assert passed(gate) == {"a": 4, "b": 3}
    gate.sound()


async def test_a_limit_that_is_lowered_lets_nothing_through_until_enough_have_ended(
    gate: ManualGate,
) -> None:
    await gate.queue.add_many(jobs_of("a", 10, limits=[Concurrency(4)]))
    await gate.want(MANY)
    held = gate.read()
    await gate.queue.limits.set("j()", Concurrency(2))
    for left in (4, 3, 2):
        assert len(held) == left
        assert passed(gate) == {}
        assert await gate.settle([held.pop()]) == 1
    held += gate.read()
    assert len(held) == 2
    gate.sound()
    while held:
        assert await gate.settle([held.pop()]) == 1
        held += gate.read()
        assert len(held) <= 2
    assert_empty(gate.admin, gate.keys)


PAUSES: dict[str, tuple[dict[str, str], dict[str, int]]] = {
    "a task": ({"task": "j"}, {}),
    "a key": ({"key": "k"}, {"b": 2}),
    "a task and a key": ({"task": "j", "key": "k"}, {"b": 2}),
    "another task": ({"task": "i"}, {"a": 4, "b": 2}),
}


@pytest.mark.parametrize("name", PAUSES)
async def test_what_is_paused_waits_and_passes_at_once_when_it_is_resumed(
    gate: ManualGate, name: str
) -> None:
    what, expected = PAUSES[name]
    await gate.queue.add_many(jobs_of("a", 4, key="k") + jobs_of("b", 2, key="l"))
    await gate.queue.pause(**what)
    await gate.want(MANY)
    assert passed(gate) == expected
    gate.sound()
    waiting = look_at_gate(gate.admin, gate.keys).lined
    assert waiting == 6 - sum(expected.values())
    await gate.queue.resume(**what)
    assert sum(passed(gate).values()) == waiting
    gate.sound()


async def test_weights_count_from_when_they_are_changed(gate: ManualGate) -> None:
    jobs = [NewJob("j", key, key=key) for key in ("a", "b") for _ in range(300)]
    await gate.queue.add_many(jobs)
    assert Counter(await gate.drain(10, most=100)) == {"a": 50, "b": 50}
    await gate.queue.limits.weigh("a", 3)
    await gate.drain(10, most=10)  # what had passed before
    assert Counter(await gate.drain(10, most=160))["a"] == pytest.approx(120, abs=2)
    await gate.queue.limits.weigh("a", None)
    await gate.drain(10, most=10)
    assert Counter(await gate.drain(10, most=100))["a"] == pytest.approx(50, abs=2)
    gate.sound()
