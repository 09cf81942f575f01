"""Queues with flow control as tests see them: driven by scripts alone, and checked as a whole."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import redis
from msgspec import Struct

from tampu.queue import Queue
from tampu.server.lane import Lane
from tampu.server.scripts.gate import admit, audit
from tampu.server.scripts.settling import Claim, RetriedEntry, ack, retry
from tampu.server.streams import create_group
from tampu.wire.entry import decode_entry
from tampu.wire.envelope import decode_envelope
from tampu.wire.keys import QueueKeys
from tampu.wire.payload import decode_payload
from tests.servers import RunningServer

CHECK: Final = (Path(__file__).parent / "faults" / "gate_check.lua").read_text()
GROUP: Final = b"default"


class GateState(Struct, frozen=True):
    """What `gate_check.lua` found."""

    gone: int  # entries that hold something and were settled
    lined: int  # jobs in lines
    problems: list[str]


def look_at_gate(admin: redis.Redis, keys: QueueKeys) -> GateState:
    """Everything about a gate, in one step."""
    found: Any = admin.eval(CHECK, 2, keys.stream.decode(), keys.gate.decode())
    gone, lined, *problems = found
    return GateState(gone, lined, [problem.decode() for problem in problems])


def assert_sound(admin: redis.Redis, keys: QueueKeys) -> GateState:
    """Fail if anything about a gate is wrong."""
    state = look_at_gate(admin, keys)
    assert (state.gone, state.problems) == (0, []), state
    return state


def assert_empty(admin: redis.Redis, keys: QueueKeys) -> None:
    """Fail if a gate still holds jobs, slots or lines that wait."""
    state = assert_sound(admin, keys)
    assert state.lined == 0, state
    counted, held = slots(admin, keys), sorted(admin.hkeys(keys.gate + b":held"))
    assert (counted, held) == ({}, [b""]), (counted, held)
    left = [key for part in (b":line:*", b":wait:*") for key in admin.keys(keys.gate + part)]
    assert left == [], left


def slots(admin: redis.Redis, keys: QueueKeys) -> dict[str, str]:
    """What is counted for each resource, and which line waits for it."""
    found: Any = admin.hgetall(keys.gate + b":run")
    return {name.decode(): text.decode() for name, text in found.items() if name}


def commands(server: RunningServer) -> Iterator[list[bytes]]:
    """All commands in the append-only file of a server, in their order."""
    for path in sorted(server.directory.rglob("*.aof")):
        yield from _commands_in(path)


def _commands_in(path: Path) -> Iterator[list[bytes]]:
    with path.open("rb") as file:
        while head := file.readline():
            assert head.startswith(b"*"), f"{path} begins with a snapshot"
            command = []
            for _ in range(int(head[1:])):
                size = int(file.readline()[1:])
                command.append(file.read(size))
                file.read(2)
            yield command


class TakenJob(Struct, frozen=True):
    """An entry that was read."""

    entry_id: bytes
    data: Any
    flat: list[bytes]

    @property
    def at_ms(self) -> int:
        """When it passed the gate, by the server's clock."""
        return int(self.entry_id.split(b"-")[0])


class ManualGate:
    """Reads and settles the entries of a queue by hand, as many at a time as it wants."""

    def __init__(self, queue: Queue, lane: Lane, admin: redis.Redis, keys: QueueKeys) -> None:
        self.queue, self.keys = queue, keys
        self.admin: Any = admin  # its replies are typed as anything that could be
        self._lane = lane

    async def open(self) -> None:
        """Make it possible to read."""
        await create_group(self._lane, self.keys.stream, GROUP)

    async def want(self, room: int, *, consumer: bytes = b"t-1") -> int:
        """Say how many entries a consumer can have; how many jobs passed for that."""
        if consumer:
            self.admin.set(self.keys.worker(consumer), b"alive")
        admitted = await admit(self._lane, self.keys, consumer=consumer, room=room)
        assert admitted is not None, "the queue has no gate"
        return admitted.count

    async def admit(self) -> int:
        """Let through what can pass; how many did."""
        return await self.want(0, consumer=b"")

    async def audit(self) -> int:
        """Look at all that is held; how much of it was settled by others."""
        found = await audit(self._lane, self.keys, group=GROUP, cursor=b"0", count=100_000)
        assert found is not None, "the queue has no gate"
        return found.freed

    def read(self, count: int = 100_000, *, consumer: bytes = b"t-1") -> list[TakenJob]:
        """Read entries that have passed, and nobody has read."""
        found = self.admin.xreadgroup(GROUP, consumer, {self.keys.stream: ">"}, count=count)
        return [_taken(*entry) for _, entries in found or () for entry in entries]

    async def settle(self, jobs: Sequence[TakenJob]) -> int:
        """Have jobs end well; how many were still there to settle."""
        claim = Claim(self.keys.stream, GROUP, self.keys.gate)
        return await ack(self._lane, claim, [job.entry_id for job in jobs]) if jobs else 0

    async def run_again(
        self, job: TakenJob, *, wait_ms: int | None = None, closes: bytes = b""
    ) -> bytes:
        """Have a job run again, at the head of its line, now or after it was closed for a while."""
        entry, claim = decode_entry(job.flat), Claim(self.keys.stream, GROUP, self.keys.gate)
        assert entry.envelope is not None
        body, name, extras = entry.envelope, entry.raw_name, entry.extras or b""
        if wait_ms is not None:
            tail = extras + len(extras).to_bytes(4, "little") + b"\xc1TX\x01" if extras else b""
            body, name, extras = len(name).to_bytes(4, "little") + name + body + tail, b"", b""
        again = RetriedEntry(job.entry_id, wait_ms, body, name, extras, closes=closes)
        return await retry(self._lane, claim, [again], keys=self.keys)

    async def drain(
        self, batch: int, *, most: int = 1_000_000, on: Callable[[Any], Any] | None = None
    ) -> list[Any]:
        """Take so many at a time until nothing comes; the data of the jobs, in their order."""
        order: list[Any] = []
        await self.want(batch)
        while len(order) < most and (taken := self.read(batch)):
            for job in taken:
                order.append(job.data)
                if on is not None and (added := on(job.data)) is not None:
                    await added
            await self.settle(taken)
        return order

    def sound(self) -> GateState:
        """Fail if anything is wrong."""
        return assert_sound(self.admin, self.keys)


def _taken(entry_id: bytes, fields: dict[bytes, bytes]) -> TakenJob:
    flat = [text for pair in fields.items() for text in pair]
    entry = decode_entry(flat)
    assert entry.envelope is not None
    return TakenJob(entry_id, decode_payload(decode_envelope(entry.envelope).payload), flat)
