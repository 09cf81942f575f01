"""Whether a server is fit for queues: what it is asked, and what follows from the answers."""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final

from msgspec import Struct

from tampu.admin.queues import queue_names
from tampu.admin.workers import WorkerInfo, WorkerState, workers_of
from tampu.server.connect import Server
from tampu.server.dialect import USED
from tampu.server.inspection import Node, groups_of, nodes_of
from tampu.server.lane import Lane
from tampu.util.clock import now_ms
from tampu.wire.fields import decode_text
from tampu.wire.keys import EVERY_QUEUE, QueueKeys, must_expire

MOST_KEYS: Final = 100_000


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What one node tells; an empty `info` and a `save` of None are what it will not."""

    name: str
    info: dict[str, str]
    save: str | None
    missing: list[str]
    skew_ms: float  # how far its clock is ahead of ours
    trip_ms: float  # how long it took to ask, and so how wrong that may be


class Left(Struct, frozen=True):
    """Workers of a group that are gone and hold jobs, and how many are there to take over."""

    queue: str
    group: str
    gone: list[WorkerInfo]
    alive: int


class Endless(Struct, frozen=True):
    """Keys that have no end and should; of how many that were looked at."""

    keys: list[str]
    looked_at: int
    searched_all: bool


class Facts(Struct, frozen=True, kw_only=True):
    """All that the findings rest on."""

    server: str
    version: str
    nodes: list[NodeFacts]
    queues: list[str]
    left: list[Left]
    endless: Endless


async def examine(
    server: Server, *, most_keys: int = MOST_KEYS, clock_ms: Callable[[], int] = now_ms
) -> Facts:
    """Ask every node, and look at every queue. It changes nothing.

    `clock_ms` is what the nodes' clocks are compared with.
    """
    queues = await queue_names(server)
    async with nodes_of(server) as nodes:
        told = [await _node_facts(node, clock_ms) for node in nodes]
        endless = await _endless(nodes, most_keys)
    left = [each for name in queues for each in await _left_on(server, QueueKeys(name))]
    return Facts(
        server=server.name,
        version=str(server.dialect),
        nodes=told,
        queues=queues,
        left=left,
        endless=endless,
    )


async def _node_facts(node: Node, clock_ms: Callable[[], int]) -> NodeFacts:
    before = clock_ms()
    theirs = await node.time_ms()
    trip_ms = float(clock_ms() - before)
    return NodeFacts(
        name=node.name,
        info=await node.info(),
        save=await node.setting("save"),
        missing=await node.missing(USED),
        skew_ms=theirs - before - trip_ms / 2,
        trip_ms=trip_ms,
    )


async def _endless(nodes: list[Node], most: int) -> Endless:
    found: list[str] = []
    looked_at = 0
    for node in nodes:
        async for page in node.keys(EVERY_QUEUE, kind="string"):
            expiring = [key for key in page if must_expire(key)]
            looked_at += len(expiring)
            if expiring:
                found += [decode_text(key) for key in await node.endless(expiring)]
            if looked_at >= most:
                return Endless(sorted(set(found)), looked_at, searched_all=False)
    return Endless(sorted(set(found)), looked_at, searched_all=True)


async def _left_on(server: Server, keys: QueueKeys) -> list[Left]:
    found: list[Left] = []
    async with await Lane.open(server, keys.stream) as lane:
        for group in await groups_of(lane, keys.stream):
            workers = await workers_of(lane, keys, group.name)
            gone = [each for each in workers if each.state is WorkerState.GONE and each.active]
            alive = sum(each.state is not WorkerState.GONE for each in workers)
            if gone:
                found.append(Left(keys.name, decode_text(group.name), gone, alive))
    return found


WARN_SKEW_MS: Final = 1_000
FAIL_SKEW_MS: Final = 60_000
_SHOWN: Final = 3


class Grade(Enum):
    """How much a finding matters."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True):
    """One thing that was looked at: what it is like and, if need be, what to do."""

    check: str
    grade: Grade
    sentence: str


def judge(facts: Facts) -> list[Finding]:
    """One finding or more for each check, in the order of the checks."""
    found = [Finding("version", Grade.OK, f"{facts.version} at {facts.server}")]
    several = len(facts.nodes) > 1
    for node in facts.nodes:
        for check in _CHECKS:
            finding = check(node)
            if several:
                sentence = f"{node.name}: {finding.sentence}"
                finding = Finding(finding.check, finding.grade, sentence)
            found.append(finding)
    return [*found, *_workers(facts), _expiry(facts)]


def _role(node: NodeFacts) -> Finding:
    role = node.info.get("role")
    if role is None:
        return Finding("role", Grade.WARN, "the server does not tell: allow INFO to this user")
    if role != "master":
        return Finding("role", Grade.FAIL, "it is a replica and takes no jobs: name its primary")
    replicas = node.info.get("connected_slaves", "0")
    return Finding("role", Grade.OK, f"it takes writes; replicas: {replicas}")


def _commands(node: NodeFacts) -> Finding:
    if node.missing:
        names = ", ".join(node.missing)
        return Finding("commands", Grade.FAIL, f"it lacks {names}: enable them, or change servers")
    return Finding("commands", Grade.OK, "it has all that tampu needs")


def _memory(node: NodeFacts) -> Finding:
    policy = node.info.get("maxmemory_policy")
    limit = int(node.info.get("maxmemory", "0") or 0)
    if policy is None:
        return Finding("memory", Grade.WARN, "it does not tell its eviction policy: look yourself")
    if policy != "noeviction":
        what = f"its eviction policy is {policy}"
        if limit:
            fix = "set maxmemory-policy noeviction, or it will delete jobs when it is full"
            return Finding("memory", Grade.FAIL, f"{what}: {fix}")
        fix = "set maxmemory-policy noeviction before you set a memory limit"
        return Finding("memory", Grade.WARN, f"{what}: {fix}")
    if not limit:
        return Finding("memory", Grade.OK, "nothing is evicted; it has no memory limit")
    used = int(node.info.get("used_memory", "0") or 0)
    share = used * 100 // limit
    told = f"nothing is evicted; {share} % of its memory limit are used"
    if share >= 90:
        return Finding("memory", Grade.WARN, f"{told}: give it more, or remove what is not needed")
    return Finding("memory", Grade.OK, told)


def _persistence(node: NodeFacts) -> Finding:
    info, check = node.info, "persistence"
    aof = info.get("aof_enabled")
    if aof is None:
        return Finding(check, Grade.WARN, "it does not tell: allow INFO to this user")
    if aof == "1":
        if info.get("aof_last_write_status", "ok") != "ok":
            return Finding(check, Grade.FAIL, "it cannot write its append-only file: see its disk")
        return Finding(check, Grade.OK, "it keeps an append-only file")
    return _snapshots(node, check)


def _snapshots(node: NodeFacts, check: str) -> Finding:
    if node.info.get("rdb_last_bgsave_status", "ok") != "ok":
        return Finding(check, Grade.FAIL, "its last snapshot failed: see its disk and its log")
    if node.save:
        what = "it keeps snapshots only, and a crash loses what came after the last"
        return Finding(check, Grade.WARN, f"{what}: set appendonly yes")
    if node.save is None:
        return Finding(check, Grade.WARN, "it keeps no append-only file: set appendonly yes")
    return Finding(check, Grade.WARN, "it keeps nothing when it restarts: set appendonly yes")


def _clock(node: NodeFacts) -> Finding:
    # The time of the question may lie all on one way: so much of it may be no skew at all.
    sure_ms = max(0.0, abs(node.skew_ms) - node.trip_ms / 2)
    if sure_ms < WARN_SKEW_MS:
        return Finding("clock", Grade.OK, "it agrees with this machine's to a second")
    side = "ahead of" if node.skew_ms > 0 else "behind"
    grade = Grade.FAIL if sure_ms >= FAIL_SKEW_MS else Grade.WARN
    fix = "set both by NTP, or what expires, and the times in events, are off by that"
    return Finding("clock", grade, f"it is {sure_ms / 1000:.1f} s {side} this machine's: {fix}")


_CHECKS: Final[tuple[Callable[[NodeFacts], Finding], ...]] = (
    _role,
    _commands,
    _memory,
    _persistence,
    _clock,
)


def _workers(facts: Facts) -> Iterator[Finding]:
    if not facts.left:
        count = len(facts.queues)
        told = f"none is gone with jobs in its hands; queues here: {count}"
        yield Finding("workers", Grade.OK, told)
    for left in facts.left:
        jobs = sum(worker.active for worker in left.gone)
        where = f"queue {left.queue}, group {left.group}"
        held = f"{where}: workers that are gone ({len(left.gone)}) hold jobs ({jobs})"
        if left.alive:
            told = f"{held}: those alive ({left.alive}) take them over within seconds"
            yield Finding("workers", Grade.WARN, told)
        else:
            yield Finding("workers", Grade.FAIL, f"{held}: start a worker to take them over")


def _expiry(facts: Facts) -> Finding:
    endless = facts.endless
    if endless.keys:
        shown = ", ".join(endless.keys[:_SHOWN])
        more = len(endless.keys) - _SHOWN
        rest = f" and {more} more" if more > 0 else ""
        fix = "something else wrote them; remove them if they are old"
        return Finding("expiry", Grade.WARN, f"without an end are {shown}{rest}: {fix}")
    bound = "" if endless.searched_all else "; there are more"
    told = f"all {endless.looked_at} keys that should end do{bound}"
    return Finding("expiry", Grade.OK, told)
