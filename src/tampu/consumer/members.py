"""The calls that settle jobs of flows and steps of chains, which others wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from tampu.consumer.intake import BuryEntry
from tampu.consumer.settle import EndMember, MemberEnd
from tampu.consumer.settlement_calls import extras_of, halted_by, parts_of, stream_run
from tampu.server.scripts.flows import (
    MemberEntry,
    MemberTarget,
    StepEnd,
    advance_chain,
    settle_members,
)
from tampu.wire.dead import encode_dead
from tampu.wire.result import encode_failure

if TYPE_CHECKING:
    from tampu.consumer.batch_sender import BatchSender
    from tampu.consumer.intake import Delivery
    from tampu.consumer.recorder import NoRecorder
    from tampu.consumer.settle import AdvanceEntry
    from tampu.consumer.settlement_calls import SettlementCalls, SettleTarget
    from tampu.wire.keys import QueueKeys

Member: TypeAlias = "EndMember | BuryEntry"
_SETTLED: Final = ord("1")


class MemberCalls:
    """The calls that settle what others wait for."""

    def __init__(self, calls: SettlementCalls, keys: QueueKeys, *, max_dead: int) -> None:
        self._calls = calls
        self._keys = keys
        self._max_dead = max_dead

    async def send_members(self, batch: list[Member]) -> None:
        """Settle jobs of flows; report those that were buried or cancelled."""
        pairs = [(each, _entry_of(each)) for each in batch]
        for part in parts_of(pairs, lambda pair: _size(pair[1])):
            await self._send_members(part)

    async def _send_members(self, part: list[tuple[Member, MemberEntry]]) -> None:
        members = [each for each, _ in part]
        claim = self._calls.claim([_claimed(each) for each in members])
        flags = await settle_members(
            self._calls.lane,
            MemberTarget(self._keys, claim, self._max_dead),
            [entry for _, entry in part],
        )
        for each, flag in zip(members, flags, strict=True):
            if flag != _SETTLED:
                continue
            if isinstance(each, BuryEntry):
                self._calls.reporter.report_burial(each)
            elif each.end is MemberEnd.CANCELLED:
                self._calls.reporter.report_cancelled(each.delivery)

    async def send_steps(self, batch: list[AdvanceEntry]) -> None:
        """Settle steps of chains, and add those that follow."""
        for part in parts_of(batch, lambda each: len(each.step.envelope)):
            entries = [_step_end(each) for each in part]
            claim = self._calls.claim([each.delivery for each in part])
            await advance_chain(self._calls.lane, claim, entries)


def member_senders(
    calls: SettlementCalls, target: SettleTarget, recorder: NoRecorder
) -> tuple[BatchSender[Member], BatchSender[AdvanceEntry]]:
    """The senders of jobs of flows, and of steps of chains."""
    own = MemberCalls(calls, target.keys, max_dead=target.dead_max_len)
    members, steps = recorder.count_members, recorder.count_steps
    return (
        calls.sender("jobs of flows", own.send_members, awaited=True, before=members),
        calls.sender("steps of chains", own.send_steps, awaited=True, before=steps),
    )


def entry_id_of(member: Member) -> bytes:
    """The id of its entry."""
    return member.entry_id if isinstance(member, BuryEntry) else member.delivery.entry_id


def _claimed(member: Member) -> Delivery | BuryEntry:
    return member if isinstance(member, BuryEntry) else member.delivery


def _entry_of(member: Member) -> MemberEntry:
    if isinstance(member, EndMember):
        delivery = member.delivery
        return MemberEntry(
            delivery.entry_id,
            delivery.job.id,
            member.end.value,
            member.value,
            run=stream_run(delivery),
        )
    return MemberEntry(
        member.entry_id,
        member.job_id,
        MemberEnd.DEAD.value,
        encode_failure(member.reason, member.failure),
        halted_by(extras_of(member)),
        dead=encode_dead(member.dead),
    )


def _step_end(each: AdvanceEntry) -> StepEnd:
    delivery = each.delivery
    return StepEnd(delivery.entry_id, delivery.job.id, each.step, stream_run(delivery))


def _size(entry: MemberEntry) -> int:
    return len(entry.value) + sum(map(len, entry.dead))
