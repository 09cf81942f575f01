"""One worker with queues on every node of a cluster, while the cluster changes under it."""

import asyncio
import itertools
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis

from tampu import App, AppWorker, current_job
from tampu.errors import ServerError
from tampu.wire.keys import QueueKeys
from tests.servers import RunningServer
from tests.topology import Cluster, cluster
from tests.waiting import block_until, stack_of, wait_until

NAMES = [f"fleet-{number}" for number in range(12)]
TROUBLE_S = float(os.environ.get("TAMPU_FAULTS_TROUBLE_S", "6"))


class Changes:
    """What happens to the cluster: slots move, replicas take over, connections are cut."""

    def __init__(self, nodes: Cluster, rng: Random) -> None:
        self._nodes = nodes
        self._rng = rng
        self.counts: Counter[str] = Counter()

    def move_a_slot(self) -> None:
        key = QueueKeys(self._rng.choice(NAMES)).stream
        owner = self._nodes.owner(key)
        self._nodes.move(key, self._rng.choice([m for m in self._with("master") if m is not owner]))

    def cut_connections(self) -> None:
        with self._rng.choice(self._with("master")).admin() as admin:
            clients = [each["id"] for each in admin.client_list(_type="normal")]
            for client_id in self._rng.sample(clients, len(clients) // 2):
                with suppress(redis.RedisError):  # it has gone
                    admin.client_kill_filter(_id=client_id, skipme=True)

    def fail_over(self) -> None:
        """Let a replica take over in good order: a killed master loses what it had not copied."""
        replica = self._rng.choice(self._with("slave"))
        for _ in range(5):  # a busy cluster may let it fail
            with replica.admin() as admin, suppress(redis.RedisError):
                admin.execute_command("CLUSTER FAILOVER")
            with suppress(AssertionError):
                block_until(
                    lambda: _replication(replica)["role"] == "master",
                    within=6,
                    sentence="the replica has taken over",
                )
                break
        block_until(self._is_calm, within=60, sentence="the cluster is up")

    def make_one(self) -> None:
        changes: list[Callable[[], None]] = [
            self.move_a_slot,
            self.cut_connections,
            self.fail_over,
        ]
        change = self._rng.choices(changes, [3, 3, 1])[0]
        change()
        self.counts[change.__name__] += 1

    def _is_calm(self) -> bool:
        """Whether every node sees every slot served, by three masters with a replica each."""
        for node in self._all():
            with node.admin() as admin:
                info = admin.execute_command("CLUSTER INFO")
                if info["cluster_state"] != "ok" or info["cluster_slots_ok"] != "16384":
                    return False
        roles = [_replication(each) for each in self._all()]
        links = [each.get("master_link_status") for each in roles if each["role"] == "slave"]
        return links == ["up"] * len(self._nodes.replicas)

    def _with(self, role: str) -> list[RunningServer]:
        return [each for each in self._all() if _replication(each)["role"] == role]

    def _all(self) -> list[RunningServer]:
        return [*self._nodes.masters, *self._nodes.replicas]


def _replication(node: RunningServer) -> dict[str, Any]:
    with node.admin() as admin:
        return dict(admin.info("replication"))


class Load:
    """Jobs that producers add to every queue, and the ids of those that ran."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.ran: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.added: set[tuple[str, int]] = set()
        for name in NAMES:
            self.app.task(name=f"note-{name}", queue=name)(self._note)

    async def produce(self, name: str, done: asyncio.Event) -> None:
        """Add jobs one after another; one whose outcome is unknown may or may not run."""
        queue = self.app.queue(name)
        for number in itertools.count():
            with suppress(ServerError):
                await queue.add(f"note-{name}", {"queue": name, "number": number})
                self.added.add((name, number))
            await asyncio.sleep(0.005)
            if done.is_set():
                return

    def counts(self) -> Counter[str]:
        """How many jobs each queue was given."""
        return Counter(name for name, _ in self.added)

    def has_run(self) -> bool:
        return self.added <= self.ran.keys()

    async def _note(self, queue: str, number: int) -> None:
        job = current_job()
        assert job is not None
        self.ran[queue, number].append(job.id)


async def all_queues_go_on(load: Load) -> None:
    """Wait until every producer has added another job; a failover that fails takes some time."""
    before = load.counts()
    await wait_until(
        lambda: all(load.counts()[name] > before[name] for name in NAMES),
        within=60,
        sentence="every producer has added another job",
    )


@pytest.mark.timeout(300)  # the guards below add up to more than the usual limit
async def test_nothing_is_lost_or_added_twice_while_the_cluster_changes(binary: Path) -> None:
    with cluster(binary, replicas=True) as nodes:
        load, done = Load(nodes.url), asyncio.Event()
        changes = Changes(nodes, Random(7))  # noqa: S311 - the same changes in every run
        async with load.app, AppWorker(load.app, concurrency=20, grace=0, lease=15) as worker:
            producing = [asyncio.create_task(load.produce(name, done)) for name in NAMES]
            await all_queues_go_on(load)
            ends_at = time.monotonic() + TROUBLE_S
            while time.monotonic() < ends_at:
                await asyncio.to_thread(changes.make_one)
                await asyncio.sleep(0.1)
            await all_queues_go_on(load)
            done.set()
            _, stuck = await asyncio.wait(producing, timeout=45)
            assert not stuck, [stack_of(each) for each in stuck]
            await asyncio.gather(*producing)
            await wait_until(load.has_run, within=40, sentence="every job has run")
            assert worker.health is not None
            assert worker.health.heartbeat_age_s < 15, "every lease is kept"
    assert changes.counts["move_a_slot"] > 0
    assert changes.counts["cut_connections"] > 0
    assert [job for job, ids in load.ran.items() if len(set(ids)) > 1] == [], "added twice"


async def test_a_node_that_pauses_delays_only_its_own_queues(binary: Path) -> None:
    with cluster(binary) as nodes:
        load, done = Load(nodes.url), asyncio.Event()
        paused = nodes.owner(QueueKeys(NAMES[0]).stream)
        held = {name for name in NAMES if nodes.owner(QueueKeys(name).stream) is paused}
        async with load.app, AppWorker(load.app, concurrency=20, grace=0):
            producing = [asyncio.create_task(load.produce(name, done)) for name in NAMES]
            await all_queues_go_on(load)
            with paused.admin() as admin:
                admin.execute_command("CLIENT PAUSE", 60_000, "WRITE")  # as during a failover
            before = load.counts()
            await wait_until(
                lambda: all(load.counts()[name] > before[name] + 100 for name in set(NAMES) - held),
                within=40,
                sentence="the queues of other nodes go on",
            )
            assert all(load.counts()[name] <= before[name] + 1 for name in held), "it was paused"
            with paused.admin() as admin:
                admin.execute_command("CLIENT UNPAUSE")
            await all_queues_go_on(load)
            done.set()
            await asyncio.gather(*producing)
            await wait_until(load.has_run, within=40, sentence="every job has run")
    assert [job for job, ids in load.ran.items() if len(set(ids)) > 1] == [], "added twice"
