"""Whether a server is set up well for queues: collects facts, then judges them."""

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from tampu.admin.flow_health import FlowFacts, read_flow_facts
from tampu.admin.queue_health import (
    QueueFacts,
    behind,
    read_queue_health,
    unattended,
    unserved,
)
from tampu.admin.queues import queue_names
from tampu.admin.workers import WorkerInfo, WorkerState, count_alive, workers_of
from tampu.server.connect import Server
from tampu.server.dialect import USED
from tampu.server.inspection import NodeServer, groups_of, nodes_of
from tampu.server.lane import Lane
from tampu.util.clock import now_ms
from tampu.util.options import Word
from tampu.wire.fields import decode_text
from tampu.wire.keys import EVERY_QUEUE, QueueKeys, must_expire

MAX_KEYS: Final = 100_000


class NodeFacts(Struct, frozen=True, kw_only=True):
    """Facts about one node. `info` is empty and `save` is None if the node refuses to tell."""

    name: str
    info: dict[str, str]
    save: str | None
    appendfsync: str | None = None
    timeout: str | None = None
    missing: list[str]
    skew_ms: float  # how far its clock is ahead of ours
    trip_ms: float  # the round trip, which limits the precision of `skew_ms`


class OrphanedJobs(Struct, frozen=True):
    """Workers of a group that are gone but hold jobs, and how many workers are alive."""

    queue: str
    group: str
    gone: list[WorkerInfo]
    alive: int


class MissingExpiries(Struct, frozen=True):
    """Keys that should expire but have no expiry, and how many keys were checked."""

    keys: list[str]
    checked: int
    searched_all: bool


class ServerFacts(Struct, frozen=True, kw_only=True):
    """Everything that the findings are based on."""

    server: str
    version: str
    nodes: list[NodeFacts]
    queues: list[str]
    orphaned: list[OrphanedJobs]
    missing_expiries: MissingExpiries
    flows: FlowFacts
    health: list[QueueFacts]


async def examine(
    server: Server, *, max_keys: int = MAX_KEYS, clock_ms: Callable[[], int] = now_ms
) -> ServerFacts:
    """Collect facts about every node and queue. Changes nothing.

    The nodes' clocks are compared with `clock_ms`.
    """
    queues = await queue_names(server)
    async with nodes_of(server) as nodes:
        node_facts = [await _node_facts(node, clock_ms) for node in nodes]
        missing_expiries = await _missing_expiries(nodes, max_keys)
    orphaned = [each for name in queues for each in await _find_orphans(server, QueueKeys(name))]
    return ServerFacts(
        server=server.name,
        version=str(server.dialect),
        nodes=node_facts,
        queues=queues,
        orphaned=orphaned,
        missing_expiries=missing_expiries,
        flows=await read_flow_facts(server, queues),
        health=await read_queue_health(server, queues),
    )


async def _node_facts(node: NodeServer, clock_ms: Callable[[], int]) -> NodeFacts:
    before = clock_ms()
    theirs = await node.time_ms()
    trip_ms = float(clock_ms() - before)
    return NodeFacts(
        name=node.name,
        info=await node.info(),
        save=await node.setting("save"),
        appendfsync=await node.setting("appendfsync"),
        timeout=await node.setting("timeout"),
        missing=await node.missing_commands(USED),
        skew_ms=theirs - before - trip_ms / 2,
        trip_ms=trip_ms,
    )


async def _missing_expiries(nodes: list[NodeServer], most: int) -> MissingExpiries:
    found: list[str] = []
    checked = 0
    for node in nodes:
        async for page in node.keys(EVERY_QUEUE, kind="string"):
            expiring = [key for key in page if must_expire(key)]
            checked += len(expiring)
            if expiring:
                found += [decode_text(key) for key in await node.keys_without_expiry(expiring)]
            if checked >= most:
                return MissingExpiries(sorted(set(found)), checked, searched_all=False)
    return MissingExpiries(sorted(set(found)), checked, searched_all=True)


async def _find_orphans(server: Server, keys: QueueKeys) -> list[OrphanedJobs]:
    found: list[OrphanedJobs] = []
    async with await Lane.open(server, keys.stream) as lane:
        for group in await groups_of(lane, keys.stream):
            workers = await workers_of(lane, keys, group.name)
            gone = [each for each in workers if each.state is WorkerState.GONE and each.active]
            if gone:
                found.append(
                    OrphanedJobs(keys.name, decode_text(group.name), gone, count_alive(workers))
                )
    return found


WARN_SKEW_MS: Final = 1_000
FAIL_SKEW_MS: Final = 60_000
_MAX_LISTED: Final = 3


class Grade(Word):
    """How serious a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True):
    """The result of one check, and what to do about it."""

    check: str
    grade: Grade
    sentence: str


def judge_server(facts: ServerFacts) -> list[Finding]:
    """The findings, in the order of the checks."""
    found = [Finding("version", Grade.OK, f"{facts.version} at {facts.server}")]
    several = len(facts.nodes) > 1
    for node in facts.nodes:
        for check in _CHECKS:
            finding = check(node)
            if several:
                sentence = f"{node.name}: {finding.sentence}"
                finding = Finding(finding.check, finding.grade, sentence)
            found.append(finding)
    return [*found, *_workers(facts), *_queues(facts), _expiry(facts), *_flows(facts)]


def _role(node: NodeFacts) -> Finding:
    role = node.info.get("role")
    if role is None:
        return Finding("role", Grade.WARN, "unknown: allow the INFO command for this user")
    if role != "master":
        return Finding(
            "role",
            Grade.FAIL,
            "this is a replica, which accepts no jobs: use the URL of its primary",
        )
    replicas = node.info.get("connected_slaves", "0")
    return Finding("role", Grade.OK, f"primary, with {replicas} replicas")


def _commands(node: NodeFacts) -> Finding:
    if node.missing:
        names = ", ".join(node.missing)
        return Finding(
            "commands", Grade.FAIL, f"missing commands: {names}. Enable them or use another server"
        )
    return Finding("commands", Grade.OK, "all commands that tampu needs are available")


def _memory(node: NodeFacts) -> Finding:
    policy = node.info.get("maxmemory_policy")
    limit = int(node.info.get("maxmemory", "0") or 0)
    if policy is None:
        return Finding(
            "memory", Grade.WARN, "unknown eviction policy: make sure that it is noeviction"
        )
    if policy != "noeviction":
        return _evicting(policy, limit)
    if int(node.info.get("evicted_keys", "0")):
        sentence = "the server has deleted keys to make room, so jobs may be lost: see its log"
        return Finding("memory", Grade.WARN, sentence)
    if not limit:
        return Finding("memory", Grade.OK, "no eviction, no memory limit")
    used = int(node.info.get("used_memory", "0") or 0)
    share = used * 100 // limit
    usage = f"no eviction, {share} % of the memory limit used"
    if share >= 90:
        return Finding("memory", Grade.WARN, f"{usage}: raise maxmemory or purge jobs")
    return Finding("memory", Grade.OK, usage)


def _evicting(policy: str, limit: int) -> Finding:
    what = f"the eviction policy is {policy}"
    if limit:
        fix = "set maxmemory-policy noeviction, or the server deletes jobs when it is full"
        return Finding("memory", Grade.FAIL, f"{what}: {fix}")
    fix = "set maxmemory-policy noeviction before you set a memory limit"
    return Finding("memory", Grade.WARN, f"{what}: {fix}")


def _persistence(node: NodeFacts) -> Finding:
    info, check = node.info, "persistence"
    aof = info.get("aof_enabled")
    if aof is None:
        return Finding(check, Grade.WARN, "unknown: allow the INFO command for this user")
    if aof == "1":
        if info.get("aof_last_write_status", "ok") != "ok":
            return Finding(
                check, Grade.FAIL, "cannot write the append-only file: check the server's disk"
            )
        if node.appendfsync == "no":
            what = "a crash of its machine loses half a minute of jobs: set appendfsync everysec"
            return Finding(check, Grade.WARN, what)
        return Finding(check, Grade.OK, "append-only file is on")
    return _snapshots(node, check)


def _snapshots(node: NodeFacts, check: str) -> Finding:
    if node.info.get("rdb_last_bgsave_status", "ok") != "ok":
        return Finding(
            check, Grade.FAIL, "the last snapshot failed: check the server's disk and log"
        )
    if node.save:
        what = "snapshots only: a crash loses everything since the last one"
        return Finding(check, Grade.WARN, f"{what}. Set appendonly yes")
    if node.save is None:
        return Finding(check, Grade.WARN, "no append-only file: set appendonly yes")
    return Finding(
        check, Grade.WARN, "no persistence, a restart loses all jobs: set appendonly yes"
    )


def _clients(node: NodeFacts) -> Finding:
    if node.timeout not in {None, "0"}:
        what = f"the server closes connections that are idle for {node.timeout} s: set timeout 0"
        return Finding("clients", Grade.WARN, what)
    most, now = (int(node.info.get(name, "0")) for name in ("maxclients", "connected_clients"))
    if now * 5 >= most * 4 > 0:
        return Finding("clients", Grade.WARN, f"{now} of {most} connections used: raise maxclients")
    return Finding("clients", Grade.OK, f"{now} connections, and room for more")


def _clock(node: NodeFacts) -> Finding:
    # The round trip may be asymmetric, so up to half of it may not be skew.
    sure_ms = max(0.0, abs(node.skew_ms) - node.trip_ms / 2)
    if sure_ms < WARN_SKEW_MS:
        return Finding("clock", Grade.OK, "within a second of this machine's clock")
    side = "ahead of" if node.skew_ms > 0 else "behind"
    grade = Grade.FAIL if sure_ms >= FAIL_SKEW_MS else Grade.WARN
    fix = "synchronise both with NTP; expiries and event times are off by this much"
    return Finding("clock", grade, f"{sure_ms / 1000:.1f} s {side} this machine's clock: {fix}")


_CHECKS: Final[tuple[Callable[[NodeFacts], Finding], ...]] = (
    _role,
    _commands,
    _memory,
    _persistence,
    _clients,
    _clock,
)


def _workers(facts: ServerFacts) -> Iterator[Finding]:
    if not facts.orphaned:
        count = len(facts.queues)
        yield Finding("workers", Grade.OK, f"no dead worker holds jobs ({count} queues checked)")
    for each in facts.orphaned:
        jobs = sum(worker.active for worker in each.gone)
        where = f"queue {each.queue}, group {each.group}"
        held = f"{where}: {len(each.gone)} dead workers hold {jobs} jobs"
        if each.alive:
            sentence = f"{held}; {each.alive} live workers take them over within seconds"
            yield Finding("workers", Grade.WARN, sentence)
        else:
            yield Finding("workers", Grade.FAIL, f"{held}: start a worker to take them over")


def _queues(facts: ServerFacts) -> Iterator[Finding]:
    troubles = [Finding("queues", Grade.WARN, each) for each in unattended(facts.health)]
    yield from troubles or [Finding("queues", Grade.OK, "no queue waits for a worker")]
    late = [Finding("time", Grade.FAIL, each) for each in unserved(facts.health)]
    late += [Finding("time", Grade.WARN, each) for each in behind(facts.health)]
    yield from late or [Finding("time", Grade.OK, "no delayed job or schedule is late")]


def _expiry(facts: ServerFacts) -> Finding:
    found = facts.missing_expiries
    if found.keys:
        fix = "tampu did not write them so; delete them if they are old"
        return Finding(
            "expiry", Grade.WARN, f"keys without an expiry: {_name_some(found.keys)}. {fix}"
        )
    bound = "" if found.searched_all else " (there are more)"
    return Finding("expiry", Grade.OK, f"all {found.checked} checked keys expire{bound}")


def _flows(facts: ServerFacts) -> Iterator[Finding]:
    """What may keep flows from ending; nothing if there are none."""
    queues = [each.queue for each in facts.flows.queues]
    if not queues:
        return
    kept = f"queues with flows: {_name_some(queues)}"
    troubles = list(_flow_troubles(facts))
    for sentence in troubles:
        yield Finding("flows", Grade.WARN, sentence)
    if not troubles:
        yield Finding("flows", Grade.OK, kept)


def _flow_troubles(facts: ServerFacts) -> Iterator[str]:
    nodes = [node.info for node in facts.nodes]
    if any(info.get("maxmemory_policy", "noeviction") != "noeviction" for info in nodes):
        yield (
            "the server may evict the state of flows, which then never end: "
            "set maxmemory-policy noeviction"
        )
    if any(info.get("aof_enabled", "1") != "1" for info in nodes):
        yield "a crash of the server may leave flows that never end: set appendonly yes"
    if facts.flows.peers:
        named = _name_some([f"{worker} on {queue}" for queue, worker in facts.flows.peers])
        yield (
            f"workers that know no flows, such as those of ChasquiMQ: {named}. A flow waits in "
            "vain for a job that they run: use a queue of its own for flows"
        )
    for each in facts.flows.queues:
        if each.losing:
            yield (
                f"flows of queue {each.queue} wait in vain for lost jobs: "
                f"{_name_some(each.losing)}. See tampu flow show, and cancel them"
            )


def _name_some(names: list[str]) -> str:
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
