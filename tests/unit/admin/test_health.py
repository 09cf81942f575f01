"""What a server told is judged without asking it again."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import pytest

from tampu.admin.flow_health import FlowFacts
from tampu.admin.health import Grade, MissingExpiries, NodeFacts, ServerFacts, judge_server
from tampu.admin.queue_health import QueueFacts

GOOD = {
    "role": "master",
    "connected_slaves": "1",
    "maxmemory": "1000",
    "used_memory": "100",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
}


def facts(*nodes: NodeFacts) -> ServerFacts:
    return ServerFacts(
        server="redis://x", version="Redis 8", nodes=list(nodes), queues=[], orphaned=[],
        missing_expiries=MissingExpiries([], 0, searched_all=True), flows=FlowFacts([], []),
        health=[],
    )  # fmt: skip


def node(
    name: str = "a:1",
    changed: Mapping[str, str] = MappingProxyType({}),
    *,
    skew_ms: float = 0.0,
    trip_ms: float = 1.0,
) -> NodeFacts:
    return NodeFacts(
        name=name, info={**GOOD, **changed}, save="", missing=[], skew_ms=skew_ms, trip_ms=trip_ms
    )


@pytest.mark.parametrize(
    ("changed", "grades"),
    [
        ({}, {}),
        ({"used_memory": "950"}, {"memory": "warn"}),
        ({"maxmemory_policy": "volatile-lru"}, {"memory": "fail"}),
        ({"maxmemory_policy": "volatile-lru", "maxmemory": "0"}, {"memory": "warn"}),
        ({"aof_last_write_status": "err"}, {"persistence": "fail"}),
        ({"aof_enabled": "0"}, {"persistence": "warn"}),
        ({"aof_enabled": "0", "rdb_last_bgsave_status": "err"}, {"persistence": "fail"}),
        ({"role": "slave"}, {"role": "fail"}),
        ({"evicted_keys": "3"}, {"memory": "warn"}),
        ({"maxclients": "100", "connected_clients": "79"}, {}),
        ({"maxclients": "100", "connected_clients": "80"}, {"clients": "warn"}),
    ],
)
def test_each_trouble_is_its_own_finding(changed: dict[str, str], grades: dict[str, str]) -> None:
    found = judge_server(facts(node(changed=changed)))
    assert {each.check: each.grade.value for each in found if each.grade is not Grade.OK} == grades


@pytest.mark.parametrize(
    ("skew_ms", "trip_ms", "grade"),
    [
        (900, 1, Grade.OK),
        (1200, 1, Grade.WARN),
        (-1200, 1, Grade.WARN),
        (1200, 500, Grade.OK),  # a slow answer proves nothing
        (61_000, 1, Grade.FAIL),
    ],
)
def test_a_clock_offset_within_the_round_trip_is_not_reported(
    skew_ms: float, trip_ms: float, grade: Grade
) -> None:
    found = judge_server(facts(node(skew_ms=skew_ms, trip_ms=trip_ms)))
    (clock,) = (each for each in found if each.check == "clock")
    assert clock.grade is grade


def test_of_several_nodes_each_finding_names_its_own() -> None:
    found = judge_server(facts(node("a:1"), node("b:2", {"role": "slave"})))
    roles = [each.sentence for each in found if each.check == "role"]
    assert roles[0].startswith("a:1: primary")
    assert roles[1].startswith("b:2: this is a replica")


def told_of(health: QueueFacts) -> dict[str, str]:
    """What is said of a queue, by check and grade."""
    found = judge_server(msgspec.structs.replace(facts(), health=[health]))
    return {f"{each.check} {each.grade.value}": each.sentence for each in found}


def test_jobs_that_wait_for_nobody_are_reported() -> None:
    waiting = QueueFacts(queue="emails", waiting=7, workers=0)
    sentence = "queue emails: 7 jobs wait and no worker is alive: start one"
    assert told_of(waiting)["queues warn"] == sentence
    paused = QueueFacts(queue="emails", waiting=7, workers=2, paused=True)
    assert told_of(paused)["queues warn"].endswith("it is paused: tampu queue resume emails")
    for fine in (QueueFacts(queue="q", workers=0), QueueFacts(queue="q", waiting=7)):
        assert "queues ok" in told_of(fine)


@pytest.mark.parametrize(("late_ms", "check"), [(14_999, "time ok"), (15_000, "time fail")])
def test_what_is_due_and_has_no_leader_is_a_failure(late_ms: int, check: str) -> None:
    delayed = QueueFacts(queue="q", job_late_ms=late_ms, has_promoter=False)
    fires = QueueFacts(queue="q", schedule_late_ms=late_ms, has_firer=False)
    for each in (delayed, fires):
        assert check in told_of(each)
    if check == "time fail":
        assert told_of(fires)[check] == (
            "queue q: nobody fires schedules, due for 15 s: start a worker, or tampu serve-time"
        )


def test_a_leader_that_is_behind_is_a_warning() -> None:
    delayed = QueueFacts(queue="q", job_late_ms=60_000)
    for late in (delayed, QueueFacts(queue="q", schedule_late_ms=60_000)):
        assert "are due for 1m" in told_of(late)["time warn"]
