"""What a server is asked to tell whether it is fit for queues, and what is concluded."""

import re

import pytest
import redis

from tampu import Every
from tampu.admin.health import Finding, Grade, examine, judge_server
from tampu.server.connect import connect
from tampu.util.clock import now_ms
from tests.conftest import Start
from tests.contract.flow_runs import FlowShop
from tests.contract.workers import KEYS, Calls, Harness
from tests.servers import RunningServer

pytestmark = pytest.mark.every_version


async def findings(url: str) -> dict[str, Finding]:
    async with await connect(url) as server:
        return {each.check: each for each in judge_server(await examine(server))}


def grades(found: dict[str, Finding]) -> dict[str, str]:
    return {check: each.grade.value for check, each in found.items() if each.grade is not Grade.OK}


async def test_a_good_server_has_nothing_wrong(start: Start) -> None:
    running = start("--appendonly", "yes", "--maxmemory", "1gb")
    found = await findings(running.url)
    assert grades(found) == {}
    assert list(found) == [
        *("version", "role", "commands", "memory", "persistence", "clients", "clock"),
        *("workers", "queues", "time", "expiry"),
    ]


async def test_a_server_that_evicts_without_persistence_is_reported(start: Start) -> None:
    running = start("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
    found = await findings(running.url)
    assert grades(found) == {"memory": "fail", "persistence": "warn"}
    assert "set maxmemory-policy noeviction" in found["memory"].sentence
    with running.admin() as admin:
        admin.config_set("maxmemory", 0)
        admin.config_set("save", "60 1")
    found = await findings(running.url)
    assert grades(found) == {"memory": "warn", "persistence": "warn"}
    assert "snapshots only" in found["persistence"].sentence


async def test_a_command_that_is_disabled_is_named(start: Start) -> None:
    running = start("--rename-command", "ZPOPMIN", "", "--appendonly", "yes")
    found = await findings(running.url)
    assert grades(found) == {"commands": "fail"}
    assert "missing commands: ZPOPMIN" in found["commands"].sentence


async def test_missing_permissions_are_reported(start: Start) -> None:
    running = start("--appendonly", "yes")
    with running.admin() as admin:
        admin.acl_setuser(
            "me", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info", "-config"]
        )
    found = await findings(f"redis://me:x@127.0.0.1:{running.port}/0")
    assert grades(found) == {"role": "warn", "memory": "warn", "persistence": "warn"}


async def test_a_replica_is_no_place_for_jobs(start: Start) -> None:
    primary = start()
    replica = start("--replicaof", "127.0.0.1", str(primary.port))
    found = await findings(replica.url)
    assert found["role"].grade is Grade.FAIL
    assert "use the URL of its primary" in found["role"].sentence


async def test_jobs_held_by_dead_workers_are_reported(
    running: RunningServer, harness: Harness
) -> None:
    harness.hold_as_peer(harness.add_entry({"d": b"x"}), deliveries=1, peer="t-gone")
    found = await findings(running.url)
    assert found["workers"].grade is Grade.FAIL
    assert "start a worker" in found["workers"].sentence
    harness.hold_as_peer(harness.add_entry({"d": b"x"}), deliveries=1, peer="c-peer")
    found = await findings(running.url)
    assert found["workers"].grade is Grade.WARN
    assert "1 dead workers hold 1 jobs; 1 live workers take them over" in found["workers"].sentence
    harness.admin.delete(KEYS.stream)


async def test_queues_that_nobody_looks_after_are_reported(
    running: RunningServer, harness: Harness
) -> None:
    admin, queue = harness.admin, harness.queue
    await queue.add("now")
    await queue.add("later", delay="1h")
    await queue.schedules.add("tick", Every("1h"), key="tick")
    assert "1 jobs wait and no worker is alive" in (await findings(running.url))["queues"].sentence
    for key in (KEYS.delayed, KEYS.repeat):  # as if nobody had been there for a long time
        ((member, score),) = admin.zrange(key, 0, 0, withscores=True)
        admin.zadd(key, {member: score - 7_200_000})
    async with await connect(running.url) as server:
        told = [each for each in judge_server(await examine(server)) if each.check == "time"]
    assert [each.grade for each in told] == [Grade.FAIL] * 2
    delayed, fires = (each.sentence for each in told)
    assert "nobody promotes delayed jobs, due for" in delayed
    assert "nobody fires schedules, due for" in fires
    await harness.start_worker(Calls())
    await harness.until_settled()
    found = await findings(running.url)
    assert (found["queues"].grade, found["time"].grade) == (Grade.OK, Grade.OK)


async def test_settings_that_lose_jobs_or_connections_are_reported(start: Start) -> None:
    running = start("--appendonly", "yes", "--appendfsync", "no", "--timeout", "300")
    found = await findings(running.url)
    assert grades(found) == {"persistence": "warn", "clients": "warn"}
    assert "set appendfsync everysec" in found["persistence"].sentence
    assert "idle for 300 s: set timeout 0" in found["clients"].sentence


async def test_keys_without_an_end_are_named(running: RunningServer, admin: redis.Redis) -> None:
    for number in range(5):
        admin.set(f"{{chasqui:q}}:result:{number}", "x")
        admin.set(f"{{chasqui:q}}:dlid:{number}", "x", ex=60)
    admin.set("{chasqui:q}:mine", "x")
    found = (await findings(running.url))["expiry"]
    assert found.grade is Grade.WARN
    assert "{chasqui:q}:result:0" in found.sentence
    assert "and 2 more" in found.sentence


async def test_what_may_keep_flows_from_ending_is_reported(start: Start) -> None:
    running = start("--appendonly", "yes")
    shop = FlowShop(running.url)
    run = await shop.start_failing()
    assert (await findings(running.url))["flows"] == Finding(
        "flows", Grade.OK, "queues with flows: default"
    )
    with running.admin() as admin:
        admin.config_set("maxmemory-policy", "allkeys-lru")
        admin.config_set("appendonly", "no")
        admin.xgroup_create("{chasqui:other}:stream", "default", "0", mkstream=True)
        admin.xgroup_createconsumer("{chasqui:other}:stream", "default", "c-peer")
        admin.hset(f"{{chasqui:default}}:tampu:flow:{run.id}", "lost", f"{run.id}~0")
    async with await connect(running.url) as server:
        told = [each for each in judge_server(await examine(server)) if each.check == "flows"]
    assert {each.grade for each in told} == {Grade.WARN}
    eviction, persistence, peers, lost = (each.sentence for each in told)
    assert "set maxmemory-policy noeviction" in eviction
    assert "set appendonly yes" in persistence
    assert "such as those of ChasquiMQ: c-peer on other." in peers
    assert f"flows of queue default wait in vain for lost jobs: {run.id}." in lost
    await shop.app.close()


async def test_looking_for_keys_ends_at_its_bound(running: RunningServer) -> None:
    with running.admin() as admin:
        admin.mset({f"{{chasqui:q}}:dlid:{number}": "x" for number in range(3000)})
    async with await connect(running.url) as server:
        endless = (await examine(server, max_keys=1000)).missing_expiries
    assert not endless.searched_all
    assert 1000 <= endless.checked < 3000


@pytest.mark.parametrize("skew_s", [-7200, 7200])
async def test_a_clock_offset_is_reported(running: RunningServer, skew_s: int) -> None:
    async with await connect(running.url) as server:
        facts = await examine(server, clock_ms=lambda: now_ms() + skew_s * 1000)
    (found,) = (each for each in judge_server(facts) if each.check == "clock")
    assert found.grade is Grade.FAIL
    side = "behind" if skew_s > 0 else "ahead of"
    assert re.match(rf"(7200.0|7199.9) s {side} this machine's", found.sentence)
