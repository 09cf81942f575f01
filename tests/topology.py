"""Clusters and sentinel groups of our own, on loopback ports."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import redis
from redis.crc import key_slot

from tests.servers import RunningServer, free_port
from tests.waiting import block_until

LIMIT_S = 20.0
_SLOTS = 16_384
_CLUSTER_OPTIONS = ("--cluster-enabled", "yes", "--cluster-replica-validity-factor", "0")
# A node that is silent for so long has failed; a busy machine must not look like that.
_NODE_TIMEOUT_MS = 15_000
_SHORT_NODE_TIMEOUT_MS = 2_000  # for tests that wait for it
_MASTER_TIMEOUT_MS = 1_500  # the same for sentinels
SERVICE = "house"


def _eventually(condition: Callable[[], object], sentence: str) -> None:
    def holds() -> bool:
        try:
            return bool(condition())
        except (redis.RedisError, OSError):
            return False

    block_until(holds, within=LIMIT_S, sentence=sentence)


class Cluster:
    """Masters that share the slots evenly, each with a replica if asked for."""

    def __init__(self, masters: list[RunningServer], replicas: list[RunningServer]) -> None:
        self.masters, self.replicas = masters, replicas

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{m.port}" for m in self.masters)

    def node_id(self, node: RunningServer) -> str:
        with node.admin() as admin:
            found: bytes | str = admin.execute_command("CLUSTER MYID")
            return found.decode() if isinstance(found, bytes) else found

    def owner(self, key: bytes) -> RunningServer:
        """The master that holds the key's slot now."""
        slot = key_slot(key)
        for node in self.masters + self.replicas:
            with node.admin() as admin:
                if node.process.poll() is None and slot in _own_slots(admin):
                    return node
        raise AssertionError(f"nobody holds slot {slot}")

    def other(self, key: bytes) -> RunningServer:
        """A master that does not hold the key's slot."""
        owner = self.owner(key)
        return next(node for node in self.masters if node is not owner)

    @contextmanager
    def moving(self, key: bytes) -> Iterator[RunningServer]:
        """The key's slot is half way to the master that this gives; afterwards it is there."""
        target = self.other(key)
        source = self.begin_move(key, target)
        try:
            yield target
        finally:
            self.end_move(key, source, target)

    def begin_move(self, key: bytes, target: RunningServer) -> RunningServer:
        """Mark the key's slot as on its way to `target`; where it comes from."""
        slot, source = key_slot(key), self.owner(key)
        with source.admin() as giving, target.admin() as taking:
            taking.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", self.node_id(source))
            giving.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", self.node_id(target))
        return source

    def end_move(self, key: bytes, source: RunningServer, target: RunningServer) -> None:
        """Carry the slot's keys over and make `target` its owner."""
        slot, new = key_slot(key), self.node_id(target)
        with source.admin() as giving, target.admin() as taking:
            while keys := giving.execute_command("CLUSTER GETKEYSINSLOT", slot, 100):
                where = ("127.0.0.1", target.port, "", 0, 5000, "KEYS")
                giving.execute_command("MIGRATE", *where, *keys)
            taking.execute_command("CLUSTER SETSLOT", slot, "NODE", new)
            giving.execute_command("CLUSTER SETSLOT", slot, "NODE", new)

    def move(self, key: bytes, target: RunningServer) -> None:
        """Move the key's slot to `target` while the cluster works."""
        self.end_move(key, self.begin_move(key, target), target)


def _own_slots(admin: redis.Redis) -> set[int]:
    text = admin.execute_command("CLUSTER NODES")
    nodes = text if isinstance(text, dict) else {}
    for node in nodes.values():
        if "myself" in node["flags"] and "master" in node["flags"]:
            return {
                slot
                for part in node["slots"]
                for slot in range(int(part[0]), int(part[-1]) + 1)
                if not str(part[0]).startswith("[")
            }
    return set()


@contextmanager
def cluster(
    binary: Path, *, masters: int = 3, replicas: bool = False, fails_fast: bool = False
) -> Iterator[Cluster]:
    """A cluster that is up; one that `fails_fast` replaces a killed master within seconds."""
    with ExitStack() as stack:
        timeout_ms = _SHORT_NODE_TIMEOUT_MS if fails_fast else _NODE_TIMEOUT_MS
        options = (*_CLUSTER_OPTIONS, "--cluster-node-timeout", str(timeout_ms))

        def start() -> RunningServer:
            return stack.enter_context(RunningServer(binary, *options))

        nodes = [start() for _ in range(masters)]
        followers = [start() for _ in range(masters)] if replicas else []
        built = Cluster(nodes, followers)
        _share_slots(nodes)
        _introduce(nodes + followers)
        for master, follower in zip(nodes, followers, strict=False):
            _follow(follower, built.node_id(master))
        for node in nodes + followers:
            _eventually(partial(_is_up, node, masters), "the cluster is up")
        yield built


def _share_slots(nodes: list[RunningServer]) -> None:
    for number, node in enumerate(nodes):
        first, last = (_SLOTS * n // len(nodes) for n in (number, number + 1))
        with node.admin() as admin:
            admin.execute_command("CLUSTER ADDSLOTS", *range(first, last))


def _introduce(nodes: list[RunningServer]) -> None:
    with nodes[0].admin() as admin:
        for number, node in enumerate(nodes):
            with node.admin() as other:
                other.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            admin.execute_command("CLUSTER MEET", "127.0.0.1", node.port)
    for node in nodes:
        _eventually(partial(_knows, node, len(nodes)), "all nodes know each other")


def _knows(node: RunningServer, count: int) -> bool:
    with node.admin() as admin:
        return len(admin.execute_command("CLUSTER NODES")) == count


def _follow(follower: RunningServer, master_id: str) -> None:
    with follower.admin() as admin:
        admin.execute_command("CLUSTER REPLICATE", master_id)
        _eventually(
            lambda: admin.info("replication")["master_link_status"] == "up", "the replica follows"
        )


def _is_up(node: RunningServer, masters: int) -> bool:
    with node.admin() as admin:
        info = admin.execute_command("CLUSTER INFO")
        return info["cluster_state"] == "ok" and int(info["cluster_size"]) == masters


class Watched:
    """A master, its replica and the sentinels that watch them."""

    def __init__(
        self,
        master: RunningServer,
        replica: RunningServer,
        sentinels: dict[int, "subprocess.Popen[bytes]"],
    ) -> None:
        self.master, self.replica = master, replica
        self.sentinels, self.sentinel_ports = sentinels, list(sentinels)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinel_ports)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    def switch(self) -> None:
        """Make the replica the master, in good order."""
        with redis.Redis(port=self.sentinel_ports[0]) as sentinel:
            _eventually(
                lambda: sentinel.execute_command("SENTINEL FAILOVER", SERVICE), "a failover starts"
            )


@contextmanager
def watched(
    binary: Path, directory: Path, *, sentinels: int = 3, fails_fast: bool = False
) -> Iterator[Watched]:
    """A master and a replica under sentinels that agree on them.

    With `fails_fast` they replace a killed master within seconds, and on a busy machine also one
    that is merely slow.
    """
    timeout_ms = _MASTER_TIMEOUT_MS if fails_fast else _NODE_TIMEOUT_MS
    with ExitStack() as stack:
        master = stack.enter_context(RunningServer(binary))
        replica = stack.enter_context(
            RunningServer(binary, "--replicaof", "127.0.0.1", str(master.port))
        )
        # A sentinel asks the master for its replicas when it starts, and then every ten seconds.
        _eventually(partial(_has_replica, master), "the replica follows")
        started = dict(
            _sentinel(stack, binary, directory, master.port, timeout_ms) for _ in range(sentinels)
        )
        for port in started:
            _eventually(partial(_agrees, port, sentinels), "the sentinels see all")
        yield Watched(master, replica, started)


def _has_replica(master: RunningServer) -> bool:
    with master.admin() as admin:
        return "online" in str(admin.info("replication").get("slave0"))


def _sentinel(
    stack: ExitStack, binary: Path, directory: Path, master_port: int, timeout_ms: int
) -> tuple[int, "subprocess.Popen[bytes]"]:
    port = free_port()
    config = directory / f"sentinel-{port}.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {directory}\n"
        f"sentinel monitor {SERVICE} 127.0.0.1 {master_port} 2\n"
        f"sentinel down-after-milliseconds {SERVICE} {timeout_ms}\n"
        f"sentinel failover-timeout {SERVICE} 3000\n"
    )
    log = stack.enter_context((directory / f"sentinel-{port}.log").open("wb"))
    process = subprocess.Popen([binary, config, "--sentinel"], stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return port, process


def _agrees(port: int, sentinels: int) -> bool:
    with redis.Redis(port=port) as sentinel:
        state = sentinel.sentinel_master(SERVICE)
        seen = (state["num-slaves"], state["num-other-sentinels"])
        return seen == (1, sentinels - 1)
