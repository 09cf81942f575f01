"""Whose turn it is at the gate: priorities, and fair shares of keys."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tampu import Every, NewJob, OptionError
from tampu.limits import Concurrency
from tampu.queue import Queue
from tests.gates import ManualGate, slots
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


def keyed(key: str, count: int, **options: Any) -> list[NewJob]:  # noqa: ANN401 - of a job
    return [NewJob("j", key, key=key, **options) for _ in range(count)]


def largest_lead(order: Sequence[str], keys: Iterable[str], weights: dict[str, int]) -> float:
    """By how many jobs of weight 1 a key was ahead of another, while all had jobs."""
    served, total = Counter[str](), Counter(order)
    keys, lead = list(keys), 0.0
    for key in order:
        served[key] += 1
        shares = [served[each] / weights.get(each, 1) for each in keys]
        lead = max(lead, max(shares) - min(shares))
        if served[key] == total[key]:
            break
    return lead


@pytest.mark.parametrize("batch", [1, 7, 64])
async def test_a_higher_level_passes_first_and_every_16th_job_is_of_a_lower_one(
    gate: ManualGate, batch: int
) -> None:
    jobs = {level: NewJob("j", level, priority=level) for level in (9, 5, 0)}
    for level in (0, 5, 9):
        await gate.queue.add_many([jobs[level]] * 400)
    order = await gate.drain(batch)
    while_all_wait = Counter(order[:320])  # which may end within a batch
    assert while_all_wait[9] == pytest.approx(300, abs=1)
    assert while_all_wait[5] == pytest.approx(10, abs=1)
    assert while_all_wait[0] == pytest.approx(10, abs=1)
    for start in range(0, 320, 64):  # and none of them at once
        assert 3 <= sum(level != 9 for level in order[start : start + 64]) <= 5
    assert Counter(order) == {9: 400, 5: 400, 0: 400}
    gate.sound()


async def test_without_that_rule_a_lower_level_waits_until_the_higher_one_is_empty(
    gate: ManualGate,
) -> None:
    for level in (0, 5, 9):
        await gate.queue.add_many([NewJob("j", level, priority=level)] * 100)
    await gate.queue.limits.serve_lower(0)
    assert await gate.drain(10) == [9] * 100 + [5] * 100 + [0] * 100


async def test_how_often_a_lower_level_has_its_turn_can_be_chosen(gate: ManualGate) -> None:
    await gate.queue.limits.serve_lower(4)
    for level in (0, 9):
        await gate.queue.add_many([NewJob("j", level, priority=level)] * 100)
    order = await gate.drain(10, most=80)
    assert Counter(order[:80])[0] == pytest.approx(20, abs=1)
    await gate.queue.limits.serve_lower(None)
    assert not gate.admin.hexists(gate.keys.gate, "every")
    for refused in (-1, 1.5, "4", True):
        with pytest.raises(OptionError, match="every"):
            await gate.queue.limits.serve_lower(refused)  # type: ignore[arg-type] # that is tested


async def test_an_urgent_job_overtakes_all_that_wait_in_lines(gate: ManualGate) -> None:
    await gate.queue.add_many(keyed("usual", 1000))
    await gate.want(5)
    await gate.queue.add("j", "urgent", priority=9)
    order = await gate.drain(5)
    assert order.index("urgent") == 5, "the first five had passed before"


async def test_jobs_of_the_usual_priority_are_those_without_one(gate: ManualGate) -> None:
    await gate.queue.add("j", "low", priority=4)
    await gate.queue.add("j", "plain")
    await gate.queue.add("j", "usual", priority=5)
    await gate.queue.add("j", "high", priority=6)
    assert await gate.drain(10) == ["high", "plain", "usual", "low"]


async def test_plain_jobs_of_a_queue_with_a_gate_keep_their_order(gate: ManualGate) -> None:
    await gate.queue.add("j", -1, priority=9)
    expected = [-1, *range(300)]
    await gate.queue.add_many([NewJob("j", number) for number in range(150)])
    for number in range(150, 300):
        await gate.queue.add("j", number)
    assert await gate.drain(7) == expected


@pytest.mark.parametrize("batch", [1, 10, 100])
async def test_keys_take_turns_and_none_is_more_than_a_job_from_its_share(
    gate: ManualGate, batch: int
) -> None:
    keys = [f"key-{number}" for number in range(20)]
    for number, key in enumerate(keys):
        await gate.queue.add_many(keyed(key, 1000 if number == 0 else 100))
    order = await gate.drain(batch)
    assert largest_lead(order, keys, {}) <= 1
    assert Counter(order) == dict.fromkeys(keys, 100) | {"key-0": 1000}
    gate.sound()


@pytest.mark.parametrize("batch", [1, 10, 100])
async def test_a_quiet_key_beside_a_noisy_one_waits_for_what_has_passed_and_no_more(
    gate: ManualGate, batch: int
) -> None:
    await gate.queue.add_many(keyed("noisy", 2000))
    seen = 0

    def count(_data: object) -> Any:  # noqa: ANN401 - what is to be awaited, if anything
        nonlocal seen
        seen += 1
        return gate.queue.add_many(keyed("quiet", 5)) if seen == 1000 else None

    order = await gate.drain(batch, on=count)
    quiet = [at - 1000 for at, key in enumerate(order) if key == "quiet"]
    assert len(quiet) == 5
    # When it comes, up to two batches have passed; then every other job is its own.
    assert quiet[0] <= 2 * batch
    assert quiet[-1] - quiet[0] <= 2 * 5


@pytest.mark.parametrize("batch", [10, 512])
async def test_shares_follow_weights(gate: ManualGate, batch: int) -> None:
    weights = {f"key-{number}": 1 + number % 4 for number in range(20)}
    for key, weight in weights.items():
        await gate.queue.add_many(keyed(key, 1000, weight=weight))
    order = (await gate.drain(batch, most=10_000))[:10_000]
    served, total = Counter(order), sum(weights.values())
    for key, weight in weights.items():
        assert served[key] == pytest.approx(len(order) * weight / total, rel=0.02)
    assert largest_lead(order, weights, weights) <= 1


async def test_who_adds_its_next_job_when_the_last_one_passed_gets_its_share_and_no_more(
    gate: ManualGate,
) -> None:
    for number in range(9):
        await gate.queue.add_many(keyed(f"key-{number}", 300))
    await gate.queue.add_many(keyed("loop", 1))

    def add_next(key: object) -> Any:  # noqa: ANN401 - what is to be awaited, if anything
        return gate.queue.add_many(keyed("loop", 1)) if key == "loop" else None

    order = await gate.drain(1, most=2000, on=add_next)
    assert Counter(order)["loop"] == pytest.approx(200, abs=1)


async def test_a_key_that_was_idle_has_saved_nothing_up(gate: ManualGate) -> None:
    await gate.queue.add_many(keyed("busy", 500) + keyed("idle", 1))
    assert (await gate.drain(10, most=200)).count("idle") == 1
    await gate.queue.add_many(keyed("idle", 100))
    order = await gate.drain(10, most=100)
    assert order[20:100].count("idle") == pytest.approx(40, abs=1)


async def test_lines_with_a_free_limit_are_not_held_up_by_one_that_is_full(
    gate: ManualGate,
) -> None:
    await gate.queue.add_many(keyed("full", 500, priority=9, limits=[Concurrency(1)]))
    await gate.queue.add_many([NewJob("other", n) for n in range(100)])
    await gate.want(50)
    held = gate.read()
    assert Counter(job.data == "full" for job in held) == {True: 1, False: 49}
    await gate.settle(held[1:])
    assert [job.data for job in gate.read()] == list(range(49, 98))
    assert slots(gate.admin, gate.keys) == {"j()": "1-1 9/full"}
    gate.sound()


@pytest.mark.parametrize(("at_once", "batch"), [(1, 1), (1, 10), (3, 10)])
async def test_keys_that_run_a_few_at_a_time_take_turns_too(
    gate: ManualGate, at_once: int, batch: int
) -> None:
    keys = [f"key-{number:02}" for number in range(30)]
    for key in keys:
        limits = [Concurrency(at_once, by=str)]
        await gate.queue.add_many([NewJob("j", key, key=key, limits=limits)] * 20)
    order = await gate.drain(batch)
    assert Counter(order) == dict.fromkeys(keys, 20)
    assert largest_lead(order, keys, {}) <= 1
    gate.sound()


async def test_weights_of_keys_that_are_used_no_more_are_forgotten(
    gate: ManualGate, queue: Queue
) -> None:
    weights = gate.keys.gate + b":weight"
    today = gate.admin.time()[0] // 86_400
    await gate.queue.add("j", key="usual", weight=1)
    assert not gate.admin.exists(weights), "a weight of 1 is no entry"
    await gate.queue.add("j", key="was-heavy", weight=3)
    await gate.queue.add("j", key="was-heavy", weight=1)
    assert not gate.admin.exists(weights)
    await gate.queue.add("j", key="heavy", weight=3)
    assert gate.admin.hgetall(weights) == {b"heavy": b"3.0 %d" % (today + 30)}
    await queue.schedules.add("j", Every("1d"), key="daily", job_key="rare", weight=2)
    await queue.limits.weigh("by-hand", 4)
    await queue.limits.weigh("reset", 4)
    await queue.limits.weigh("reset", None)
    gate.admin.hset(weights, mapping={f"old-{n}": f"2.0 {today - 1}" for n in range(50)})
    kept = {b"heavy", b"rare", b"by-hand"}

    async def is_clean() -> bool:
        await gate.audit()
        return set(gate.admin.hkeys(weights)) == kept

    await wait_until(is_clean, within=60, sentence="the old ones are removed")
    shares = {each.key: each.weight for each in await queue.limits.keys()}
    assert shares == {"usual": 1, "was-heavy": 1, "heavy": 3}
