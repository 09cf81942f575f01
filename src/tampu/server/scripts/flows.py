"""Flows: the scripts that start them, count their jobs, and bring those to other queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tampu.server.scripts.script import Script, as_flags, as_number
from tampu.server.scripts.settling import Claim, claim_args
from tampu.wire.control import KEPT_MS
from tampu.wire.fields import decode_text
from tampu.wire.keys import QueueKeys
from tampu.wire.placeholders import StepEntry

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument
    from tampu.server.scripts.settling import Replay
    from tampu.wire.flow import EndMessage

_START: Final = Script("start_flow")
_GROW: Final = Script("grow_map")
_SETTLE: Final = Script("settle_members")
_END: Final = Script("end_members")
_DELIVER: Final = Script("deliver_members")
_REPLAY: Final = Script("replay_members")
_ADVANCE: Final = Script("advance_chain")
_STOP: Final = Script("stop_flow")
_RESUME: Final = Script("resume_flow")
_LOST: Final = Script("note_lost")
_PREPARE: Final = Script("prepare_gate")
_RESUMED_A_CALL: Final = 1000
_DELIVERED_S: Final = 3600  # far longer than a relay takes to bring a job again


class FlowStart(Struct, frozen=True):
    """A flow as it is stored, and its nodes that wait for nothing."""

    flow_id: str
    fields: Mapping[str, bytes | str | int]
    ready: Sequence[int]


async def start_flow(lane: Lane, keys: QueueKeys, flow: FlowStart) -> bool:
    """Store a flow and add its first jobs; False if it was there already."""
    own = (keys.stream, keys.notices, keys.flow(flow.flow_id), keys.flows)
    args: list[Argument] = [flow.flow_id, 2 * len(flow.fields)]
    for name, value in flow.fields.items():
        args += name, value
    return bool(as_number(await _START.run(lane, own, [*args, *flow.ready], repeatable=True)))


class Growth(Struct, frozen=True):
    """Jobs for a node of a flow.

    `first` is the number of the first one; for a batch, a token of the call. `until` is the last
    entry of the results that the jobs are for, b"" if they are for none.
    """

    flow_id: str
    node: int
    first: int | str
    members: Sequence[bytes]
    is_last: bool
    until: bytes = b""


async def grow_map(lane: Lane, keys: QueueKeys, growth: Growth) -> int:
    """Add jobs to a node; returns how many it has now, or -1 if it takes no more."""
    head = (growth.flow_id, growth.node, growth.first, int(growth.is_last), growth.until)
    args = (*head, *growth.members)
    return as_number(await _GROW.run(lane, (keys.stream, keys.notices), args, repeatable=True))


class MemberEntry(Struct, frozen=True, gc=False):
    """An entry of a flow's job, how that ended, and the fields of its dead letter if it has one."""

    entry_id: bytes
    job_id: str
    kind: bytes
    value: bytes
    closes: bytes = b""  # the resource that is closed until somebody opens it
    run: bytes = b""  # the run that may have a stream
    dead: Sequence[bytes] = ()


class MemberTarget(Struct, frozen=True):
    """Where jobs of flows are settled, and how many dead letters are kept (0: all)."""

    keys: QueueKeys
    claim: Claim
    max_dead: int


async def settle_members(lane: Lane, target: MemberTarget, entries: Sequence[MemberEntry]) -> bytes:
    """Settle entries of flows' jobs; one flag each, b"1" if the entry was ours to settle."""
    keys, claim = target.keys, target.claim
    args: list[Argument] = [*claim_args(lane, claim), target.max_dead]
    for each in entries:
        args += each.entry_id, each.job_id, each.kind, each.value, each.closes, each.run
        args += len(each.dead), *each.dead
    own = (claim.stream, keys.dead, keys.notices, claim.gate)
    return as_flags(await _SETTLE.run(lane, own, args, repeatable=True))


async def end_members(lane: Lane, keys: QueueKeys, ends: Sequence[tuple[EndMessage, str]]) -> int:
    """Tell a queue how jobs of its flows have ended; each with the queue where it was."""
    args: list[Argument] = []
    for each, queue in ends:
        place = each.dead_id + b" " + queue.encode() if each.dead_id else b""
        args += each.job_id, each.kind, each.value, place
    return as_number(await _END.run(lane, (keys.stream, keys.notices), args, repeatable=True))


async def deliver_members(lane: Lane, keys: QueueKeys, members: Sequence[tuple[str, bytes]]) -> int:
    """Add jobs of flows of other queues: their ids and the jobs; returns how many were new."""
    args: list[Argument] = [_DELIVERED_S]
    for job_id, member in members:
        args += job_id, member
    return as_number(await _DELIVER.run(lane, (keys.stream,), args, repeatable=True))


async def replay_members(lane: Lane, keys: QueueKeys, letters: Sequence[Replay]) -> list[bool]:
    """Put dead letters of flows' jobs back, under the ids of their next runs; which still existed.

    Not sent again after a lost connection: the reply would be wrong, though nothing is added twice.
    """
    args: list[Argument] = []
    for each in letters:
        args += each.dead_id, each.job_id, each.body, each.name, each.extras
    own = (keys.dead, keys.stream, keys.notices)
    return [flag == ord("1") for flag in as_flags(await _REPLAY.run(lane, own, args))]


class StepEnd(Struct, frozen=True, gc=False):
    """An entry of a step of a chain, and the step that follows."""

    entry_id: bytes
    job_id: str
    step: StepEntry
    run: bytes = b""  # the run that may have a stream


async def advance_chain(lane: Lane, claim: Claim, entries: Sequence[StepEnd]) -> bytes:
    """Settle steps and add the next ones; one flag each, b"1" if the entry was ours to settle."""
    args: list[Argument] = claim_args(lane, claim)
    for each in entries:
        args += each.entry_id, each.run, each.job_id
        args += each.step.envelope, each.step.name, each.step.extras
    return as_flags(await _ADVANCE.run(lane, (claim.stream, claim.gate), args, repeatable=True))


async def stop_flow(lane: Lane, keys: QueueKeys, flow_id: str, *, failure: bytes) -> str:
    """Cancel a flow; its state before, "" if there is none.

    Not sent again after a lost connection: the reply would be wrong.
    """
    reply = await _STOP.run(lane, (keys.stream, keys.notices), (flow_id, failure))
    assert isinstance(reply, bytes)  # noqa: S101 - our own script
    return decode_text(reply)


async def resume_flow(lane: Lane, keys: QueueKeys, flow_id: str, *, count: int) -> int:
    """Let a halted flow go on; how many of its jobs still wait, -1 if it cannot go on."""
    own = (keys.stream, keys.notices)
    return as_number(await _RESUME.run(lane, own, (flow_id, count), repeatable=True))


async def resume_all(lane: Lane, keys: QueueKeys, flow_id: str) -> bool:
    """Let a halted flow go on with all jobs that still wait; False if it cannot."""
    left = 1
    while left > 0:
        left = await resume_flow(lane, keys, flow_id, count=_RESUMED_A_CALL)
    return left == 0


class FlowMark(Struct, frozen=True):
    """Numbers of a flow that change whenever it goes on."""

    live: bytes
    held: bytes
    again: bytes


async def note_lost(
    lane: Lane, keys: QueueKeys, flow_id: str, *, mark: FlowMark, lost: Sequence[str]
) -> bool:
    """Write down which jobs of a flow are nowhere; False if it went on since it had that mark."""
    args = (mark.live, mark.held, mark.again, "\n".join(lost))
    return bool(as_number(await _LOST.run(lane, (keys.flow(flow_id),), args, repeatable=True)))


class GateNeeds(Struct, frozen=True):
    """What a gate must know of jobs: flags, limits with their definitions, weights of lines."""

    flags: bytes
    limits: Sequence[bytes]
    weights: Sequence[tuple[str, bytes]]


async def prepare_gate(lane: Lane, keys: QueueKeys, needs: GateNeeds) -> int:
    """Make known what the gate needs for jobs of flows; `UnknownLimit` if it has no such limit."""
    args: list[Argument] = [needs.flags, KEPT_MS, len(needs.limits) // 2, *needs.limits]
    for line, weight in needs.weights:
        args += line, weight
    own = (keys.stream, keys.gate, keys.control)
    return as_number(await _PREPARE.run(lane, own, args, repeatable=True))
