"""Counts what a worker settles and samples how long it took, for the history of its queue.

Hot path. Counts go to the server with each batch of settlements, so a killed worker loses none.
Times are collected here and recorded every ten seconds.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from functools import partial
from hashlib import sha1
from typing import TYPE_CHECKING, Final

from tampu.consumer.sampling import Sampler, TaskTimes
from tampu.consumer.settle import Ack, EndMember, MemberEnd
from tampu.errors import ServerError, Verdict
from tampu.outcome import Failed, Released, UnrecoverableFailure
from tampu.server.errors import ScriptUnknown
from tampu.server.scripts.history import (
    MAX_FAILURE_GROUPS,
    MAX_TASKS,
    count,
    load_count,
    note_failures,
    record,
)
from tampu.util.clock import now_ms
from tampu.wire.dead import MAX_MESSAGE_BYTES
from tampu.wire.fields import cut_text, cut_text_front
from tampu.wire.history import PackedFailures

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from tampu.consumer.intake import BuryEntry, Delivery
    from tampu.consumer.settle import (
        AckWithResult,
        AdvanceEntry,
        CloseEntry,
        EndedAttempt,
        ReleaseEntry,
        RetryEntry,
        Settlement,
    )
    from tampu.server.lane import Lane
    from tampu.server.protocol import Reply
    from tampu.wire.dead import Failure
    from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)
_DONE, _FAILED, _RETRIED, _DEAD, _SNOOZED, _CANCELLED, _UNKNOWN = "dfrxscu"
_BURIED: Final = "b"  # followed by the reason
_ONCE_A_JOB: Final = (_DONE, _RETRIED, _DEAD, _SNOOZED, _CANCELLED)
_OTHER: Final = "other"
_MAX_TRACEBACK_BYTES: Final = 4096
_FRAME: Final = re.compile(r'File "([^"]+)", line \d+, in (\S+)')
_FRAMES: Final = 3


class NoRecorder:
    """Records nothing: for a worker without history."""

    ack_times: list[int] | None = None  # ns that the jobs ran which wait to be acknowledged
    result_times: list[int] | None = None  # the same for those with a result
    member_times: list[int] | None = None  # the same for jobs of flows

    def count_acks(self, batch: Sequence[Delivery]) -> None:
        """Jobs are done."""

    def count_results(self, batch: Sequence[AckWithResult]) -> None:
        """Jobs are done, and their results are stored."""

    def count_retries(self, batch: Sequence[RetryEntry | ReleaseEntry]) -> None:
        """Attempts have failed, or jobs were snoozed, or were not run at all."""

    def count_burials(self, batch: Sequence[BuryEntry]) -> None:
        """Jobs become dead letters; those with an attempt have failed."""

    def count_closings(self, batch: Sequence[CloseEntry]) -> None:
        """Jobs with a unique key are done, or jobs were cancelled."""

    def count_members(self, batch: Sequence[EndMember | BuryEntry]) -> None:
        """Jobs of flows have ended."""

    def count_steps(self, batch: Sequence[AdvanceEntry]) -> None:
        """Steps of chains are done."""

    def note_attempt(self, attempt: EndedAttempt, settlement: Settlement) -> None:
        """An attempt ended that the hot path does not settle."""


class Recorder(NoRecorder):
    """What one worker adds to the history of one queue.

    The batch senders call the `count_` methods once for each batch, right before they send it. A
    count that the server refuses is kept and sent later. If its outcome is unknown, it is counted
    as such.
    """

    def __init__(self, lane: Lane, keys: QueueKeys) -> None:
        self._lane, self._keys = lane, keys
        self.ack_times: list[int] = []
        self.result_times: list[int] = []
        self.member_times: list[int] = []
        self._sampler = Sampler()
        self._times: dict[str, TaskTimes] = {}
        self._refused: Counter[str] = Counter()
        self._failures: dict[str, PackedFailures] = {}
        self._fingerprints: dict[tuple[str, str], str] = {}
        self._names: set[str] = set()
        self._ahead_ms = 0  # of the server's clock
        load_count(lane)

    # --- counting -------------------------------------------------------------------------------

    def count_acks(self, batch: Sequence[Delivery]) -> None:
        """Jobs are done."""
        self._count_done(batch, self.ack_times)

    def count_results(self, batch: Sequence[AckWithResult]) -> None:
        """Jobs are done, and their results are stored."""
        self._count_done([each.delivery for each in batch], self.result_times)

    def count_retries(self, batch: Sequence[RetryEntry | ReleaseEntry]) -> None:
        """Attempts have failed, or jobs were snoozed, or were not run at all."""
        counts: Counter[str] = Counter()
        for each in batch:
            name = self._name(each.delivery.job.name)
            if each.counted:
                counts[_FAILED + name] += 1
                counts[_RETRIED + name] += 1
            elif each.wait_ms is not None:
                counts[_SNOOZED + name] += 1
        self._send(counts)

    def count_burials(self, batch: Sequence[BuryEntry]) -> None:
        """Jobs become dead letters; those with an attempt have failed."""
        counts: Counter[str] = Counter()
        for each in batch:
            name = self._name(each.dead.name)
            counts[_DEAD + name] += 1
            counts[_BURIED + str(each.reason)] += 1
            if each.dead.failure is not None:
                counts[_FAILED + name] += 1
        self._send(counts)

    def count_closings(self, batch: Sequence[CloseEntry]) -> None:
        """Jobs with a unique key are done, or jobs were cancelled."""
        kinds = (_CANCELLED if each.cancelled else _DONE for each in batch)
        names = (self._name(each.delivery.job.name) for each in batch)
        self._send(Counter(map(str.__add__, kinds, names)))

    def count_members(self, batch: Sequence[EndMember | BuryEntry]) -> None:
        """Jobs of flows have ended."""
        ended = [each for each in batch if isinstance(each, EndMember)]
        done = [each.delivery for each in ended if each.end is MemberEnd.DONE]
        if done:
            self._count_done(done, self.member_times)
        dropped = [each.delivery for each in ended if each.end is MemberEnd.CANCELLED]
        self._send(Counter(_CANCELLED + self._name(each.job.name) for each in dropped))
        self.count_burials([each for each in batch if not isinstance(each, EndMember)])

    def count_steps(self, batch: Sequence[AdvanceEntry]) -> None:
        """Steps of chains are done."""
        self._send(Counter(_DONE + self._name(each.delivery.job.name) for each in batch))

    def _count_done(self, batch: Sequence[Delivery], times: list[int]) -> None:
        # About 0.03 us a job: mostly all have the same name, and few of a busy task are timed.
        names = [each.job.name for each in batch]
        same = names.count(names[0])
        counts = {names[0]: same} if same == len(names) else Counter(names)
        ran_ns = times[: len(names)]
        del times[: len(names)]
        self._send(self._done_counts(counts))
        at_ms = now_ms()
        ended_ms = at_ms + self._ahead_ms
        for at, weight in self._sampler.choose(names, counts, at_ms):
            self._add_time(batch[at], ran_ns[at], ended_ms, weight=weight)

    def _done_counts(self, counts: Mapping[str, int]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, number in counts.items():
            kind = _DONE + self._name(name)  # several names may be counted together
            found[kind] = found.get(kind, 0) + number
        return found

    def _send(self, counts: Mapping[str, int]) -> None:
        if not counts:
            return
        try:
            sending = count(self._lane, self._keys, counts)
        except ServerError:  # the lane is closed
            return
        sending.add_done_callback(partial(self._take_reply, counts))

    def _take_reply(self, counts: Mapping[str, int], sent: asyncio.Future[Reply]) -> None:
        error = None if sent.cancelled() else sent.exception()
        if error is None:
            return
        if isinstance(error, ServerError) and error.verdict is not Verdict.UNKNOWN:
            self._refused.update(counts)
            if isinstance(error, ScriptUnknown):
                load_count(self._lane)
            return
        jobs = (number for kind, number in counts.items() if kind.startswith(_ONCE_A_JOB))
        self._refused[_UNKNOWN] += sum(jobs) + counts.get(_UNKNOWN, 0)

    # --- times and failures ---------------------------------------------------------------------

    def note_attempt(self, attempt: EndedAttempt, settlement: Settlement) -> None:
        """An attempt ended that the hot path does not settle."""
        delivery, outcome, duration_ns = attempt
        if type(settlement) is Ack:
            self.ack_times.append(duration_ns)
        elif type(outcome) is not Released:
            self._add_time(delivery, duration_ns, self.server_ms())
        if isinstance(outcome, Failed | UnrecoverableFailure):
            self._note_failure(delivery, outcome.failure)

    def _add_time(self, delivery: Delivery, ran_ns: int, ended_ms: int, *, weight: int = 1) -> None:
        name, run_us = self._name(delivery.job.name), ran_ns // 1000
        times = self._times.get(name)
        if times is None:
            times = self._times[name] = TaskTimes()
        # The id of an entry begins with the time at which the job could have started.
        waited_ms = ended_ms - int(delivery.entry_id.partition(b"-")[0])
        times.add(run_us, max(0, waited_ms * 1000 - run_us), weight)

    def _note_failure(self, delivery: Delivery, failure: Failure) -> None:
        known = (failure.error_type, failure.traceback)
        fingerprint = self._fingerprints.get(known)
        if fingerprint is None:
            if len(self._fingerprints) >= MAX_FAILURE_GROUPS:
                self._fingerprints.clear()
            fingerprint = self._fingerprints[known] = fingerprint_of(failure)
        at_ms, job = self.server_ms(), delivery.job
        before = self._failures.get(fingerprint)
        if before is None and len(self._failures) >= MAX_FAILURE_GROUPS:
            return
        self._failures[fingerprint] = PackedFailures(
            failure.error_type,
            failure.message,
            1 if before is None else before.count + 1,
            at_ms if before is None else before.first_ms,
            at_ms,
            job.name,
            job.id,
            failure.traceback,
        )

    def _name(self, name: str) -> str:
        """The name that a task is counted by: a queue may have jobs of any number of names."""
        if name in self._names:
            return name
        if len(self._names) >= MAX_TASKS:
            return _OTHER
        self._names.add(name)
        return name

    # --- recording ------------------------------------------------------------------------------

    @property
    def unknown_jobs(self) -> int:
        """Jobs that may be missing in the counts, and about which the server does not know yet."""
        return self._refused[_UNKNOWN]

    @property
    def has_news(self) -> bool:
        """Whether there is something to record."""
        return bool(self._times or self._failures or self._refused)

    async def flush(self) -> None:
        """Record what was collected. What the server refuses is kept."""
        refused, self._refused = self._refused, Counter()
        self._send(refused)
        await self._flush_times()
        await self._flush_failures()

    async def _flush_times(self) -> None:
        times, self._times = self._times, {}
        packed = {name: each.pack() for name, each in times.items()}
        at_ms, at_s = now_ms(), self.server_ms() / 1000
        try:
            server_ms = await record(self._lane, self._keys, packed, at_s=at_s)
        except ServerError as error:
            if error.verdict is not Verdict.UNKNOWN:
                for name, each in times.items():
                    self._times.setdefault(name, TaskTimes()).merge(each)
            raise
        self._ahead_ms = server_ms - (at_ms + now_ms()) // 2

    async def _flush_failures(self) -> None:
        if not self._failures:
            return
        failures, self._failures = self._failures, {}
        cut = {fingerprint: _cut(each) for fingerprint, each in failures.items()}
        try:
            await note_failures(self._lane, self._keys, cut)
        except ServerError as error:
            if error.verdict is not Verdict.UNKNOWN:
                self._failures = failures | self._failures  # of the same group the latest are kept
            raise

    def learn_clock(self, server_ms: int) -> None:
        """Know how far the server's clock is ahead."""
        self._ahead_ms = server_ms - now_ms()

    def server_ms(self) -> int:
        """The time of the server's clock, in milliseconds since 1970."""
        return now_ms() + self._ahead_ms


def fingerprint_of(failure: Failure) -> str:
    """The same for errors of one type that were raised at the same place, whatever the line."""
    frames = _FRAME.findall(failure.traceback)[-_FRAMES:]
    text = "\n".join((failure.error_type, *(f"{file} {name}" for file, name in frames)))
    return sha1(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()[:12]


def _cut(seen: PackedFailures) -> PackedFailures:
    return PackedFailures(
        seen.error_type,
        cut_text(seen.message, MAX_MESSAGE_BYTES),
        seen.count,
        seen.first_ms,
        seen.last_ms,
        seen.task,
        seen.job_id,
        cut_text_front(seen.traceback, _MAX_TRACEBACK_BYTES),
    )
